/* SPDX-License-Identifier: BSD-3-Clause */
/* Contents are the same with and without: random operations against a shadow, in all
 * styles of compaction; threads; detach meanwhile; a process that is killed.
 *
 * lsm-live-contents [OPERATIONS [SEED]] */
#include "tests/live/lsm/testing.hpp"

#include <atomic>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <rocksdb/compaction_filter.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/sst_file_writer.h>

using namespace rocksdb;
using namespace testing;
namespace lsm = quickmine::lsm;
using Shadow = std::map<std::string, std::string>;

struct Append : AssociativeMergeOperator {
    const char *Name() const override
    {
        return "append";
    }
    bool Merge(const Slice &, const Slice *old, const Slice &with, std::string *value,
               Logger *) const override
    {
        *value = (old ? old->ToString() : "") + with.ToString();
        return true;
    }
};

/* Values that begin with '!' are gone for readers, whenever a compaction sees them. */
struct Dropper : CompactionFilter {
    const char *Name() const override
    {
        return "filter";
    }
    bool Filter(int, const Slice &, const Slice &value, std::string *,
                bool *) const override
    {
        return !value.empty() && value[0] == '!';
    }
};

static Options style_of(int style, std::shared_ptr<Cache> cache)
{
    static Dropper filter;
    Options o = options_of(std::move(cache));
    o.write_buffer_size = 32 << 10;
    switch (style) {
    case 0:
        o.merge_operator = std::make_shared<Append>();
        break;
    case 1:
        o.compaction_style = kCompactionStyleUniversal;
        o.compression = kLZ4Compression;
        break;
    case 2: /* drops the oldest files: what is found must still be right */
        o.compaction_style = kCompactionStyleFIFO;
        o.compaction_options_fifo.max_table_files_size = 512 << 10;
        o.compaction_options_fifo.allow_compaction = true;
        break;
    case 3:
        o.prefix_extractor.reset(NewFixedPrefixTransform(7));
        o.compaction_filter = &filter;
        o.max_subcompactions = 3;
        break;
    case 4:
        o.ttl = 1;
        o.periodic_compaction_seconds = 1;
        o.level_compaction_dynamic_level_bytes = true;
        o.enable_blob_files = true;
        o.min_blob_size = 300;
        break;
    }
    return o;
}

static void compare_all(DB &db, const Shadow &shadow, const ReadOptions &read,
                        bool exact)
{
    std::unique_ptr<Iterator> it(db.NewIterator(read));
    auto s = shadow.begin();
    for (it->SeekToFirst(); it->Valid(); it->Next()) {
        std::string key = it->key().ToString(), value = it->value().ToString();
        if (value[0] == '!')
            continue;
        while (s != shadow.end() && (s->second[0] == '!' || (!exact && s->first < key)))
            ++s;
        CHECK(s != shadow.end() && s->first == key && s->second == value);
        ++s;
    }
    OK(it->status());
    while (exact && s != shadow.end() && s->second[0] == '!')
        ++s;
    CHECK(!exact || s == shadow.end());
}

/* Mode leaper's: hot is what was read in the last interval. */
static std::string model_in(const Scratch &d)
{
    std::string path = d / "model";
    std::ofstream file(path);
    file << "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\n"
            "max_feature_idx=17\nobjective=binary sigmoid:1\n\nTree=0\nnum_leaves=2\n"
            "num_cat=0\nsplit_feature=0\nthreshold=0.5\ndecision_type=2\n"
            "left_child=-1\nright_child=-2\nleaf_value=-3 3\nis_linear=0\n\n\n"
            "end of trees\n\n";
    CHECK(file.flush().good());
    return path;
}

