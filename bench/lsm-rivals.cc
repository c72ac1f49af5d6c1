/* SPDX-License-Identifier: BSD-3-Clause */
/* lsm-rivals.cc - see lsm-rivals.hpp. */
#include "bench/lsm-rivals.hpp"

#include <cstring>
#include <set>

#include <rocksdb/cache.h>
#include <rocksdb/sst_file_reader.h>

using namespace rocksdb;

static const char property[] = "bench.rival";
static constexpr long memtable_keys = 2200;
static constexpr long keys_of_block = 19; /* of 212 bytes in 4 KiB, about */

/* Lists by key as one array: counts first, then places. */
template <typename Each>
static void lists(size_t keys, std::vector<uint32_t> &from, std::vector<uint32_t> &list,
                  Each each)
{
    from.assign(keys + 1, 0);
    each([&](size_t key, uint32_t) {
        if (key < keys)
            from[key + 1]++;
    });
    for (size_t i = 1; i <= keys; i++)
        from[i] += from[i - 1];
    list.resize(from[keys]);
    auto at = from;
    each([&](size_t key, uint32_t value) {
        if (key < keys)
            list[at[key]++] = value;
    });
}

Future::Future(const Operations &all, size_t cache_blocks)
{
    auto keys = static_cast<size_t>(all.keys());
    auto n = static_cast<uint32_t>(all.reads.size());

    for (uint32_t i = 0; i < n; i++)
        for (int k = 0; k < all.reads[i].writes; k++)
            write_at_.push_back(i);
    lists(keys, write_from_, write_no_, [&](auto add) {
        for (uint32_t i = 0; i < all.writes.size(); i++)
            add(all.writes[i], i);
    });
    lists(keys, read_from_, read_at_, [&](auto add) {
        for (uint32_t i = 0; i < n; i++)
            for (int k = 0; k <= (all.reads[i].scan ? scanned : 0); k++)
                add(all.reads[i].key + static_cast<size_t>(k), i);
    });
    /* What the memtable answers reads no block. */
    std::vector<bool> in_memory(n);
    std::vector<int64_t> written(keys, -memtable_keys - 1);
    for (int64_t i = 0, write = 0; i < n; i++) {
        auto &read = all.reads[static_cast<size_t>(i)];
        in_memory[static_cast<size_t>(i)] =
            !read.scan && write - written[read.key] < memtable_keys;
        for (int k = 0; k < read.writes; k++, write++)
            written[all.writes[static_cast<size_t>(write)]] = write;
    }
    std::vector<uint32_t> seen(keys / keys_of_block + scanned + 1, UINT32_MAX);
    for (uint32_t begin = 0; begin < n; begin += step) {
        uint32_t i = begin;
        for (size_t distinct = 0; i < n && distinct < cache_blocks; i++)
            for (long k = 0; !in_memory[i] && k <= (all.reads[i].scan ? scanned : 0);
                 k += keys_of_block) {
                auto &last =
                    seen[static_cast<size_t>((all.reads[i].key + k) / keys_of_block)];
                distinct += last != begin;
                last = begin;
            }
        horizon_.push_back(i);
    }
}

bool Future::wanted(uint32_t key, long at, long write) const
{
    if (key + 1 >= read_from_.size() || at / step >= static_cast<long>(horizon_.size()))
        return false;
    uint32_t end = horizon_[static_cast<size_t>(at / step)];
    auto first = read_at_.begin() + read_from_[key],
         last = read_at_.begin() + read_from_[key + 1],
         next = std::lower_bound(first, last, static_cast<uint32_t>(at));
    if (next == last || *next >= end)
        return false;
    /* Not the value that is written last before the read: another file has it. */
    auto begin = write_no_.begin() + write_from_[key],
         none = write_no_.begin() + write_from_[key + 1];
    auto later = write < 0
                     ? std::lower_bound(begin, none, static_cast<uint32_t>(at),
                                        [&](uint32_t number, uint32_t when) {
                                            return write_at_[number] < when;
                                        })
                     : std::upper_bound(begin, none, static_cast<uint32_t>(write));
    return later == none || write_at_[*later] >= *next;
}

static uint32_t number_of(const Slice &key)
{
    return static_cast<uint32_t>(atol(key.ToString().c_str() + 3));
}

class RivalBounds : public TablePropertiesCollector
{
  public:
    explicit RivalBounds(Rival *rival) : rival_(rival)
    {
    }
    Status AddUserKey(const Slice &key, const Slice &, EntryType, SequenceNumber s,
                      uint64_t) override
    {
        uint32_t number = number_of(key);
        if (!open_)
            blocks_.push_back({number, number, end_, false});
        open_ = true;
        blocks_.back().last = number;
        blocks_.back().wanted = blocks_.back().wanted || rival_->wanted(number, s);
        return Status::OK();
    }
    void BlockAdd(uint64_t raw, uint64_t, uint64_t) override
    {
        if (open_)
            end_ += raw + 5;
        open_ = false;
    }
    Status Finish(UserCollectedProperties *) override
    {
        std::lock_guard<std::mutex> guard(rival_->lock_);
        if (!blocks_.empty()) {
            token_ = std::to_string(++rival_->token_);
            rival_->shaped_[token_] = std::move(blocks_);
            blocks_.clear();
        }
        return Status::OK();
    }
    UserCollectedProperties GetReadableProperties() const override
    {
        return {{property, token_}};
    }
    const char *Name() const override
    {
        return property;
    }

