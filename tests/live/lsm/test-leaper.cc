/* SPDX-License-Identifier: BSD-3-Clause */
/* Mode leaper: a model says what is hot; what is refused; the dump that models are
 * trained from.
 *
 * lsm-live-leaper --dump FILE: writes one of a workload whose hot ranges move on.
 * lsm-live-leaper --use MODEL: that a model which was trained from it warms. */
#include "tests/live/lsm/testing.hpp"

#include <fstream>
#include <sstream>

using namespace rocksdb;
using namespace testing;
namespace lsm = quickmine::lsm;

/* Hot is what was read in the last interval; in the second model, what is written. */
static std::string model_text()
{
    std::string text;
    for (int feature : {0, 6})
        text +=
            "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\n"
            "max_feature_idx=17\nobjective=binary sigmoid:1\n\nTree=0\nnum_leaves=2\n"
            "num_cat=0\nsplit_feature=" +
            std::to_string(feature) +
            "\nthreshold=0.5\ndecision_type=2\nleft_child=-1\nright_child=-2\n"
            "leaf_value=-3 3\nis_linear=0\n\n\nend of trees\n\n";
    return text;
}

static void write_file(const std::string &path, const std::string &text)
{
    std::ofstream file(path);
    file << text;
    CHECK(file.good());
}

TEST(test_refused)
{
    Scratch d;
    std::string model = d / "model", missing = d / "none", dump = d / "dump";
    write_file(model, "tree\nversion=v4\nTree=0\n");
    for (int i = 0; i < 5; i++) {
        Options o = options_of(NewLRUCache(1 << 20));
        auto c = still(QM_LSM_LEAPER);
        if (i == 0)
            c.model = missing.c_str();
        if (i == 1)
            c.model = model.c_str();
        if (i >= 3)
            c.mode = QM_LSM_ALL;
        if (i == 3)
            c.model = model.c_str();
        if (i == 4)
            c.dump = model.c_str(); /* is there: not overwritten */
        auto attached = lsm::attach(o, c);
        const char *says[] = {"none", "line 3", "needs a model", "alone", "exists"};
        CHECK(!attached && o.listeners.empty());
        CHECK(attached.says.find(says[i]) != std::string::npos);
    }
}

/* A database whose files hold the keys below `keys`, in the preset of a model. */
struct Predicted {
    Scratch d;
    lsm::Attached attached;
    std::unique_ptr<DB> db;

    Predicted(const std::string &model, std::shared_ptr<Cache> cache, long keys)
    {
        Options o = options_of(std::move(cache));
        o.disable_auto_compactions = true;
        auto c = still(QM_LSM_LEAPER);
        c.model = model.c_str();
        attached = lsm::attach(o, c);
        CHECK(attached);
        db = open(o, d / "db");
        flush_keys(*db, 0, keys);
    }
    void compact()
    {
        CompactRangeOptions force;
        force.bottommost_level_compaction = BottommostLevelCompaction::kForce;
        OK(db->CompactRange(force, nullptr, nullptr));
    }
};

static void run(const std::string &model, bool by_calls)
{
    Predicted p(model, NewLRUCache(8 << 20), 2000);
    DB *db = p.db.get();
    CHECK(p.attached->stats().warmed == 0); /* nothing has been read */
    for (int round = 0; round < 6; round++) {
        for (int again = 0; again < 3; again++) {
            read_keys(*db, 500, 700);
            for (long i = 500; by_calls && i < 700; i++)
                p.attached->read(key_of(i));
        }
        p.attached->tick();
    }
    lsm::Stats before = p.attached->stats();
    p.compact();
    lsm::Stats after = p.attached->stats();
    CHECK(after.failures == 0 && after.warmed > before.warmed + 10);
    CHECK(after.warmed - before.warmed < (after.blocks - before.blocks) / 2);
    CHECK(blocks_read([&] { read_keys(*db, 510, 690); }) == 0);
    CHECK(blocks_read([&] { read_keys(*db, 1000, 1200); }) > 10);
}

