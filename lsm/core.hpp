/* SPDX-License-Identifier: BSD-3-Clause */
/* core.hpp - one attached database: its families, its files, its thread.
 *
 * The database's options hold a Listener and a Factory for each family; these hold the
 * Core, and the Core holds the cache.  Nothing of the library holds the options' own
 * listeners, so nothing keeps itself alive.
 *
 * Callbacks run in RocksDB's threads under `gate`, shared; detach() takes it
 * exclusively, after `closing` made warming end at its next block. */
#ifndef QM_LSM_CORE_HPP
#define QM_LSM_CORE_HPP

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <rocksdb/listener.h>
#include <rocksdb/options.h>

#include "lsm/bridge.h"
#include "lsm/cache.hpp"

extern "C" {
#include "lsm/phases.h"
}

namespace quickmine::lsm
{

/* A column family: its counters, and options to read its files with. */
struct Family {
    struct family *counts = nullptr;
    rocksdb::Options options;
    /* A reader's look-ups are not of data alone: also of a part of the index, or of a
     * file's dictionary of compression, which is where the index is. */
    bool partitioned = false, index_in_cache = false;
    uint32_t cut = 0; /* see shape.h */
    uint32_t block_size = 0;

    Family() = default;
    Family(const Family &) = delete;
    Family &operator=(const Family &) = delete;
    ~Family();
};

class Core : public std::enable_shared_from_this<Core>
{
  public:
    /* Of the trees and the dump, which may be NULL, it becomes the owner. */
    Core(const qm_lsm_config &config, std::shared_ptr<WatchedCache> cache,
         struct trees *trees, struct dump *dump);
    ~Core();
    void start();
    void detach();
    void tick() noexcept;
    void stats(qm_lsm_stats *out);
    void read(unsigned family, const void *key, size_t len);

    /* The number of a new family: the lowest that no family has. */
    unsigned add(std::shared_ptr<Family> family);

    /* The listener's and the factory's. */
    void created(const rocksdb::TableFileCreationInfo &info);
    /* Between them, the calling thread's files of a compaction wait: nobody reads them
     * before the compaction ends, and what is warmed too early leaves the cache. */
    void subcompaction_begins();
    void subcompaction_ends(const rocksdb::SubcompactionJobInfo &info);
    void deleted(const std::string &path);
    void compaction_begins(const rocksdb::CompactionJobInfo &info);
    void compaction_ends(const rocksdb::CompactionJobInfo &info);
    /* For the trees: which intervals a file that is built now will be read in. */
    void phase_of_new(uint32_t *from, uint32_t *steps);
    /* Writes to a column family are slowed or stopped, or are no more. */
    void stalled(const std::string &name, bool yes);
    bool stalled(const std::string &name);
    std::string shaped(std::shared_ptr<Family> family, struct shape *shape);

    const qm_lsm_config config;
    const std::shared_ptr<WatchedCache> cache;
    std::atomic<bool> closing{false};

  private:
    const std::unique_ptr<struct trees, decltype(&trees_free)> trees_;
    const std::unique_ptr<struct dump, decltype(&dump_close)> dump_;
    struct Shaped {
        std::shared_ptr<Family> family;
        struct shape *shape;
    };
    struct Waiting { /* files of a compaction, by one thread */
        uint64_t blocks = 0;
        std::vector<std::pair<rocksdb::TableFileCreationInfo, Shaped>> files;
    };
    bool take(const rocksdb::TableFileCreationInfo &info, Shaped *out);
    bool wait(const rocksdb::TableFileCreationInfo &info, const Shaped &shaped);
    Waiting no_more_waiting();
    void warm_and_free(const rocksdb::TableFileCreationInfo &info, Shaped &shaped);
    void warm(const rocksdb::TableFileCreationInfo &info, Shaped &shaped);
    /* Names of a file's blocks that were inserted. */
    struct Names {
        std::unique_ptr<uint64_t[][2], decltype(&free)> name{nullptr, free};
        uint64_t n = 0;
        void of(struct file *file)
        {
            uint64_t(*names)[2];
            n = watch_names(file, 0, nullptr, &names);
            name.reset(names);
        }
        void cold(struct file *file, uint32_t steps, unsigned idle)
        {
            uint64_t(*names)[2];
            n = family_cold(file, steps, idle, &names);
            name.reset(names);
        }
    };
    uint64_t erase(const std::vector<Names> &files);
    void set_window();
    void end_interval();
    void retire();
    bool has_files(const struct family *family) const;
    void run();

    std::shared_mutex gate_;
    bool open_ = true; /* by gate_ */

    std::mutex stalls_lock_;
    std::set<std::string> stalls_; /* names of families */

    std::mutex lock_;                                /* of all below */
    std::vector<std::shared_ptr<Family>> families_;  /* by number; NULL: it is free */
    uint32_t added_ = 0;                             /* families, in all */
    qm_lsm_stats retired_ = {};                      /* counts of those that are gone */
    std::unordered_map<std::string, Shaped> shaped_; /* by token */
    std::vector<std::string> order_;                 /* tokens, oldest first */
    std::unordered_map<std::thread::id, Waiting> waiting_;
    std::unordered_map<std::string, struct file *> files_;
    std::condition_variable wake_;
    std::thread thread_;
    uint64_t token_ = 0, last_clock_ = 0;
    struct phases phases_ = {};
    std::unordered_map<int, uint64_t> jobs_; /* compactions: when they began */
    bool compacted_ = false;                 /* one ran in this interval */
    uint64_t last_hits_ = 0, last_misses_ = 0;
    std::atomic<uint64_t> intervals_{0};

    static constexpr unsigned max_families = 256;
    std::atomic<struct family *> reads_[max_families] =
        {}; /* for read(), without lock */
    std::atomic<double> window_{4};
    std::atomic<uint64_t> made_{0}, blocks_{0}, warmed_{0}, erased_{0}, cold_{0},
        cut_{0}, failures_{0}, warm_us_{0}, warm_us_max_{0};
    std::atomic<uint64_t> level_blocks_[QM_LSM_LEVELS] = {},
                          level_warmed_[QM_LSM_LEVELS] = {};
    friend class Listener;
};

} // namespace quickmine::lsm

#endif
