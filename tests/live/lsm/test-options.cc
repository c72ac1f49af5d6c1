/* SPDX-License-Identifier: BSD-3-Clause */
/* What attach says of options: works, works with less, refused; and that refused
 * options are unchanged. */
#include "tests/live/lsm/out-of-memory.hpp"
#include "tests/live/lsm/testing.hpp"

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include <unistd.h>

#include <rocksdb/c.h>
#include <rocksdb/comparator.h>
#include <rocksdb/sst_file_writer.h>

/* Where memory runs out inside it, RocksDB's constructor leaks what it has made. */
extern "C" const char *__lsan_default_suppressions();
extern "C" const char *__lsan_default_suppressions()
{
    return "leak:rocksdb::AdvancedColumnFamilyOptions::AdvancedColumnFamilyOptions\n";
}

using namespace rocksdb;
using namespace testing;
namespace lsm = quickmine::lsm;

static void expect(lsm::Verdict verdict, const char *says,
                   const std::function<void(Options &)> &change)
{
    Options o = options_of(NewLRUCache(1 << 20));
    change(o);
    auto factory = o.table_factory;
    auto attached = lsm::attach(o, still(QM_LSM_ALL));
    if (attached.verdict != verdict || attached.says.find(says) == std::string::npos)
        fprintf(stderr, "expected '%s', got %d '%s'\n", says, int(attached.verdict),
                attached.says.c_str());
    CHECK(attached.verdict == verdict && attached.says.find(says) != std::string::npos);
    CHECK(bool(attached) == (verdict != lsm::Verdict::refused));
    if (!attached) {
        CHECK(o.table_factory == factory && o.listeners.empty() &&
              o.table_properties_collector_factories.empty());
        return;
    }
    /* What is said to work opens, writes and reads. */
    Scratch d;
    auto db = open(o, d / "db");
    flush_keys(*db, 0, 400);
    read_keys(*db, 0, 400);
    db.reset();
    lsm::Stats s = attached->stats();
    CHECK(s.files > 0 && s.failures == 0);
}

template <typename Change> static std::function<void(Options &)> table(Change change)
{
    return [change](Options &o) { change_table(o, change); };
}

struct Timestamps : Comparator {
    Timestamps() : Comparator(8)
    {
    }
    const char *Name() const override
    {
        return "timestamps";
    }
    int Compare(const Slice &a, const Slice &b) const override
    {
        return a.compare(b);
    }
    void FindShortestSeparator(std::string *, const Slice &) const override
    {
    }
    void FindShortSuccessor(std::string *) const override
    {
    }
};

