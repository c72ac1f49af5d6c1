/* SPDX-License-Identifier: BSD-3-Clause */
/* What is warm after a flush and a compaction, in each mode; what leaves the cache;
 * what ends warming; several families and databases on a cache. */
#include <rocksdb/file_system.h> /* has functions named OK */

#include "tests/live/lsm/testing.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>

#include <dirent.h>
#include <unistd.h>

#include <rocksdb/env.h>
#include <rocksdb/listener.h>
#include <rocksdb/memory_allocator.h>

using namespace rocksdb;
using namespace testing;
namespace lsm = quickmine::lsm;

static size_t entries(Cache &cache)
{
    size_t n = 0;
    cache.ApplyToAllEntries([&](const Slice &key, void *, size_t,
                                Cache::DeleterFn) { n += key.size() == 16; },
                            Cache::ApplyToAllEntriesOptions());
    return n;
}

/* A new file's blocks are in the cache before anybody can read them: no read after a
 * flush or compaction reads a block. */
static void warm_all(Options o, lsm::Config c)
{
    Scratch d;
    auto attached = lsm::attach(o, c);
    CHECK(attached && attached.verdict == lsm::Verdict::works && attached.says.empty());
    auto db = open(o, d / "db");
    flush_keys(*db, 0, 400);
    CHECK(blocks_read([&] { read_keys(*db, 0, 400); }) == 0);
    flush_keys(*db, 0, 400, 2);
    OK(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
    CHECK(blocks_read([&] { read_keys(*db, 0, 400); }) == 0);
    lsm::Stats s = attached->stats();
    CHECK(s.files >= 3 && s.warmed == s.blocks && s.failures == 0 && s.cut == 0);
    CHECK(s.hits > 0 && s.misses == 0 && s.used > 0 && s.late == 0);
    CHECK(s.warm_us_max > 0 && s.warm_us >= s.warm_us_max);
    /* The old files' blocks are gone, and with them their memory. */
    CHECK(s.erased >= 50);
}

TEST(test_all)
{
    auto cache = NewLRUCache(8 << 20);
    warm_all(options_of(cache), still(QM_LSM_ALL));
    warm_all(options_of(cache), still(QM_LSM_ADAPTIVE)); /* there is room */
    Options o = options_of(cache);
    change_table(
        o, [](BlockBasedTableOptions &t) { t.cache_index_and_filter_blocks = true; });
    warm_all(o, still(QM_LSM_ALL));
    o.prefix_extractor.reset(NewFixedPrefixTransform(6));
    warm_all(o, still(QM_LSM_ALL));
    for (auto type : {kSnappyCompression, kLZ4Compression, kZSTD}) {
        o = options_of(cache);
        o.compression = type;
        warm_all(o, still(QM_LSM_ALL));
    }
}

TEST(test_partitioned)
{
    auto cache = NewLRUCache(8 << 20);
    for (bool in_cache : {false, true}) {
        Options o = options_of(cache);
        change_table(o, [in_cache](BlockBasedTableOptions &t) {
            t.index_type = BlockBasedTableOptions::kTwoLevelIndexSearch;
            t.partition_filters = true;
            t.metadata_block_size = 256;
            t.cache_index_and_filter_blocks = in_cache;
        });
        Watched w(o, still(QM_LSM_ALL));
        flush_keys(*w.db, 0, 400);
        read_keys(*w.db, 0, 400);
        lsm::Stats s = w.attached->stats();
        /* Data blocks hit, and are told from the parts of the index. */
        CHECK(s.warmed == s.blocks && s.hits == 400 && s.misses == 0 &&
              s.failures == 0);
    }
}

/* A dictionary that is in the cache is not taken for data, also if it came with a later
 * change of options; with parts of an index or without. */
TEST(test_dictionary)
{
    for (int which = 0; which < 4; which++) {
        Options o = options_of(NewLRUCache(8 << 20));
        o.compression = kZSTD;
        if (which % 2 == 0)
            o.compression_opts.max_dict_bytes = 4096;
        change_table(o, [which](BlockBasedTableOptions &t) {
            t.cache_index_and_filter_blocks = true;
            if (which >= 2)
                t.index_type = BlockBasedTableOptions::kTwoLevelIndexSearch;
        });
        Watched w(o, still(QM_LSM_ALL));
        if (which % 2 == 1)
            OK(w.db->SetOptions({{"compression_opts", "{max_dict_bytes=4096;}"}}));
        flush_keys(*w.db, 0, 400);
        read_keys(*w.db, 0, 400);
        lsm::Stats s = w.attached->stats();
        /* RocksDB tells of a dictionary's blocks late: with a later change of options
         * their bounds are not known, but they are told from the dictionary. */
        CHECK(s.hits + s.misses == 400 && s.failures == 0);
        CHECK(which % 2 == 1 || s.misses == 0);
    }
}

/* Without warming the same reads miss; erase removes what died. */
TEST(test_off)
{
    for (auto mode : {QM_LSM_OFF, QM_LSM_ERASE, QM_LSM_FLUSH}) {
        auto cache = NewLRUCache(8 << 20);
        Options o = options_of(cache);
        Watched w(o, still(mode));
        flush_keys(*w.db, 0, 400);
        CHECK((blocks_read([&] { read_keys(*w.db, 0, 400); }) == 0) ==
              (mode == QM_LSM_FLUSH));
        size_t before = entries(*cache);
        OK(w.db->CompactRange(
            [] {
                CompactRangeOptions force;
                force.bottommost_level_compaction = BottommostLevelCompaction::kForce;
                return force;
            }(),
            nullptr, nullptr));
        CHECK(mode == QM_LSM_OFF ? entries(*cache) == before : entries(*cache) < 5);
        CHECK(blocks_read([&] { read_keys(*w.db, 0, 400); }) > 0);
        lsm::Stats s = w.attached->stats();
        CHECK(s.level_blocks[0] > 30 && s.blocks > s.level_blocks[0]);
        CHECK(s.warmed == (mode == QM_LSM_FLUSH ? s.level_blocks[0] : 0));
    }
}

/* Only what is read is warmed, whether look-ups tell or the program. */
TEST(test_selective)
{
    for (bool keyed : {false, true}) {
        auto cache = NewLRUCache(8 << 20);
        Options o = options_of(cache);
        Watched w(o, still(QM_LSM_SELECTIVE));
        o.disable_auto_compactions = true;
        flush_keys(*w.db, 0, 400);
        OK(w.db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
        for (int round = 0; round < 4; round++) {
            if (keyed)
                for (long i = 100; i < 160; i++)
                    w.attached->read(key_of(i));
            for (int again = 0; again < 3; again++)
                read_keys(*w.db, 100, 160);
            if (keyed) /* these are read, too, but not told */
                read_keys(*w.db, 300, 360);
            w.attached->tick();
        }
        lsm::Stats before = w.attached->stats();
        flush_keys(*w.db, 0, 400, 3);
        OK(w.db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
        lsm::Stats after = w.attached->stats();
        CHECK(after.warmed > before.warmed);
        CHECK(after.warmed - before.warmed < (after.blocks - before.blocks) / 2);
        CHECK(blocks_read([&] { read_keys(*w.db, 105, 155); }) == 0);
        CHECK(blocks_read([&] { read_keys(*w.db, 200, 290); }) > 3);
        CHECK(after.writes >= 134);
    }
}

/* Bounds of bytes and of a share of the cache end warming; the file is whole all the
 * same. */
TEST(test_bounds)
{
    for (int which = 0; which < 2; which++) {
        auto cache = NewLRUCache(1 << 20);
        Options o = options_of(cache);
        auto c = still(QM_LSM_ALL);
        if (which == 0)
            c.warm_bytes = 4096;
        else
            c.share = .004;
        Watched w(o, c);
        flush_keys(*w.db, 0, 400);
        lsm::Stats s = w.attached->stats();
        CHECK(s.cut == 1 && s.warmed >= 3 && s.warmed <= 5 && s.blocks > 30);
        read_keys(*w.db, 0, 400);
    }
}

/* No time at all: one block, whose reading cannot be ended, at most.  A stall of writes
 * has a bound of its own, for the family that it is of. */
TEST(test_time)
{
    auto cache = NewLRUCache(8 << 20);
    Options o = options_of(cache), more = options_of(cache);
    auto c = still(QM_LSM_ALL);
    c.warm_ms = 0;
    {
        Scratch d;
        Options o2 = options_of(cache);
        auto attached = lsm::attach(o2, c);
        auto db = open(o2, d / "db");
        flush_keys(*db, 0, 400);
        CHECK(attached->stats().cut == 1 && attached->stats().warmed <= 1);
    }
    c.warm_ms = 600000;
    c.stall_ms = 0;
    Scratch d;
    auto attached = lsm::attach(o, c);
    CHECK(attached->add_family(more, nullptr) == lsm::Verdict::works);
    o.create_missing_column_families = true;
    DB *raw;
    std::vector<ColumnFamilyHandle *> handles;
    OK(DB::Open(o, d / "db", {{"default", o}, {"more", more}}, &handles, &raw));
    std::unique_ptr<DB> db(raw);
    auto stall = [&](const char *name, WriteStallCondition from,
                     WriteStallCondition to) {
        WriteStallInfo info;
        info.cf_name = name;
        info.condition.prev = from;
        info.condition.cur = to;
        o.listeners.back()->OnStallConditionsChanged(info);
    };
    auto cuts = [&](ColumnFamilyHandle *family) {
        uint64_t before = attached->stats().cut;
        for (long i = 0; i < 400; i++)
            OK(db->Put(WriteOptions(), family, key_of(i), std::string(100, 'z')));
        OK(db->Flush(FlushOptions(), family));
        return attached->stats().cut - before;
    };
    const auto normal = WriteStallCondition::kNormal,
               delayed = WriteStallCondition::kDelayed,
               stopped = WriteStallCondition::kStopped;
    OK(db->SetOptions(handles[0], {{"disable_auto_compactions", "true"}}));
    OK(db->SetOptions(handles[1], {{"disable_auto_compactions", "true"}}));
    CHECK(cuts(handles[0]) == 0);
    stall("more", normal, delayed);
    CHECK(cuts(handles[0]) == 0 && cuts(handles[1]) == 1);
    stall("default", normal, stopped);
    stall("more", delayed, normal);
    CHECK(cuts(handles[0]) == 1 && cuts(handles[1]) == 0);
    stall("default", stopped, normal);
    CHECK(cuts(handles[0]) == 0);
    for (auto *h : handles)
        OK(db->DestroyColumnFamilyHandle(h));
}

/* Reads of data behind the first KiB, from files that are opened while `armed`, fail.
 */
struct Faults : FileSystemWrapper {
    struct File : FSRandomAccessFileOwnerWrapper {
        using FSRandomAccessFileOwnerWrapper::FSRandomAccessFileOwnerWrapper;
        IOStatus Read(uint64_t offset, size_t n, const IOOptions &o, Slice *result,
                      char *scratch, IODebugContext *debug) const override
        {
            if (offset >= failing_from && offset < failing_to)
                return IOStatus::IOError("a fault of the test's");
            return FSRandomAccessFileOwnerWrapper::Read(offset, n, o, result, scratch,
                                                        debug);
        }
        uint64_t failing_from = 0, failing_to = 0;
    };
    std::atomic<uint64_t> from{0}, to{0};
    Faults() : FileSystemWrapper(FileSystem::Default())
    {
    }
    const char *Name() const override
    {
        return "faults";
    }
    IOStatus NewRandomAccessFile(const std::string &name, const FileOptions &o,
                                 std::unique_ptr<FSRandomAccessFile> *result,
                                 IODebugContext *debug) override
    {
        std::unique_ptr<FSRandomAccessFile> real;
        IOStatus s = FileSystemWrapper::NewRandomAccessFile(name, o, &real, debug);
        if (!s.ok())
            return s;
        auto file = std::make_unique<File>(std::move(real));
        file->failing_from = from;
        file->failing_to = to;
        *result = std::move(file);
        return s;
    }
};

/* A block that cannot be read is a failure, whether it is the first or a later one; it
 * is not counted as warmed, and the database does not notice. */
TEST(test_read_error)
{
    for (uint64_t from : {0, 8 << 10}) {
        auto faults = std::make_shared<Faults>();
        auto env = NewCompositeEnv(faults);
        Options o = options_of(NewLRUCache(8 << 20));
        o.env = env.get();
        Watched w(o, still(QM_LSM_ALL));
        write_keys(*w.db, 0, 400);
        faults->from = from;
        faults->to = 40 << 10; /* 400 keys are some 46 KiB */
        OK(w.db->Flush(FlushOptions()));
        faults->to = 0;
        lsm::Stats s = w.attached->stats();
        CHECK(s.failures == 1 && s.cut == 0 && s.blocks > 30);
        CHECK(from == 0 ? s.warmed == 0 : s.warmed >= 3 && s.warmed <= 8);
        w.db.reset();
        w.db = open(o, w.d / "db");
        read_keys(*w.db, 0, 400);
    }
}

/* Blocks that a cache with a strict limit has no room for are a cut, and not warmed. */
TEST(test_strict)
{
    for (size_t room : {600, 5000}) {
        auto cache = NewLRUCache(64 << 10, 0, true);
        Options o = options_of(cache);
        auto c = still(QM_LSM_ALL);
        Cache::Handle *pinned = nullptr;
        c.share = 1;
        Watched w(o, c);
        write_keys(*w.db, 0, 400);
        OK(cache->Insert("pinned", nullptr, (64 << 10) - room - cache->GetUsage(),
                         nullptr, &pinned));
        OK(w.db->Flush(FlushOptions()));
        cache->Release(pinned, true);
        lsm::Stats s = w.attached->stats();
        CHECK(s.failures == 0 && s.files == 1);
        CHECK(room == 600 ? s.cut == 1 && s.warmed == 0
                          : s.cut == 0 && s.warmed == s.blocks);
        read_keys(*w.db, 0, 400);
    }
}

/* Frees of blocks ask the library for its counts, in another thread: that waits if the
 * freeing thread holds the library's lock. */
struct Asking : MemoryAllocator {
    const char *Name() const override
    {
        return "asking";
    }
    void *Allocate(size_t size) override
    {
        return malloc(size);
    }
    void Deallocate(void *p) override
    {
        free(p);
        if (!armed.exchange(false))
            return;
        auto answer = std::async(std::launch::async, [this] { ask(); });
        CHECK(answer.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
        asked++;
    }
    std::atomic<bool> armed{false};
    std::atomic<int> asked{0};
    std::function<void()> ask;
};

/* Cold blocks of a compaction's inputs leave a full cache; those that are read stay.
 * No lock is held meanwhile. */
TEST(test_cold)
{
    auto asking = std::make_shared<Asking>();
    auto cache = NewLRUCache(64 << 10, 0, false, .5, asking);
    Options o = options_of(cache);
    o.disable_auto_compactions = true;
    Watched w(o, still(QM_LSM_SELECTIVE));
    asking->ask = [&] { w.attached->stats(); };
    flush_keys(*w.db, 0, 800);
    read_keys(*w.db, 0, 800);
    for (int i = 0; i < 12; i++) {
        read_keys(*w.db, 100, 140);
        w.attached->tick();
    }
    CHECK(cache->GetUsage() > cache->GetCapacity() * 9 / 10);
    uint64_t before = w.attached->stats().blocks;
    CompactRangeOptions force;
    force.bottommost_level_compaction = BottommostLevelCompaction::kForce;
    asking->armed = true;
    OK(w.db->CompactRange(force, nullptr, nullptr));
    CHECK(asking->asked == 1);
    /* The hot ones were not among them, though they died a moment later. */
    CHECK(w.attached->stats().cold > 10 && w.attached->stats().cold + 4 <= before);
    CHECK(blocks_read([&] { read_keys(*w.db, 100, 140); }) == 0);
}

static unsigned deleted_files_open()
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    char to[4096];
    CHECK(dir);
    while (dirent *e = readdir(dir)) {
        ssize_t len = readlinkat(dirfd(dir), e->d_name, to, sizeof to - 1);
        if (len > 0) {
            to[len] = 0;
            n += std::string(to).find(".sst (deleted)") != std::string::npos;
        }
    }
    closedir(dir);
    return n;
}

/* Two families and a second database on one cache: each has its own keys, and no file
 * stays open that RocksDB has deleted. */
TEST(test_several)
{
    auto cache = NewLRUCache(8 << 20);
    Scratch d;
    Options o = options_of(cache), o2 = options_of(cache), family = options_of(cache);
    auto one = lsm::attach(o, still(QM_LSM_ALL)),
         two = lsm::attach(o2, still(QM_LSM_ALL));
    unsigned number = 0;
    std::string says;
    CHECK(one->add_family(family, &number, &says) == lsm::Verdict::works &&
          number == 1);
    Options other = options_of(NewLRUCache(1 << 20));
    CHECK(one->add_family(other, nullptr, &says) == lsm::Verdict::refused);
    CHECK(says.find("another block cache") != says.npos);
    o.create_missing_column_families = true;
    DB *raw;
    std::vector<ColumnFamilyHandle *> handles;
    OK(DB::Open(o, d / "one", {{"default", o}, {"more", family}}, &handles, &raw));
    std::unique_ptr<DB> db(raw), db2 = open(o2, d / "two");
    for (int round = 0; round < 5; round++) {
        write_keys(*db, 0, 300);
        write_keys(*db2, 1000, 1300);
        for (long i = 500; i < 800; i++)
            OK(db->Put(WriteOptions(), handles[1], key_of(i), std::string(100, 'z')));
        OK(db->Flush(FlushOptions(), handles));
        OK(db2->Flush(FlushOptions()));
    }
    OK(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
    CHECK(deleted_files_open() == 0);
    std::string value;
    CHECK(blocks_read([&] {
              read_keys(*db, 0, 300);
              read_keys(*db2, 1000, 1300);
              for (long i = 500; i < 800; i++)
                  OK(db->Get(ReadOptions(), handles[1], key_of(i), &value));
          }) == 0);
    lsm::Stats a = one->stats(), b = two->stats();
    CHECK(a.hits >= 600 && b.hits >= 300 && a.misses + b.misses == 0);
    one->detach();
    flush_keys(*db, 0, 300);
    CHECK(one->stats().warmed == a.warmed); /* the database goes on without */
    CHECK(blocks_read([&] { read_keys(*db, 0, 300); }) > 0);
    for (auto *h : handles)
        OK(db->DestroyColumnFamilyHandle(h));
    db.reset();
    two.handle.reset(); /* before its database */
    flush_keys(*db2, 0, 100);
}

/* Files of deletions and of ranges of deletions, and a snapshot that keeps them. */
TEST(test_tombstones)
{
    auto cache = NewLRUCache(8 << 20);
    Options o = options_of(cache);
    o.disable_auto_compactions = true;
    Watched w(o, still(QM_LSM_ALL));
    flush_keys(*w.db, 0, 300);
    const Snapshot *snapshot = w.db->GetSnapshot();
    for (long i = 0; i < 300; i++)
        OK(w.db->Delete(WriteOptions(), key_of(i)));
    OK(w.db->Flush(FlushOptions()));
    OK(w.db->DeleteRange(WriteOptions(), w.db->DefaultColumnFamily(), key_of(0),
                         key_of(150)));
    OK(w.db->Flush(FlushOptions())); /* no point key at all */
    OK(w.db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
    ReadOptions then;
    then.snapshot = snapshot;
    std::string value;
    for (long i = 0; i < 300; i++) {
        OK(w.db->Get(then, key_of(i), &value));
        CHECK(w.db->Get(ReadOptions(), key_of(i), &value).IsNotFound());
    }
    w.db->ReleaseSnapshot(snapshot);
    CHECK(w.attached->stats().failures == 0);
}

/* What is in use when an interval ends does not change how long a block seems to stay.
 */
TEST(test_pinned)
{
    double window[2];

    for (int pinned = 0; pinned < 2; pinned++) {
        auto cache = NewLRUCache(64 << 10, 0);
        Cache::Handle *handle = nullptr;
        uint64_t seed = 3;
        Options o = options_of(cache);
        o.write_buffer_size = 4 << 20; /* one file, always the same */
        Watched w(o, still(QM_LSM_ADAPTIVE));
        if (pinned) {
            OK(cache->Insert("pinned", nullptr, 4000, nullptr, &handle));
            cache->SetCapacity((64 << 10) + cache->GetPinnedUsage());
        }
        flush_keys(*w.db, 0, 1600);
        for (int i = 0; i < 12; i++) {
            for (int k = 0; k < 400; k++)
                read_keys(*w.db, static_cast<long>(rnd(&seed) % 1600), 1600, 1600);
            w.attached->tick();
        }
        window[pinned] = w.attached->stats().window;
        w.db.reset();
        if (handle)
            cache->Release(handle, true);
    }
    CHECK(window[0] > .1 && std::abs(window[0] - window[1]) < .1 * window[0]);
}

int main(int argc, char **argv)
{
    return testing::run(argc, argv);
}
