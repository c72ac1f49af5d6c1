/* SPDX-License-Identifier: BSD-3-Clause */
/* attach.cc - looks at options, says what cannot work with them, and puts the cache,
 * the listener and the collector of block bounds into them.  Nothing is changed before
 * all is known to work. */
#include "lsm/qmlsm.hpp"

#include <cerrno>
#include <cstring>
#include <new>

#include <rocksdb/comparator.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>
#include <rocksdb/table_properties.h>

#include "lsm/core.hpp"

namespace quickmine::lsm
{

using rocksdb::BlockBasedTableOptions;
using rocksdb::ColumnFamilyOptions;
using rocksdb::DBOptions;
using rocksdb::Slice;
using rocksdb::Status;

static const char property[] = "quickmine.lsm";

/* Nothing may be thrown into RocksDB. */
template <typename Work> static void quietly(Work work) noexcept
{
    try {
        work();
    } catch (...) {
    }
}

class Listener : public rocksdb::EventListener
{
  public:
    explicit Listener(std::shared_ptr<Core> core) : core_(std::move(core))
    {
    }
    const char *Name() const override
    {
        return "quickmine.lsm";
    }
    void OnTableFileCreated(const rocksdb::TableFileCreationInfo &info) override
    {
        quietly([&] { core_->created(info); });
    }
    void OnTableFileDeleted(const rocksdb::TableFileDeletionInfo &info) override
    {
        if (info.status.ok())
            quietly([&] { core_->deleted(info.file_path); });
    }
    void OnCompactionBegin(rocksdb::DB *,
                           const rocksdb::CompactionJobInfo &info) override
    {
        purpose().background = true;
        quietly([&] { core_->compaction_begins(info); });
    }
    void OnCompactionCompleted(rocksdb::DB *,
                               const rocksdb::CompactionJobInfo &info) override
    {
        purpose().background = false;
        quietly([&] { core_->compaction_ends(info); });
    }
    void OnSubcompactionBegin(const rocksdb::SubcompactionJobInfo &) override
    {
        purpose().background = true;
        quietly([&] { core_->subcompaction_begins(); });
    }
    void OnSubcompactionCompleted(const rocksdb::SubcompactionJobInfo &info) override
    {
        quietly([&] { core_->subcompaction_ends(info); });
    }
    void OnStallConditionsChanged(const rocksdb::WriteStallInfo &info) override
    {
        quietly([&] {
            core_->stalled(info.cf_name,
                           info.condition.cur != rocksdb::WriteStallCondition::kNormal);
        });
    }
    bool attached() const
    {
        return !core_->closing;
    }

  private:
    std::shared_ptr<Core> core_;
};

/* Follows a file while it is written. */
class Bounds : public rocksdb::TablePropertiesCollector
{
  public:
    Bounds(std::shared_ptr<Core> core, std::shared_ptr<Family> family, int level)
        : core_(std::move(core)), family_(std::move(family)), flush_(level == 0),
          shape_(nullptr)
    {
        uint32_t from, steps;
        core_->phase_of_new(&from, &steps);
        shape_ = family_shape(family_->counts, level, family_->cut, from, steps);
    }
    ~Bounds() override
    {
        shape_free(shape_);
    }
    Status AddUserKey(const Slice &key, const Slice &value, rocksdb::EntryType type,
                      rocksdb::SequenceNumber, uint64_t) override
    {
        if (!shape_ || type == rocksdb::kEntryRangeDeletion)
            return Status::OK();
        if (foreign_)
            shape_cut(shape_, family_->block_size);
        shape_key(shape_, key.data(), key.size(), key.size() + value.size() + 12);
        if (flush_)
            family_write(family_->counts, key.data(), key.size());
        return Status::OK();
    }
    void BlockAdd(uint64_t raw, uint64_t, uint64_t) override
    {
        /* Threads that compress tell of blocks while the builder adds keys. */
        if (std::this_thread::get_id() != builder_)
            foreign_ = true;
        else if (shape_)
            shape_block(shape_, raw);
    }
    /* RocksDB calls this twice: for the file, and for a caller that asks for its
     * properties. */
    Status Finish(rocksdb::UserCollectedProperties *) override
    {
        quietly([&] {
            if (!shape_)
                return;
            shape_finish(shape_);
            struct shape *shape = shape_;
            shape_ = nullptr;
            token_ = core_->shaped(family_, shape);
        });
        return Status::OK();
    }
    /* These go to OnTableFileCreated() and not into the file. */
    rocksdb::UserCollectedProperties GetReadableProperties() const override
    {
        rocksdb::UserCollectedProperties properties;
        quietly([&] {
            if (!token_.empty())
                properties[property] = token_;
        });
        return properties;
    }
    const char *Name() const override
    {
        return "quickmine.lsm";
    }