  private:
    Rival *rival_;
    std::vector<Rival::Block> blocks_;
    uint64_t end_ = 0;
    bool open_ = false;
    std::string token_;
};

namespace
{
struct RivalFactory : TablePropertiesCollectorFactory {
    explicit RivalFactory(std::shared_ptr<Rival> r) : rival(std::move(r))
    {
    }
    TablePropertiesCollector *CreateTablePropertiesCollector(Context) override
    {
        return new RivalBounds(rival.get());
    }
    const char *Name() const override
    {
        return property;
    }
    std::shared_ptr<Rival> rival;
};
} // namespace

std::shared_ptr<Rival> Rival::attach(Options &o, std::shared_ptr<const Future> future,
                                     const std::atomic<long> *at)
{
    auto rival = std::make_shared<Rival>();
    rival->future_ = std::move(future);
    rival->at_ = at;
    rival->table_ = *o.table_factory->GetOptions<BlockBasedTableOptions>();
    rival->cache_ = rival->table_.block_cache;
    rival->own_ = o;
    rival->own_.listeners.clear();
    o.listeners.push_back(rival);
    o.table_properties_collector_factories.push_back(
        std::make_shared<RivalFactory>(rival));
    return rival;
}

bool Rival::wanted(uint32_t key, uint64_t sequence) const
{
    uint64_t first = first_write;

    return future_ && first != UINT64_MAX &&
           future_->wanted(
               key, *at_, sequence >= first ? static_cast<long>(sequence - first) : -1);
}

/* The two words that name a file's blocks: those of its first block, in a cache of its
 * own. */
bool Rival::name(const std::string &path, File *file)
{
    BlockBasedTableOptions table = table_;
    Options o = own_;
    bool found = false;

    table.block_cache = NewLRUCache(1 << 20, 0);
    o.table_factory.reset(NewBlockBasedTableFactory(table));
    SstFileReader reader(o);
    if (!reader.Open(path).ok())
        return false;
    std::unique_ptr<Iterator> it(reader.NewIterator(ReadOptions()));
    it->SeekToFirst();
    table.block_cache->ApplyToAllEntries(
        [&](const Slice &key, void *, size_t, Cache::DeleterFn) {
            if (key.size() == sizeof file->word)
                memcpy(file->word, key.data(), sizeof file->word);
            found = found || key.size() == sizeof file->word;
        },
        {});
    return found;
}

/* Under the lock. */
void Rival::overlap(File *file)
{
    std::map<uint64_t, const File *> by_word;
    std::map<uint32_t, uint32_t> cached; /* last key of a cached block: its first */

    for (auto &one : files_)
        by_word[one.second.word[0]] = &one.second;
    cache_->ApplyToAllEntries(
        [&](const Slice &key, void *, size_t, Cache::DeleterFn) {
            uint64_t word[2];
            if (key.size() != sizeof word)
                return;
            memcpy(word, key.data(), sizeof word);
            auto of = by_word.find(word[0]);
            if (of == by_word.end())
                return;
            auto &all = of->second->blocks;
            uint64_t offset = (word[1] ^ of->second->word[1]) * 4 + 3;
            auto next = std::upper_bound(
                all.begin(), all.end(), offset,
                [](uint64_t at, const Block &block) { return at < block.offset; });
            if (next == all.begin())
                return;
            --next;
            auto put = cached.emplace(next->last, next->first);
            put.first->second = std::min(put.first->second, next->first);
        },
        {});
    /* Blocks of a flush are wide: the smallest first key from here to the end. */
    uint32_t least = UINT32_MAX;
    for (auto it = cached.rbegin(); it != cached.rend(); ++it)
        it->second = least = std::min(least, it->second);
    for (auto &block : file->blocks) {
        auto it = cached.lower_bound(block.first);
        block.wanted = it != cached.end() && it->second <= block.last;
    }
}

void Rival::OnTableFileCreated(const TableFileCreationInfo &info)
{
    auto &user = info.table_properties.readable_properties;
    auto token = user.find(property);
    File file;

    if (!info.status.ok() || token == user.end())
        return;
    {
        std::lock_guard<std::mutex> guard(lock_);
        auto it = shaped_.find(token->second);
        if (it == shaped_.end())
            return;
        file.blocks = std::move(it->second);
        shaped_.erase(it);
    }
    if (!name(info.file_path, &file))
        return;
    if (!future_) {
        std::lock_guard<std::mutex> guard(lock_);
        overlap(&file);
    }
    SstFileReader reader(own_);
    if (reader.Open(info.file_path).ok()) {
        ReadOptions read;
        read.fill_cache = true;
        std::unique_ptr<Iterator> it(reader.NewIterator(read));
        for (auto &block : file.blocks)
            if (block.wanted) {
                it->Seek(key_of(block.first));
                warmed++;
            }
    }
    blocks += file.blocks.size();
    std::lock_guard<std::mutex> guard(lock_);
    files_[info.file_path] = std::move(file);
}

void Rival::OnTableFileDeleted(const TableFileDeletionInfo &info)
{
    File file;
    {
        std::lock_guard<std::mutex> guard(lock_);
        auto it = files_.find(info.file_path);
        if (it == files_.end())
            return;
        file = std::move(it->second);
        files_.erase(it);
    }
    for (auto &block : file.blocks) {
        uint64_t word[2] = {file.word[0], file.word[1] ^ (block.offset / 4)};
        if (future_)
            cache_->Erase(Slice(reinterpret_cast<const char *>(word), sizeof word));
    }
}