TEST(test_hot)
{
    Scratch d;
    std::string model = d / "model";
    write_file(model, model_text());
    run(model, false);
    run(model, true);
}

/* The first phase: when a compaction begins, the blocks of its inputs leave that the
 * model does not expect to be read, and those that it expects stay until its end. */
TEST(test_cold)
{
    Scratch d;
    std::string model = d / "model";
    write_file(model, model_text());
    auto cache = NewLRUCache(64 << 10, 0);
    Predicted p(model, cache, 800);
    DB *db = p.db.get();
    p.attached->tick();
    read_keys(*db, 0, 800);
    for (int i = 0; i < 2; i++) { /* then these alone; the counters see no others */
        p.attached->tick();
        read_keys(*db, 100, 140);
    }
    p.attached->tick();
    CHECK(cache->GetUsage() > cache->GetCapacity() * 9 / 10);
    uint64_t before = p.attached->stats().blocks;
    p.compact();
    lsm::Stats s = p.attached->stats();
    CHECK(s.failures == 0 && s.cold > 10 && s.cold + 4 <= before && s.erased >= 4);
    CHECK(blocks_read([&] { read_keys(*db, 100, 140); }) == 0);
}

/* Hot ranges stay for some intervals; what comes next follows what is read now. */
static void write_dump(const std::string &path, int intervals)
{
    Options o = options_of(NewLRUCache(4 << 20));
    Scratch d;
    auto c = still(QM_LSM_ADAPTIVE);
    c.dump = path.c_str();
    auto attached = lsm::attach(o, c);
    CHECK(attached);
    auto db = open(o, d / "db");
    uint64_t seed = 5;
    flush_keys(*db, 0, 2000);
    for (int i = 0; i < intervals; i++) {
        long first = 200 * (i / 12 % 10);
        for (int k = 0; k < 800; k++)
            attached->read(key_of(first + long(rnd(&seed) % 200)));
        attached->read(key_of(long(rnd(&seed) % 2000))); /* nobody can predict this */
        attached->tick();
    }
    CHECK(attached->stats().failures == 0);
}

/* Each row has its 22 numbers; bytes bound the file. */
TEST(test_dump)
{
    Scratch d;
    std::string path = d / "dump", line;
    write_dump(path, 20);
    std::ifstream file(path);
    long rows = 0, read = 0;
    CHECK(std::getline(file, line) &&
          line.rfind("family,ranges,interval,range,r1", 0) == 0);
    while (std::getline(file, line)) {
        std::stringstream in(line);
        std::string word;
        int n = 0;
        for (; std::getline(in, word, ','); n++) {
            char *end;
            double value = strtod(word.c_str(), &end);
            CHECK(!*end && value >= 0);
            read += n == 4 && value > 0;
        }
        CHECK(n == 22);
        rows++;
    }
    CHECK(rows > 500 && read > 300 && read < rows);

    Options o = options_of(NewLRUCache(4 << 20));
    auto c = still(QM_LSM_OFF);
    std::string small = d / "small";
    c.dump = small.c_str();
    c.dump_bytes = 3000;
    auto attached = lsm::attach(o, c);
    for (int i = 0; i < 100; i++) {
        attached->read("key");
        attached->tick();
    }
    attached.handle.reset();
    o = Options(); /* the last that hold the dump open */
    std::ifstream bounded(small, std::ios::ate);
    CHECK(bounded.tellg() > 1000 && bounded.tellg() < 3200);
}

int main(int argc, char **argv)
{
    if (argc == 3 && std::string(argv[1]) == "--dump") {
        write_dump(argv[2], 240);
        return 0;
    }
    if (argc == 3 && std::string(argv[1]) == "--use") {
        run(argv[2], true);
        return 0;
    }
    return testing::run(argc, argv);
}