static void exercise(int style, qm_lsm_mode mode, long operations, uint64_t seed)
{
    auto cache = NewLRUCache(200 << 10, 1);
    Options o = style_of(style, cache);
    bool exact = style != 2;
    Scratch d;
    Shadow shadow, then;
    const Snapshot *snapshot = nullptr;
    auto c = still(mode);
    std::string model = model_in(d);
    if (mode == QM_LSM_LEAPER)
        c.model = model.c_str();
    auto attached = lsm::attach(o, c);
    CHECK(attached);
    auto db = open(o, d / "db");
    WriteOptions write;
    for (long i = 0; i < operations; i++) {
        std::string key = key_of(static_cast<long>(rnd(&seed) % 2000)), found;
        unsigned kind = rnd(&seed) % 1000;
        std::string value(1 + rnd(&seed) % 400, static_cast<char>('a' + i % 26));
        if (style == 3 && rnd(&seed) % 16 == 0)
            value[0] = '!';
        if (kind < 500) {
            OK(db->Put(write, key, value));
            shadow[key] = value;
        } else if (kind < 560) {
            OK(db->Delete(write, key));
            shadow.erase(key);
        } else if (kind < 600 && style == 0) {
            OK(db->Merge(write, key, "+"));
            shadow[key] += "+";
        } else if (kind >= 600 && kind < 603 && style != 2) {
            std::string end =
                key_of(atol(key.c_str() + 3) + 1 + static_cast<long>(rnd(&seed) % 40));
            OK(db->DeleteRange(write, db->DefaultColumnFamily(), key, end));
            shadow.erase(shadow.lower_bound(key), shadow.lower_bound(end));
        } else if (kind >= 603 && kind < 606 && style != 1 && style != 2) {
            /* Not under universal compaction: RocksDB 7.8.3 then reports a corruption
             * of its sequence numbers, also without this library. */
            SstFileWriter writer(EnvOptions(), o); /* with the attached options, too */
            std::string path = d / "ingest.sst";
            long first = atol(key.c_str() + 3);
            OK(writer.Open(path));
            for (long k = first; k < first + 50; k += 2) {
                OK(writer.Put(key_of(k), value));
                shadow[key_of(k)] = value;
            }
            OK(writer.Finish());
            IngestExternalFileOptions move;
            move.move_files = true;
            OK(db->IngestExternalFile({path}, move));
        } else if (kind >= 606 && kind < 608) {
            OK(db->Flush(FlushOptions()));
        } else if (kind == 608) {
            OK(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
        } else if (kind == 609 && style != 3 &&
                   exact) { /* a filter passes over these */
            if (snapshot) {
                ReadOptions read;
                read.snapshot = snapshot;
                compare_all(*db, then, read, exact);
                db->ReleaseSnapshot(snapshot);
                snapshot = nullptr;
            } else {
                snapshot = db->GetSnapshot();
                then = shadow;
            }
        } else if (kind > 609 && kind < 615) {
            attached->tick();
        } else if (kind >= 615 && kind < 625) {
            std::unique_ptr<Iterator> it(db->NewIterator(ReadOptions()));
            auto s = shadow.lower_bound(key);
            it->Seek(key);
            for (int k = 0; exact && style != 3 && k < 10 && s != shadow.end();
                 k++, ++s, it->Next()) {
                /* with a prefix extractor, order is promised inside a prefix alone */
                CHECK(it->Valid() && it->key() == s->first && it->value() == s->second);
            }
        } else if (kind == 999 && i % 3 == 0) {
            if (snapshot)
                db->ReleaseSnapshot(snapshot);
            snapshot = nullptr;
            db.reset(); /* as a program that ends: what is not flushed is in the log */
            db = open(o, d / "db");
        } else {
            Status s = db->Get(ReadOptions(), key, &found);
            CHECK(s.ok() || s.IsNotFound());
            auto in = shadow.find(key);
            if (in == shadow.end() || in->second[0] == '!')
                CHECK(!s.ok() || found[0] == '!');
            else
                CHECK(s.ok() ? found == in->second : !exact);
        }
    }
    ReadOptions all;
    all.total_order_seek = true;
    compare_all(*db, shadow, all, exact);
    if (snapshot)
        db->ReleaseSnapshot(snapshot);
    lsm::Stats s = attached->stats();
    CHECK(s.failures == 0 && (operations < 6000 || s.files > 5));
    CHECK((mode != QM_LSM_ALL && mode != QM_LSM_LEAPER) || operations < 1000 ||
          s.warmed > 0);
}

/* Eight threads on keys of their own, and one that ends intervals; one detaches. */
static void threads(bool detach)
{
    auto cache = NewLRUCache(300 << 10, 2);
    Options o = options_of(cache);
    Scratch d;
    auto c = still(QM_LSM_ADAPTIVE);
    c.interval_ms = 3;
    auto attached = lsm::attach(o, c);
    auto db = open(o, d / "db");
    std::atomic<int> running{8};
    std::vector<std::thread> all;
    for (int t = 0; t < 8; t++)
        all.emplace_back([&, t] {
            uint64_t seed = static_cast<uint64_t>(t) + 99;
            Shadow shadow;
            std::string found;
            for (int i = 0; i < 4000; i++) {
                std::string key =
                    key_of(t * 1000 + static_cast<long>(rnd(&seed) % 500));
                if (rnd(&seed) % 3 == 0) {
                    std::string value(1 + rnd(&seed) % 200, static_cast<char>('a' + t));
                    OK(db->Put(WriteOptions(), key, value));
                    shadow[key] = value;
                } else {
                    Status s = db->Get(ReadOptions(), key, &found);
                    auto in = shadow.find(key);
                    if (t % 2)
                        attached->read(key);
                    CHECK(in == shadow.end() ? s.IsNotFound()
                                             : s.ok() && found == in->second);
                }
                if (detach && t == 0 && i == 2000)
                    attached->detach();
            }
            running--;
        });
    while (running > 0) {
        attached->stats();
        attached->tick();
        std::this_thread::yield();
    }
    for (auto &t : all)
        t.join();
    db.reset();
    CHECK(attached->stats().failures == 0);
}

[[noreturn]] static void write_for_ever(const std::string &path, uint64_t s, int fd)
{
    Options o = options_of(NewLRUCache(200 << 10));
    o.write_buffer_size = 16 << 10;
    auto c = still(QM_LSM_ADAPTIVE);
    c.interval_ms = 2;
    auto attached = lsm::attach(o, c);
    auto db = open(o, path + "/db");
    std::string value;
    for (;;) { /* the log is written before the byte: a kill loses nothing */
        std::string key = key_of(static_cast<long>(rnd(&s) % 1000));
        OK(db->Put(WriteOptions(), key, key + std::to_string(s)));
        CHECK(write(fd, "", 1) == 1);
        db->Get(ReadOptions(), key_of(static_cast<long>(s % 1000)), &value);
    }
}

/* Killed while it writes, flushes and compacts: what was acknowledged is there. */
static void killed(uint64_t seed)
{
    Scratch d;
    Shadow shadow;
    for (int round = 0; round < 4; round++) {
        int pipes[2];
        CHECK(pipe(pipes) == 0);
        pid_t pid = fork();
        CHECK(pid >= 0);
        uint64_t s = seed + static_cast<uint64_t>(round);
        if (pid == 0) { /* RocksDB's threads do not survive a fork: begin anew */
            std::string fd = std::to_string(pipes[1]), first = std::to_string(s);
            execl("/proc/self/exe", "lsm-live-contents", "--write", d.path.c_str(),
                  first.c_str(), fd.c_str(), static_cast<char *>(nullptr));
            _exit(127);
        }
        close(pipes[1]);
        long acknowledged = 0, least = 500 + static_cast<long>(rnd(&seed) % 3000);
        char byte[512];
        ssize_t n;
        while (acknowledged < least && (n = read(pipes[0], byte, sizeof byte)) > 0)
            acknowledged += n;
        kill(pid, SIGKILL);
        while ((n = read(pipes[0], byte, sizeof byte)) > 0)
            acknowledged += n;
        close(pipes[0]);
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
        CHECK(WTERMSIG(status) == SIGKILL);
        for (long i = 0; i < acknowledged; i++) {
            std::string key = key_of(static_cast<long>(rnd(&s) % 1000));
            shadow[key] = key + std::to_string(s);
        }
        /* One more may have been written than acknowledged. */
        std::string key = key_of(static_cast<long>(rnd(&s) % 1000)),
                    more = key + std::to_string(s), found;
        Options o = options_of(NewLRUCache(200 << 10));
        auto attached = lsm::attach(o, still(QM_LSM_ALL));
        auto db = open(o, d / "db");
        if (db->Get(ReadOptions(), key, &found).ok() && found == more)
            shadow[key] = more;
        compare_all(*db, shadow, ReadOptions(), true);
    }
}

int main(int argc, char **argv)
{
    if (argc == 5 && std::string(argv[1]) == "--write")
        write_for_ever(argv[2], strtoull(argv[3], nullptr, 0), atoi(argv[4]));
#ifdef __SANITIZE_THREAD__
    long operations = 1500; /* what follows has the threads */
#else
    long operations = 6000;
#endif
    if (argc > 1)
        operations = atol(argv[1]);
    uint64_t seed = argc > 2 ? strtoull(argv[2], nullptr, 0) : 7;

    killed(seed);
    for (int style = 0; style < 5; style++)
        for (auto mode : {QM_LSM_ALL, QM_LSM_ADAPTIVE, QM_LSM_SELECTIVE, QM_LSM_LEAPER})
            exercise(style, mode, operations, seed++);
    threads(false);
    threads(true);
    return 0;
}