TEST(test_verdicts)
{
    using T = BlockBasedTableOptions;
    const auto works = lsm::Verdict::works, less = lsm::Verdict::less,
               refused = lsm::Verdict::refused;

    expect(works, "", [](Options &) {});
    expect(works, "", table([](T &t) { t.cache_index_and_filter_blocks = true; }));
    expect(works, "", table([](T &t) {
               t.index_type = T::kTwoLevelIndexSearch;
               t.partition_filters = true;
           }));
    expect(works, "",
           [](Options &o) { o.compaction_style = kCompactionStyleUniversal; });
    expect(works, "", [](Options &o) {
        o.compression = kZSTD;
        o.compression_opts.max_dict_bytes = 4096;
    });
    expect(less, "dictionaries", [](Options &o) {
        o.bottommost_compression_opts.max_dict_bytes = 4096;
        change_table(o, [](T &t) { t.cache_index_and_filter_blocks = true; });
    });
    expect(works, "", [](Options &o) {
        o.compression = kLZ4Compression;
        o.compression_opts.parallel_threads = 4;
    });
    expect(works, "", table([](T &t) {
               t.block_cache = HyperClockCacheOptions(1 << 20, 1024).MakeSharedCache();
           }));
    expect(works, "",
           table([](T &t) { t.block_cache.reset(); })); /* RocksDB makes one */
    expect(less, "row cache", [](Options &o) { o.row_cache = NewLRUCache(1 << 20); });
    expect(less, "blob", [](Options &o) { o.enable_blob_files = true; });
    expect(less, "prepopulate", table([](T &t) {
               t.prepopulate_block_cache = T::PrepopulateBlockCache::kFlushOnly;
           }));
    expect(less, "strict",
           table([](T &t) { t.block_cache->SetStrictCapacityLimit(true); }));
    expect(less, "secondary", table([](T &t) {
               LRUCacheOptions c;
               c.capacity = 1 << 20;
               c.secondary_cache = NewCompressedSecondaryCache(1 << 20);
               t.block_cache = NewLRUCache(c);
           }));
    expect(less, "compressed",
           table([](T &t) { t.block_cache_compressed = NewLRUCache(1 << 20); }));
    expect(refused, "no_block_cache", table([](T &t) {
               t.no_block_cache = true;
               t.block_cache.reset();
           }));
    expect(refused, "table factory",
           [](Options &o) { o.table_factory.reset(NewPlainTableFactory()); });
    expect(refused, "table factory",
           [](Options &o) { o.table_factory.reset(NewCuckooTableFactory()); });
    expect(refused, "mmap", [](Options &o) { o.allow_mmap_reads = true; });
    expect(refused, "comparator",
           [](Options &o) { o.comparator = ReverseBytewiseComparator(); });
    expect(refused, "timestamps", [](Options &o) {
        static Timestamps timestamps;
        o.comparator = &timestamps;
    });
}

TEST(test_config)
{
    for (int i = 0; i < 5; i++) {
        Options o = options_of(NewLRUCache(1 << 20));
        auto c = still(QM_LSM_ALL);
        if (i == 0)
            c.sample = 0;
        else if (i == 1)
            c.sample = 1.1;
        else if (i == 2)
            c.share = -1;
        else if (i == 3)
            c.share = 0. / 0.;
        else
            c.mode = qm_lsm_mode(99);
        auto attached = lsm::attach(o, c);
        CHECK(!attached && !attached.says.empty() && o.listeners.empty());
    }
}

/* Twice is refused; after the first is detached it is allowed. */
TEST(test_twice)
{
    Options o = options_of(NewLRUCache(1 << 20));
    auto one = lsm::attach(o, still(QM_LSM_ALL));
    auto two = lsm::attach(o, still(QM_LSM_ALL));
    CHECK(one && !two && two.says.find("attached already") != std::string::npos);
    one->detach();
    one->detach();
    auto three = lsm::attach(o, still(QM_LSM_ALL));
    CHECK(three);
    Scratch d;
    auto db = open(o, d / "db");
    flush_keys(*db, 0, 100);
    CHECK(three->stats().warmed > 0 && one->stats().files == 0);
}

/* A family's options count as attached wherever they are: with other options of the
 * database, or as those of a further family. */
TEST(test_family_twice)
{
    auto cache = NewLRUCache(1 << 20);
    Options o = options_of(cache), more = options_of(cache), third = options_of(cache);
    auto one = lsm::attach(o, still(QM_LSM_ALL));
    unsigned number = 99;
    std::string says;
    CHECK(one->add_family(o, &number, &says) == lsm::Verdict::refused);
    CHECK(says.find("attached already") != says.npos && number == 99);
    CHECK(one->add_family(more, &number, &says) == lsm::Verdict::works && number == 1);
    auto factory = more.table_factory;
    CHECK(one->add_family(more, nullptr, &says) == lsm::Verdict::refused);
    CHECK(more.table_factory == factory &&
          more.table_properties_collector_factories.size() == 1);
    DBOptions fresh;
    auto two = lsm::attach(fresh, more, still(QM_LSM_ALL));
    CHECK(!two && two.says.find("attached already") != std::string::npos);
    CHECK(fresh.listeners.empty());
    auto other = lsm::attach(third, still(QM_LSM_ALL));
    CHECK(other->add_family(more, nullptr, &says) == lsm::Verdict::refused);
    one->detach();
    CHECK(other->add_family(more, &number, &says) == lsm::Verdict::works);
}

