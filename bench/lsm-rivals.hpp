/* SPDX-License-Identifier: BSD-3-Clause */
/* lsm-rivals.hpp - what bench/lsm compares with, and is not in the library.
 *
 * Incremental Warmup (Ahmad and Kemme, PVLDB 8(8)), as Leaper's authors describe it: a
 * new block is warmed if its keys overlap with those of any block that is in the cache.
 *
 * The oracle knows all operations to come.  A block is warmed if one of its keys is
 * read from it, before that key is written again and before as many other blocks are
 * read as the cache holds; blocks of files that are gone leave.  It is no upper bound:
 * what leaves a full cache is still LRU's choice.
 *
 * Both warm as the library does, before the new file is visible.  They know blocks by
 * the numbers that the bench's keys are, and files are not compressed. */
#ifndef QM_BENCH_LSM_RIVALS_HPP
#define QM_BENCH_LSM_RIVALS_HPP

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <rocksdb/listener.h>
#include <rocksdb/options.h>
#include <rocksdb/table.h>
#include <rocksdb/table_properties.h>

#include "bench/lsm-workload.hpp"

/* When each key is read and written next. */
class Future
{
  public:
    Future(const Operations &all, size_t cache_blocks);
    /* `at`: reads so far.  write: the number of the write that the value is of, -1: of
     * none.  Whether the key will be read soon, and it will still have that value. */
    bool wanted(uint32_t key, long at, long write) const;

  private:
    std::vector<uint32_t> read_from_, read_at_;   /* by key: positions, ascending */
    std::vector<uint32_t> write_from_, write_no_; /* by key: numbers of writes */
    std::vector<uint32_t> write_at_;              /* of a write, its read's position */
    std::vector<uint32_t> horizon_;               /* for each `step` reads */
    static constexpr long step = 2000;
};

class Rival : public rocksdb::EventListener
{
  public:
    /* Puts itself into the options; future: NULL for Incremental Warmup. */
    static std::shared_ptr<Rival> attach(rocksdb::Options &options,
                                         std::shared_ptr<const Future> future,
                                         const std::atomic<long> *at);
    void OnTableFileCreated(const rocksdb::TableFileCreationInfo &info) override;
    void OnTableFileDeleted(const rocksdb::TableFileDeletionInfo &info) override;

    /* Writes before this number were of the filling. */
    std::atomic<uint64_t> first_write{UINT64_MAX};
    std::atomic<uint64_t> blocks{0}, warmed{0};

    struct Block {
        uint32_t first, last;
        uint64_t offset;
        bool wanted;
    };
    struct File {
        std::vector<Block> blocks;
        uint64_t word[2];
    };

  private:
    friend class RivalBounds;
    bool wanted(uint32_t key, uint64_t sequence) const;
    bool name(const std::string &path, File *file);
    void overlap(File *file);

    std::shared_ptr<const Future> future_;
    const std::atomic<long> *at_ = nullptr;
    std::shared_ptr<rocksdb::Cache> cache_;
    rocksdb::BlockBasedTableOptions table_;
    rocksdb::Options own_;
    std::mutex lock_;
    uint64_t token_ = 0;
    std::map<std::string, std::vector<Block>> shaped_;
    std::map<std::string, File> files_;
};

#endif