  private:
    std::shared_ptr<Core> core_;
    std::shared_ptr<Family> family_;
    bool flush_;
    const std::thread::id builder_ = std::this_thread::get_id();
    std::atomic<bool> foreign_{false};
    struct shape *shape_;
    std::string token_;
};

class Nothing : public rocksdb::TablePropertiesCollector
{
  public:
    Status AddUserKey(const Slice &, const Slice &, rocksdb::EntryType,
                      rocksdb::SequenceNumber, uint64_t) override
    {
        return Status::OK();
    }
    Status Finish(rocksdb::UserCollectedProperties *) override
    {
        return Status::OK();
    }
    rocksdb::UserCollectedProperties GetReadableProperties() const override
    {
        return {};
    }
    const char *Name() const override
    {
        return "quickmine.lsm";
    }
};

class Factory : public rocksdb::TablePropertiesCollectorFactory
{
  public:
    Factory(std::shared_ptr<Core> core, std::shared_ptr<Family> family)
        : core_(std::move(core)), family_(std::move(family))
    {
    }
    rocksdb::TablePropertiesCollector *
    CreateTablePropertiesCollector(Context c) override
    {
        try {
            /* The level of a file that SstFileWriter makes is not known, nor whether
             * it will ever be in the database. */
            if (!core_->closing && c.level_at_creation >= 0)
                return new Bounds(core_, family_, c.level_at_creation);
        } catch (...) {
        }
        return new Nothing;
    }
    const char *Name() const override
    {
        return "quickmine.lsm";
    }
    bool attached() const
    {
        return !core_->closing;
    }

  private:
    std::shared_ptr<Core> core_;
    std::shared_ptr<Family> family_;
};

static bool attached_already(const ColumnFamilyOptions &family)
{
    for (auto &one : family.table_properties_collector_factories) {
        auto *ours = dynamic_cast<Factory *>(one.get());
        if (ours && ours->attached())
            return true;
    }
    return false;
}

/* Of any level, as far as these options say: others may be set later. */
static bool has_dictionaries(const ColumnFamilyOptions &family)
{
    return family.compression_opts.max_dict_bytes > 0 ||
           family.bottommost_compression_opts.max_dict_bytes > 0;
}

static const char twice[] = "these options are attached already";

/* What options allow: empty, or why they are refused; and in less what does not work.
 */
static std::string look_at(const DBOptions &db, const ColumnFamilyOptions &family,
                           std::string *less)
{
    auto also = [less](const char *text) {
        *less += less->empty() ? "" : "; ";
        *less += text;
    };

    if (!family.table_factory || !family.table_factory->IsInstanceOf("BlockBasedTable"))
        return "the table factory is not BlockBasedTable, which alone has a block "
               "cache";
    auto *table = family.table_factory->GetOptions<BlockBasedTableOptions>();
    if (!table)
        return "the table factory does not show its options";
    if (table->no_block_cache)
        return "there is no block cache (no_block_cache)";
    if (!table->block_cache) /* its factory makes one of 8 MiB, if there may be one */
        return "there is no block cache";
    if (family.comparator->timestamp_size() > 0)
        return "keys have user-defined timestamps";
    if (family.comparator != rocksdb::BytewiseComparator())
        return "the comparator is not BytewiseComparator";
    if (db.allow_mmap_reads)
        return "allow_mmap_reads bypasses the block cache";
    if (db.row_cache)
        also("reads that the row cache answers are not seen");
    if (family.enable_blob_files)
        also("values in blob files are not warmed, only the blocks of keys");
    if (table->block_cache_compressed)
        also("the compressed block cache is not warmed");
    if (table->persistent_cache)
        also("the persistent cache is not warmed");
    if (table->block_cache && table->block_cache->GetPrintableOptions().find(
                                  "secondary_cache") != std::string::npos)
        also("blocks of dead files stay in the secondary cache until it evicts them");
    if (table->block_cache->HasStrictCapacityLimit())
        also("with strict_capacity_limit, warming ends where pinned blocks fill the "
             "cache");
    if (table->cache_index_and_filter_blocks && has_dictionaries(family))
        also("with dictionaries in the block cache, a file whose first block cannot be "
             "told from them is not warmed");
    if (table->prepopulate_block_cache !=
        BlockBasedTableOptions::PrepopulateBlockCache::kDisable)
        also("prepopulate_block_cache warms all of each flush, whatever the mode");
    return "";
}

/* What goes into the options of a family. */
struct Change {
    std::shared_ptr<rocksdb::TableFactory> table;
    std::shared_ptr<Factory> collector;
    unsigned number;

