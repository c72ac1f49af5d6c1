/* SPDX-License-Identifier: BSD-3-Clause */
/* How many blocks a cache has, and of what size, whatever of them is in use; and what
 * it does where memory is out. */
#include <cmath>

#include "lsm/cache.hpp"
#include "tests/live/lsm/out-of-memory.hpp"
#include "tests/live/lsm/testing.hpp"

using namespace rocksdb;
using quickmine::lsm::WatchedCache;

static void nothing(const Slice &, void *)
{
}

static void insert(Cache &cache, uint64_t file, uint64_t block, size_t charge,
                   Cache::Handle **handle = nullptr)
{
    uint64_t name[2] = {file, block};
    Slice key(reinterpret_cast<const char *>(name), sizeof name);

    OK(cache.Insert(key, nullptr, charge, nothing, handle, Cache::Priority::LOW));
}

static size_t entries(Cache &cache)
{
    size_t n = 0;

    cache.ApplyToAllEntries(
        [&](const Slice &, void *, size_t, Cache::DeleterFn) { n++; }, {});
    return n;
}

static bool near(double a, double b, double part)
{
    return std::fabs(a - b) <= part * b;
}

static void check(WatchedCache &cache)
{
    auto n = static_cast<double>(entries(cache));

    CHECK(near(static_cast<double>(cache.blocks()), n, .03));
    CHECK(near(cache.mean_block(), static_cast<double>(cache.GetUsage()) / n, .03));
}

/* Blocks in use are none more and none fewer. */
TEST(test_blocks)
{
    auto behind = NewLRUCache(4 << 20, 0);
    WatchedCache cache(behind);
    Cache::Handle *used[20];

    CHECK(cache.blocks() == 0 && near(cache.mean_block(), 4200, .1));
    insert(cache, 7, 1, 500);
    CHECK(cache.blocks() == 1);
    for (uint64_t i = 2; i < 400; i++)
        insert(cache, 7, i, 500 + i % 3 * 1000, i % 20 ? nullptr : &used[i / 20]);
    check(cache);
    for (uint64_t i = 20; i < 400; i += 20)
        CHECK(!cache.Release(used[i / 20], false));
    check(cache);
    /* Now of another size: the newest tell, as they are what it has. */
    for (uint64_t i = 400; i < 6000; i++)
        insert(cache, 7, i, 8000);
    check(cache);
}

/* Nor do RocksDB's reservations tell what a block takes. */
TEST(test_reserved)
{
    WatchedCache cache(NewLRUCache(4 << 20, 0));

    for (uint64_t i = 1; i < 400; i++)
        insert(cache, i % 10 ? 7 : 0, i, i % 10 ? 4000 : 256 << 10);
    CHECK(near(cache.mean_block(), 4088, .001));
}

static int deleted;

static void count(const Slice &, void *)
{
    deleted++;
}

/* Where memory is out, an object that lives as long as the process is refused, as by a
 * full cache: nothing is thrown into RocksDB, and no object is lost. */
TEST(test_out_of_memory)
{
    static const Cache::CacheItemHelper helper(nullptr, nullptr, count);
    WatchedCache cache(NewLRUCache(4 << 20, 0));
    const uint64_t name[2] = {0, ~UINT64_C(0)}; /* such an object's */
    const Slice key(reinterpret_cast<const char *>(name), sizeof name);
    Cache::Handle *handle = nullptr;
    int object = 0;

    allocations_left = 0;
    Status kept = cache.Insert(key, &object, 100, count, &handle, Cache::Priority::LOW);
    Status unkept =
        cache.Insert(key, &object, 100, count, nullptr, Cache::Priority::LOW);
    Status helped =
        cache.Insert(key, &object, &helper, 100, &handle, Cache::Priority::LOW);
    allocations_left = -1;
    CHECK(kept.IsMemoryLimit() && helped.IsMemoryLimit() && !handle);
    CHECK(unkept.ok() && deleted == 1); /* as if it had been evicted at once */
    CHECK(entries(cache) == 0 && !cache.Lookup(key, nullptr));
    OK(cache.Insert(key, &object, 100, count, &handle, Cache::Priority::LOW));
    CHECK(handle && cache.Value(handle) == &object && deleted == 1);
    CHECK(!cache.Release(handle, false));
}

int main(int argc, char **argv)
{
    return testing::run(argc, argv);
}
