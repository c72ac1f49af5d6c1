/* SPDX-License-Identifier: BSD-3-Clause */
/* When a compaction's blocks enter the cache: at its end, before its files can be read,
 * and not while it still runs. */
#include "tests/live/lsm/testing.hpp"

#include <atomic>
#include <mutex>

#include <rocksdb/convenience.h>
#include <rocksdb/listener.h>
#include <rocksdb/merge_operator.h>

using namespace rocksdb;
using namespace testing;
namespace lsm = quickmine::lsm;

/* Behind the library's listener: what was warmed when. */
struct Observer : EventListener {
    const lsm::Attached *attached = nullptr;
    DB *db = nullptr;
    std::mutex lock;
    bool cancel = false;  /* the database's work, at the first file of a compaction */
    uint64_t flushed = 0; /* blocks warmed when the last flush's file was there */
    uint64_t files = 0, early = 0; /* of compactions; those with more warmed by then */
    uint64_t ends = 0;             /* of subcompactions */
    uint64_t last = 0, warmed_at_end = 0, blocks_at_end = 0;
    bool ended = false;

    uint64_t warmed()
    {
        return (*attached)->stats().warmed;
    }
    void OnTableFileCreated(const TableFileCreationInfo &info) override
    {
        std::lock_guard<std::mutex> guard(lock);
        if (info.reason == TableFileCreationReason::kFlush)
            last = flushed = warmed();
        if (info.reason != TableFileCreationReason::kCompaction || !info.status.ok())
            return;
        files++;
        early += warmed() > last;
        last = warmed();
        if (cancel)
            CancelAllBackgroundWork(db, false);
    }
    void OnSubcompactionCompleted(const SubcompactionJobInfo &) override
    {
        std::lock_guard<std::mutex> guard(lock);
        lsm::Stats s = (*attached)->stats();
        CHECK(!ended);
        ends++;
        last = warmed_at_end = s.warmed;
        blocks_at_end = s.blocks;
    }
    void OnCompactionCompleted(DB *, const CompactionJobInfo &) override
    {
        std::lock_guard<std::mutex> guard(lock);
        CHECK(warmed() == last); /* nothing comes later */
        ended = true;
    }
};

/* Two files of a flush, and a compaction of both into several. */
static void compact(Options o, lsm::Config c, Observer &seen)
{
    Scratch d;
    o.disable_auto_compactions = true;
    auto attached = lsm::attach(o, c);
    std::shared_ptr<Observer> observer(&seen, [](Observer *) {});
    seen.attached = &attached;
    o.listeners.push_back(observer);
    auto db = open(o, d / "db");
    for (long first = 0; first < 2; first++) {
        flush_keys(*db, first, 2000, 2);
        CHECK(seen.flushed > 100 && seen.flushed == attached->stats().blocks);
    }
    OK(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
    CHECK(seen.ended && seen.files >= 4);
    lsm::Stats s = attached->stats();
    CHECK(s.warmed == s.blocks && s.failures == 0);
    CHECK(seen.warmed_at_end == s.warmed && seen.blocks_at_end == s.blocks);
    CHECK(blocks_read([&] { read_keys(*db, 0, 2000); }) == 0);
    CHECK(attached->stats().misses == 0 && attached->stats().hits == 2000);
}

static Options with_room()
{
    Options o = options_of(NewLRUCache(8 << 20));
    o.write_buffer_size = 1 << 20;
    return o;
}

/* Nothing of it while it runs; all before its version is there. */
TEST(test_end)
{
    Observer seen;
    compact(with_room(), still(QM_LSM_ALL), seen);
    CHECK(seen.early == 0 && seen.ends == 1);
}

/* Each part of a compaction has files of its own. */
TEST(test_parts)
{
    Observer seen;
    Options o = with_room();
    o.max_subcompactions = 4;
    o.target_file_size_base = 16 << 10;
    compact(o, still(QM_LSM_ALL), seen);
    CHECK(seen.ends > 1);
}

/* Few blocks may wait: files beyond are warmed when they are there. */
TEST(test_bound)
{
    Observer seen;
    auto c = still(QM_LSM_ALL);
    c.blocks = 4 * 150; /* a file has some 60 blocks */
    compact(with_room(), c, seen);
    CHECK(seen.early >= 1 && seen.early == seen.files - 2);
}

/* A compaction that the database's end interrupts leaves nothing behind: a flush and a
 * compaction by the same thread are warmed. */
TEST(test_interrupted)
{
    Scratch d;
    Options o = with_room();
    o.disable_auto_compactions = true;
    auto attached = lsm::attach(o, still(QM_LSM_ALL));
    auto seen = std::make_shared<Observer>();
    seen->attached = &attached;
    o.listeners.push_back(seen);
    auto db = open(o, d / "db");
    seen->db = db.get();
    for (long first = 0; first < 2; first++) {
        flush_keys(*db, first, 2000, 2);
    }
    uint64_t before = attached->stats().warmed;
    seen->cancel = true;
    CHECK(!db->CompactRange(CompactRangeOptions(), nullptr, nullptr).ok());
    seen->db = nullptr;
    db.reset();
    CHECK(seen->files >= 1 && seen->ends == 0 && attached->stats().warmed == before);

    seen->cancel = false;
    db = open(o, d / "db");
    o.env->SetBackgroundThreads(0, Env::HIGH); /* compactions' threads flush */
    flush_keys(*db, 3000, 3100);
    o.env->SetBackgroundThreads(1, Env::HIGH);
    CHECK(attached->stats().warmed > before);
    CHECK(blocks_read([&] { read_keys(*db, 3000, 3100); }) == 0);
    OK(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
    CHECK(seen->ends == 1 && blocks_read([&] { read_keys(*db, 0, 2000); }) == 0);
    CHECK(attached->stats().failures == 0);
}

struct Refuses : AssociativeMergeOperator {
    const char *Name() const override
    {
        return "refuses";
    }
    bool Merge(const Slice &, const Slice *, const Slice &, std::string *,
               Logger *) const override
    {
        return false;
    }
};

/* The files of a compaction that fails are of no use. */
TEST(test_failed)
{
    Scratch d;
    Options o = with_room();
    o.disable_auto_compactions = true;
    o.merge_operator = std::make_shared<Refuses>();
    auto attached = lsm::attach(o, still(QM_LSM_ALL));
    auto seen = std::make_shared<Observer>();
    seen->attached = &attached;
    o.listeners.push_back(seen);
    auto db = open(o, d / "db");
    for (long first = 0; first < 2; first++) {
        write_keys(*db, first, 2000, 2);
        if (first == 1)
            OK(db->Merge(WriteOptions(), key_of(1990), "+"));
        OK(db->Flush(FlushOptions()));
    }
    uint64_t before = attached->stats().warmed;
    CHECK(!db->CompactRange(CompactRangeOptions(), nullptr, nullptr).ok());
    CHECK(seen->files >= 1 && attached->stats().warmed == before);
    CHECK(attached->stats().failures == 0);
}

int main(int argc, char **argv)
{
    return testing::run(argc, argv);
}