    /* After prepare(), which made room. */
    void put(ColumnFamilyOptions &options) noexcept
    {
        options.table_properties_collector_factories.push_back(std::move(collector));
        options.table_factory = std::move(table);
    }
};

/* All that can fail. */
static Change prepare(const std::shared_ptr<Core> &core, const DBOptions &db,
                      ColumnFamilyOptions &options)
{
    Change change;
    auto family = std::make_shared<Family>();
    BlockBasedTableOptions table =
        *options.table_factory->GetOptions<BlockBasedTableOptions>();
    uint32_t ranges = core->config.ranges;

    table.block_cache = core->cache;
    if (ranges == 0)
        ranges = static_cast<uint32_t>(std::min<size_t>(
            std::max<size_t>(core->cache->GetCapacity() / 2048, 1024), 262144));
    family->counts = family_new(ranges, core->config.sample);
    if (!family->counts)
        throw std::bad_alloc();
    family->partitioned =
        table.index_type == BlockBasedTableOptions::kTwoLevelIndexSearch;
    family->index_in_cache = table.cache_index_and_filter_blocks;
    family->block_size = static_cast<uint32_t>(std::max<size_t>(table.block_size, 1));
    /* Blocks that are compressed later end later than their keys come. */
    if (has_dictionaries(options) || options.compression_opts.parallel_threads > 1 ||
        options.bottommost_compression_opts.parallel_threads > 1)
        family->cut = family->block_size;
    std::shared_ptr<rocksdb::TableFactory> factory(
        rocksdb::NewBlockBasedTableFactory(table));

    family->options = rocksdb::Options(db, options);
    rocksdb::Options &own = family->options;
    own.table_factory = factory;
    own.listeners.clear();
    own.table_properties_collector_factories.clear();
    own.merge_operator.reset();
    own.compaction_filter = nullptr;
    own.compaction_filter_factory.reset();
    own.statistics.reset();
    own.info_log.reset();

    auto &others = options.table_properties_collector_factories;
    others.reserve(others.size() + 1);
    change.table = std::move(factory);
    change.collector = std::make_shared<Factory>(core, family);
    change.number = core->add(family);
    return change;
}

class Attachment : public Handle
{
  public:
    Attachment(std::shared_ptr<Core> core, const DBOptions &db)
        : core_(std::move(core)), db_(db)
    {
        db_.listeners.clear();
    }
    ~Attachment() override
    {
        detach();
    }
    Verdict add_family(ColumnFamilyOptions &options, unsigned *family,
                       std::string *says) override
    {
        std::string less, why = look_at(db_, options, &less);
        if (why.empty() && attached_already(options))
            why = twice;
        if (why.empty()) {
            auto *table = options.table_factory->GetOptions<BlockBasedTableOptions>();
            if (!table->block_cache ||
                WatchedCache::of(table->block_cache) != core_->cache)
                why = "the family has another block cache than the first";
        }
        if (why.empty() && core_->closing)
            why = "it is detached";
        if (says)
            *says = why.empty() ? less : why;
        if (!why.empty())
            return Verdict::refused;
        Change change = prepare(core_, db_, options);
        if (family)
            *family = change.number;
        change.put(options);
        return less.empty() ? Verdict::works : Verdict::less;
    }
    void read(const Slice &key, unsigned family) override
    {
        core_->read(family, key.data(), key.size());
    }
    void tick() override
    {
        core_->tick();
    }
    Stats stats() override
    {
        Stats s;
        core_->stats(&s);
        return s;
    }
    void detach() override
    {
        core_->detach();
    }