/* Whichever allocation of attach() fails, options are as before. */
TEST(test_no_memory)
{
    bool attached = false;
    for (long n = 0; !attached; n++) {
        Options o = options_of(NewLRUCache(1 << 20));
        auto factory = o.table_factory;
        auto c = still(QM_LSM_ALL);
        c.interval_ms = 1000;
        CHECK(n < 10000);
        try {
            allocations_left = n;
            attached = bool(lsm::attach(o, c));
            allocations_left = -1;
        } catch (const std::bad_alloc &) {
            allocations_left = -1;
            CHECK(o.table_factory == factory && o.listeners.empty() &&
                  o.table_properties_collector_factories.empty());
        }
    }
}

/* A file of SstFileWriter's is nobody's: neither its level nor whether it will be in
 * the database is known.  So nothing is learned of its keys. */
TEST(test_foreign_files)
{
    Options o = options_of(NewLRUCache(1 << 20));
    auto attached = lsm::attach(o, still(QM_LSM_ALL));
    Scratch d;
    SstFileWriter writer(EnvOptions(), o);
    OK(writer.Open(d / "foreign.sst"));
    for (long i = 0; i < 1000; i++)
        OK(writer.Put(key_of(i), "value"));
    OK(writer.Finish());
    CHECK(attached->stats().ranges == 1);
    auto db = open(o, d / "db");
    flush_keys(*db, 0, 400);
    CHECK(attached->stats().ranges > 10);
}

/* A cache that nobody else holds, and options that go before the handle, and the other
 * way round: nothing is used after its end (under the address sanitizer). */
TEST(test_lifetimes)
{
    for (int which = 0; which < 3; which++) {
        Scratch d;
        lsm::Attached attached;
        std::unique_ptr<DB> db;
        {
            Options o = options_of(NewLRUCache(1 << 20));
            auto c = still(QM_LSM_ALL);
            c.interval_ms = 1;
            attached = lsm::attach(o, c);
            db = open(o, d / "db");
        }
        flush_keys(*db, 0, 200);
        if (which == 0)
            attached.handle.reset();
        if (which == 1)
            attached->detach();
        flush_keys(*db, 0, 200);
        read_keys(*db, 0, 200);
        db.reset();
        if (attached)
            attached->stats();
    }
    /* The cache and the files go on, in another database object; nothing is left of the
     * first handle's counters that its look-ups could find. */
    auto cache = NewLRUCache(1 << 20);
    Options keeper = options_of(cache); /* keeps the front of the cache */
    auto kept = lsm::attach(keeper, still(QM_LSM_OFF));
    Scratch d;
    for (int again = 0; again < 2; again++) {
        Options o = options_of(cache);
        auto attached = lsm::attach(o, still(QM_LSM_ALL));
        auto db = open(o, d / "db");
        if (!again)
            flush_keys(*db, 0, 200);
        read_keys(*db, 0, 200);
        CHECK((attached->stats().hits > 0) == !again);
    }
    Options unused = options_of(NewLRUCache(1 << 20));
    lsm::attach(unused, still(QM_LSM_ALL));
}

