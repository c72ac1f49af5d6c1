/* SPDX-License-Identifier: BSD-3-Clause */
/* cache.hpp - a cache in front of RocksDB's block cache, which tells of look-ups.
 *
 * It holds nothing: each call goes to the cache behind it, so capacity, order and
 * contents are that one's.  The threads of flushes and compactions are not counted. */
#ifndef QM_LSM_CACHE_HPP
#define QM_LSM_CACHE_HPP

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <rocksdb/cache.h>

extern "C" {
struct watch;
}

namespace quickmine::lsm
{

/* Two words that name a block. */
struct BlockName {
    uint64_t word[2];
};

/* What the calling thread's look-ups are for. */
struct Purpose {
    bool background = false; /* a compaction: does not count */
    double ends = 0;         /* it, by our guess: intervals since attach */
    std::vector<BlockName> *recorded =
        nullptr; /* warming: append to it, and do not count */
};
Purpose &purpose();

class WatchedCache : public rocksdb::Cache
{
  public:
    /* The one in front of `cache`, or cache itself if it is one. */
    static std::shared_ptr<WatchedCache>
    of(const std::shared_ptr<rocksdb::Cache> &cache);
    explicit WatchedCache(std::shared_ptr<rocksdb::Cache> behind);
    ~WatchedCache() override;

    struct watch *watch() const
    {
        return watch_;
    }
    rocksdb::Cache *behind() const
    {
        return behind_.get();
    }
    void erase(const BlockName &name);
    /* Bytes that a block takes in the cache, the mean of the newest ones; and how many
     * blocks it has, by its usage.  Not by GetOccupancyCount(): RocksDB 7.8.3's caches
     * answer with GetPinnedUsage() there, which is of bytes.  Any thread. */
    double mean_block() const;
    uint64_t blocks() const;

    const char *Name() const override;
    rocksdb::Status Insert(const rocksdb::Slice &key, void *value, size_t charge,
                           DeleterFn deleter, Handle **handle,
                           Priority priority) override;
    rocksdb::Status Insert(const rocksdb::Slice &key, void *value,
                           const CacheItemHelper *helper, size_t charge,
                           Handle **handle, Priority priority) override;
    Handle *Lookup(const rocksdb::Slice &key, rocksdb::Statistics *stats) override;
    Handle *Lookup(const rocksdb::Slice &key, const CacheItemHelper *helper,
                   const CreateCallback &create, Priority priority, bool wait,
                   rocksdb::Statistics *stats) override;
    bool Ref(Handle *handle) override;
    bool Release(Handle *handle, bool erase_if_last_ref) override;
    bool Release(Handle *handle, bool useful, bool erase_if_last_ref) override;
    void *Value(Handle *handle) override;
    void Erase(const rocksdb::Slice &key) override;
    uint64_t NewId() override;
    void SetCapacity(size_t capacity) override;
    void SetStrictCapacityLimit(bool strict) override;
    bool HasStrictCapacityLimit() const override;
    size_t GetCapacity() const override;
    size_t GetUsage() const override;
    size_t GetOccupancyCount() const override;
    size_t GetTableAddressCount() const override;
    size_t GetUsage(Handle *handle) const override;
    size_t GetPinnedUsage() const override;
    size_t GetCharge(Handle *handle) const override;
    DeleterFn GetDeleter(Handle *handle) const override;
    void DisownData() override;
    void ApplyToAllEntries(const std::function<void(const rocksdb::Slice &, void *,
                                                    size_t, DeleterFn)> &callback,
                           const ApplyToAllEntriesOptions &options) override;
    void EraseUnRefEntries() override;
    std::string GetPrintableOptions() const override;
    bool IsReady(Handle *handle) override;
    void Wait(Handle *handle) override;
    void WaitAll(std::vector<Handle *> &handles) override;

  private:
    void looked(const rocksdb::Slice &key, bool hit);
    void inserted(const rocksdb::Slice &key, size_t charge);

    std::shared_ptr<rocksdb::Cache> behind_;
    struct watch *watch_;
    std::atomic<uint64_t> inserted_{0};
    std::atomic<double> mean_{0}; /* bytes; an insertion may be lost from it */

    /* RocksDB keeps objects in the cache under names that are the same for the whole
     * process, with a pointer to the cache that they were inserted through: this one.
     * So each front has names of its own for them, and takes them along. */
    struct Named {
        Named(const WatchedCache &cache, const rocksdb::Slice &key);
        Named(const Named &) = delete;
        BlockName name{};
        rocksdb::Slice slice;
        bool lasting = false;
    };
    bool keep(const BlockName &name); /* false: memory is out */
    const uint64_t own_;
    std::mutex lock_;
    std::vector<BlockName> lasting_;
};

} // namespace quickmine::lsm

#endif