  private:
    std::shared_ptr<Core> core_;
    DBOptions db_;
};

static std::string look_at_config(const qm_lsm_config &c)
{
    int mode; /* of a C program: it may be anything */

    static_assert(sizeof mode == sizeof c.mode);
    memcpy(&mode, &c.mode, sizeof mode);
    if (mode < QM_LSM_ADAPTIVE || mode > QM_LSM_LEAPER)
        return "mode is none of enum qm_lsm_mode";
    if (!(c.sample > 0 && c.sample <= 1))
        return "sample must be above 0 and at most 1";
    if (!(c.share > 0 && c.share <= 1))
        return "share must be above 0 and at most 1";
    if (mode == QM_LSM_LEAPER && !c.model)
        return "mode leaper needs a model";
    if (mode != QM_LSM_LEAPER && c.model)
        return "a model is for mode leaper alone";
    return "";
}

Attached attach(DBOptions &db, ColumnFamilyOptions &family, const Config &config)
{
    Attached result;
    std::string less, why = look_at_config(config);

    if (why.empty())
        why = look_at(db, family, &less);
    for (auto &one : db.listeners) {
        auto *ours = dynamic_cast<Listener *>(one.get());
        if (ours && ours->attached())
            why = twice;
    }
    if (why.empty() && attached_already(family))
        why = twice;
    result.says = why.empty() ? less : why;
    if (!why.empty())
        return result;
    auto *table = family.table_factory->GetOptions<BlockBasedTableOptions>();
    auto behind =
        table->block_cache ? table->block_cache : rocksdb::NewLRUCache(8 << 20);
    auto front = WatchedCache::of(behind);
    std::unique_ptr<struct trees, decltype(&trees_free)> trees(nullptr, trees_free);
    std::unique_ptr<struct dump, decltype(&dump_close)> dump(nullptr, dump_close);
    if (config.model) {
        char err[200];
        trees.reset(bridge_trees(config.model, err, sizeof err));
        if (!trees) {
            result.says = std::string("the model: ") + err;
            return result;
        }
    }
    if (config.dump) {
        dump.reset(dump_open(config.dump, config.dump_bytes));
        if (!dump) {
            result.says =
                std::string("the dump ") + config.dump + ": " + strerror(errno);
            return result;
        }
    }
    auto core = std::make_shared<Core>(config, front, trees.get(), dump.get());
    trees.release();
    dump.release();
    auto handle = std::make_shared<Attachment>(core, db);
    auto listener = std::make_shared<Listener>(core);
    db.listeners.reserve(db.listeners.size() + 1);
    Change change = prepare(core, db, family);
    core->start();
    /* Nothing fails from here on. */
    change.put(family);
    db.listeners.push_back(std::move(listener));
    result.handle = std::move(handle);
    result.verdict = less.empty() ? Verdict::works : Verdict::less;
    return result;
}

Attached attach(rocksdb::Options &options, const Config &config)
{
    return attach(options, options, config);
}

} // namespace quickmine::lsm