/* Threads that compress, of the last level alone or since a later change of options. */
TEST(test_parallel)
{
    for (int later = 0; later < 2; later++) {
        Scratch d;
        Options o = options_of(NewLRUCache(1 << 20));
        o.compression = kLZ4Compression;
        o.write_buffer_size = 4 << 20;
        o.target_file_size_base = 4 << 20;
        if (!later) {
            o.bottommost_compression = kLZ4Compression;
            o.bottommost_compression_opts.enabled = true;
            o.bottommost_compression_opts.parallel_threads = 4;
        }
        auto attached = lsm::attach(o, still(QM_LSM_ALL));
        auto db = open(o, d / "db");
        if (later)
            OK(db->SetOptions({{"compression_opts", "{parallel_threads=4;}"}}));
        for (int round = 0; round < 3; round++) {
            flush_keys(*db, 0, 8000);
            OK(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
        }
        std::string value;
        for (long i = 0; i < 8000; i++) {
            OK(db->Get(ReadOptions(), key_of(i), &value));
            CHECK(value == std::string(100, char('a' + i % 26)));
        }
        db.reset();
        CHECK(attached->stats().files > 0 && attached->stats().failures == 0);
    }
}

/* RocksDB keeps an object in the cache that calls the cache by which it was put there:
 * of a front that is gone, none may be left for the next database on the cache behind.
 */
TEST(test_entry_stats)
{
    auto cache = NewLRUCache(4 << 20);
    size_t left = 0;
    for (int again = 0; again < 2; again++) {
        std::string text;
        Options o = options_of(cache);
        Watched w(o, still(QM_LSM_ALL));
        flush_keys(*w.db, 0, 200);
        CHECK(w.db->GetProperty(DB::Properties::kBlockCacheEntryStats, &text));
    }
    cache->ApplyToAllEntries(
        [&left](const Slice &key, void *, size_t, Cache::DeleterFn) {
            static const char lasting[8] = {};
            left +=
                key.size() == 16 && memcmp(key.data(), lasting, sizeof lasting) == 0;
        },
        {});
    CHECK(left == 0);
}

TEST(test_c)
{
    rocksdb_options_t *o = rocksdb_options_create();
    rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(4 << 20);
    struct qm_lsm_config config;
    struct qm_lsm *lsm;
    struct qm_lsm_stats stats;
    char says[100] = "x", *err = nullptr;
    Scratch d;

    qm_lsm_config_init(&config);
    CHECK(config.mode == QM_LSM_ADAPTIVE && config.sample == 1 && config.share == .25);
    rocksdb_block_based_options_set_no_block_cache(t, 1);
    rocksdb_options_set_block_based_table_factory(o, t);
    CHECK(qm_lsm_attach(o, nullptr, &lsm, says, sizeof says) == QM_LSM_REFUSED && !lsm);
    CHECK(strstr(says, "no_block_cache"));
    CHECK(qm_lsm_attach(o, nullptr, &lsm, nullptr, 0) == QM_LSM_REFUSED);
    rocksdb_block_based_options_set_no_block_cache(t, 0);
    rocksdb_block_based_options_set_block_cache(t, cache);
    rocksdb_options_set_block_based_table_factory(o, t);
    rocksdb_options_set_create_if_missing(o, 1);
    size_t buffer = rocksdb_options_get_write_buffer_size(o);
    config.mode = QM_LSM_ALL;
    CHECK(qm_lsm_attach(o, &config, &lsm, says, sizeof says) == QM_LSM_WORKS && lsm);
    CHECK(!*says && rocksdb_options_get_write_buffer_size(o) == buffer);
    rocksdb_t *db = rocksdb_open(o, (d / "db").c_str(), &err);
    CHECK(!err);
    rocksdb_writeoptions_t *w = rocksdb_writeoptions_create();
    rocksdb_put(db, w, "key", 3, "value", 5, &err);
    rocksdb_flushoptions_t *f = rocksdb_flushoptions_create();
    rocksdb_flush(db, f, &err);
    CHECK(!err);
    qm_lsm_read(lsm, "key", 3);
    qm_lsm_read_family(lsm, 12345, "key", 3); /* there is none: ignored */
    allocations_left = 0;                     /* nothing is thrown into C */
    qm_lsm_tick(lsm);
    allocations_left = -1;
    qm_lsm_get_stats(lsm, &stats);
    CHECK(stats.failures == 1);
    qm_lsm_tick(lsm);
    qm_lsm_get_stats(lsm, &stats);
    CHECK(stats.files == 1 && stats.warmed == 1 && stats.reads == 1);
    qm_lsm_detach(lsm);
    rocksdb_put(db, w, "key", 3, "other", 5, &err);
    rocksdb_flush(db, f, &err);
    CHECK(!err);
    rocksdb_close(db);
    rocksdb_flushoptions_destroy(f);
    rocksdb_writeoptions_destroy(w);
    rocksdb_cache_destroy(cache);
    rocksdb_block_based_options_destroy(t);
    rocksdb_options_destroy(o);
}

/* A family from its first key to its end; returns its number. */
static unsigned make_and_drop(DB *db, lsm::Handle *handle, const Options &plain)
{
    ColumnFamilyOptions family = plain;
    ColumnFamilyHandle *column;
    unsigned number = 0;
    CHECK(handle->add_family(family, &number) == lsm::Verdict::works);
    OK(db->CreateColumnFamily(family, "one of many", &column));
    for (long i = 0; i < 100; i++)
        OK(db->Put(WriteOptions(), column, key_of(i), "value"));
    OK(db->Flush(FlushOptions(), column));
    handle->read(key_of(1), number);
    OK(db->DropColumnFamily(column));
    OK(db->DestroyColumnFamilyHandle(column));
    return number;
}

/* What is gone takes no memory, and its number is the next one's; counts stay.  A
 * reader may come late. */
TEST(test_dropped)
{
    enum { FAMILIES = 30 };
    Options o = options_of(NewLRUCache(1 << 20)), plain = o;
    Watched w(o, still(QM_LSM_ADAPTIVE));
    const uint32_t own = w.attached->stats().ranges; /* of the default family */
    for (unsigned late = 0; late < 2; late++) {
        std::atomic<bool> ends{late == 0};
        std::thread reader([&] {
            while (!ends)
                w.attached->read(key_of(2), 1);
        });
        for (unsigned i = 0; i < FAMILIES; i++) {
            uint64_t files = w.attached->stats().files,
                     reads = w.attached->stats().reads;
            CHECK(make_and_drop(w.db.get(), w.attached.handle.get(), plain) == 1);
            for (unsigned k = 0; k < 10000 && w.attached->stats().ranges > own; k++) {
                w.attached->tick();
                usleep(k > 0 ? 1000 : 0); /* RocksDB may still tell of something */
            }
            CHECK(w.attached->stats().ranges == own);
            CHECK(w.attached->stats().files == files + 1);
            CHECK(w.attached->stats().reads > reads);
        }
        ends = true;
        reader.join();
        CHECK(late || w.attached->stats().reads == FAMILIES);
    }
}

static std::set<std::string> threads()
{
    std::set<std::string> all;
    for (auto &task : std::filesystem::directory_iterator("/proc/self/task"))
        all.insert(task.path());
    return all;
}

/* The library's thread takes no signal of the program's. */
TEST(test_signals)
{
    Options o = options_of(NewLRUCache(1 << 20));
    auto before = threads();
    auto attached = lsm::attach(o);
    std::string path, line;
    unsigned long mask = 0;
    char was = 0;

    for (auto &thread : threads())
        if (before.count(thread) == 0)
            path = thread + "/status";
    for (int i = 0; i < 10000 && was != 'S'; i++) {
        usleep(1000);
        std::ifstream status(path);
        while (std::getline(status, line)) {
            (void)sscanf(line.c_str(), "State: %c", &was);
            (void)sscanf(line.c_str(), "SigBlk: %lx", &mask);
        }
    }
    CHECK(was == 'S');
    CHECK(mask >> (SIGTERM - 1) & 1 && mask >> (SIGINT - 1) & 1);
    sigset_t own;
    CHECK(pthread_sigmask(SIG_SETMASK, nullptr, &own) == 0);
    CHECK(!sigismember(&own, SIGTERM));
}

int main(int argc, char **argv)
{
    return testing::run(argc, argv);
}
