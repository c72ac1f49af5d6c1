/* SPDX-License-Identifier: BSD-3-Clause */
/* testing.hpp - what the tests of lsm/ with real RocksDB share. */
#ifndef QM_TESTS_LSM_TESTING_HPP
#define QM_TESTS_LSM_TESTING_HPP

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>
#include <rocksdb/slice_transform.h>
#include <rocksdb/table.h>

#include <qmlsm.hpp>

/* Also in threads: ends the program. */
#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what);         \
            abort();                                                                   \
        }                                                                              \
    } while (0)
#define OK(call)                                                                       \
    do {                                                                               \
        rocksdb::Status status_ = (call);                                              \
        if (!status_.ok()) {                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,                         \
                    status_.ToString().c_str());                                       \
            abort();                                                                   \
        }                                                                              \
    } while (0)

namespace testing
{

inline uint64_t rnd(uint64_t *seed)
{
    uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A directory that goes with the process that made it. */
struct Scratch {
    std::string path;
    Scratch()
    {
        const char *tmp = getenv("TMPDIR");
        std::string name = std::string(tmp ? tmp : "/tmp") + "/qmlsm.XXXXXX";
        CHECK(mkdtemp(name.data()));
        path = name;
    }
    ~Scratch()
    {
        CHECK(system(("rm -rf '" + path + "'").c_str()) == 0);
    }
    std::string operator/(const char *name) const
    {
        return path + "/" + name;
    }
};

inline std::string key_of(long i)
{
    char text[24];
    snprintf(text, sizeof text, "key%08ld", i);
    return text;
}

/* Small files, so that a test has many flushes and compactions. */
inline rocksdb::Options options_of(std::shared_ptr<rocksdb::Cache> cache)
{
    rocksdb::Options o;
    rocksdb::BlockBasedTableOptions t;
    o.create_if_missing = true;
    o.compression = rocksdb::kNoCompression;
    o.write_buffer_size = 64 << 10;
    o.target_file_size_base = 64 << 10;
    o.max_bytes_for_level_base = 256 << 10;
    o.level0_file_num_compaction_trigger = 3;
    t.block_size = 1024;
    t.filter_policy.reset(rocksdb::NewBloomFilterPolicy(10));
    t.block_cache = std::move(cache);
    o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(t));
    return o;
}

template <typename Change> void change_table(rocksdb::Options &o, Change change)
{
    auto t = *o.table_factory->GetOptions<rocksdb::BlockBasedTableOptions>();
    change(t);
    o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(t));
}

/* No thread of its own: the test ends the intervals. */
inline quickmine::lsm::Config still(qm_lsm_mode mode)
{
    quickmine::lsm::Config c;
    c.mode = mode;
    c.interval_ms = 0;
    return c;
}

/* Blocks that this thread read from files while `work` ran. */
template <typename Work> uint64_t blocks_read(Work work)
{
    rocksdb::SetPerfLevel(rocksdb::kEnableCount);
    rocksdb::get_perf_context()->Reset();
    work();
    return rocksdb::get_perf_context()->block_read_count;
}

inline std::unique_ptr<rocksdb::DB> open(const rocksdb::Options &o,
                                         const std::string &path)
{
    rocksdb::DB *db;
    OK(rocksdb::DB::Open(o, path, &db));
    return std::unique_ptr<rocksdb::DB>(db);
}

inline void read_keys(rocksdb::DB &db, long from, long to, long step = 1)
{
    std::string value;
    for (long i = from; i < to; i += step)
        OK(db.Get(rocksdb::ReadOptions(), key_of(i), &value));
}

inline void write_keys(rocksdb::DB &db, long from, long to, long step = 1)
{
    for (long i = from; i < to; i += step)
        OK(db.Put(rocksdb::WriteOptions(), key_of(i),
                  std::string(100, char('a' + i % 26))));
}

inline void flush_keys(rocksdb::DB &db, long from, long to, long step = 1)
{
    write_keys(db, from, to, step);
    OK(db.Flush(rocksdb::FlushOptions()));
}

/* A database with the library, in a directory of its own. */
struct Watched {
    Scratch d;
    quickmine::lsm::Attached attached;
    std::unique_ptr<rocksdb::DB> db;
    Watched(rocksdb::Options &o, const quickmine::lsm::Config &c)
        : attached(quickmine::lsm::attach(o, c)), db(open(o, d / "db"))
    {
    }
};

/* TEST(name) { ... } is a test, which its program runs in the order of its file. */
struct Test {
    const char *name;
    void (*run)();
};

inline std::vector<Test> &tests()
{
    static std::vector<Test> all;
    return all;
}

struct Listed {
    Listed(const char *name, void (*run)())
    {
        tests().push_back({name, run});
    }
};

#define TEST(name)                                                                     \
    static void name();                                                                \
    static const testing::Listed list_##name(#name, name);                             \
    static void name()

/* All, or those that the command line names. */
inline int run(int argc, char **argv)
{
    for (auto &test : tests()) {
        bool named = argc == 1;
        for (int i = 1; i < argc; i++)
            named = named || argv[i] == std::string(test.name);
        if (named)
            test.run();
    }
    return 0;
}

} // namespace testing

#endif
