/* SPDX-License-Identifier: BSD-3-Clause */
/* core.cc - see core.hpp. */
#include "lsm/core.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>

#include <rocksdb/sst_file_reader.h>
#include <rocksdb/table.h>

namespace quickmine::lsm
{

using rocksdb::Slice;
using rocksdb::Status;
using Clock = std::chrono::steady_clock;

static const char property[] = "quickmine.lsm";
static const size_t max_shaped = 64;  /* files that were built and not yet created */
static const unsigned cold_after = 8; /* intervals without a look-up, at least */
/* What a compaction's files may wait with, as a part of the blocks that are tracked. */
static const uint64_t waiting_part = 4;

Family::~Family()
{
    family_free(counts);
}

Core::Core(const qm_lsm_config &c, std::shared_ptr<WatchedCache> in,
           struct trees *trees, struct dump *dump)
    : config(c), cache(std::move(in)), trees_(trees, trees_free),
      dump_(dump, dump_close)
{
}

void Core::start()
{
    set_window();
    if (config.interval_ms == 0)
        return;
    /* Signals are for the program: one that blocks them later, to wait for them, would
     * end in this thread. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([this] { run(); });
    } catch (...) {
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Core::~Core()
{
    detach();
}

void Core::run()
{
    std::unique_lock<std::mutex> guard(lock_);
    while (!closing) {
        wake_.wait_for(guard, std::chrono::milliseconds(config.interval_ms));
        if (closing)
            return;
        guard.unlock();
        tick();
        guard.lock();
    }
}

void Core::detach()
{
    {
        std::lock_guard<std::mutex> guard(lock_);
        closing = true;
        wake_.notify_all();
    }
    if (thread_.joinable())
        thread_.join();
    std::unique_lock<std::shared_mutex> guard(gate_);
    if (!open_)
        return;
    open_ = false;
    for (auto &family : families_)
        if (family)
            watch_forget(cache->watch(), family->counts);
    files_.clear();
    for (auto &one : shaped_)
        shape_free(one.second.shape);
    shaped_.clear();
    for (auto &one : waiting_)
        for (auto &file : one.second.files)
            shape_free(file.second.shape);
    waiting_.clear();
}

/* How long a block stays in the cache, in intervals. */
void Core::set_window()
{
    auto *watch = cache->watch();
    double blocks = static_cast<double>(cache->GetCapacity()) / cache->mean_block();

    bridge_capacity(watch, static_cast<uint64_t>(blocks));
    uint64_t now = bridge_clock(watch), fresh = now - last_clock_;
    last_clock_ = now;
    double window = fresh > 0 ? static_cast<double>(bridge_residence(watch)) /
                                    static_cast<double>(fresh)
                              : 30;
    window = std::fmin(std::fmax(window, .1), 30);
    window_ = window_ * .7 + window * .3;
}

void Core::tick() noexcept
{
    try {
        end_interval();
        retire();
    } catch (...) { /* no memory: the next interval counts for both */
        failures_++;
    }
}

void Core::end_interval()
{
    std::vector<std::shared_ptr<Family>> families;
    std::shared_lock<std::shared_mutex> gate(gate_);

    if (!open_)
        return;
    {
        std::lock_guard<std::mutex> guard(lock_);
        set_window();
        for (auto &family : families_)
            if (family)
                families.push_back(family);
    }
    for (auto &family : families)
        if (family_tick(family->counts, cache->watch(), window_) != 0)
            failures_++;
    std::lock_guard<std::mutex> guard(lock_);
    qm_lsm_stats now = retired_;
    for (auto &family : families_)
        if (family)
            family_stats(family->counts, &now);
    intervals_++;
    phases_interval(&phases_, now.hits - last_hits_, now.misses - last_misses_,
                    cache->blocks(), compacted_);
    last_hits_ = now.hits;
    last_misses_ = now.misses;
    compacted_ = !jobs_.empty();
}

unsigned Core::add(std::shared_ptr<Family> family)
{
    std::lock_guard<std::mutex> guard(lock_);
    auto place = std::find(families_.begin(), families_.end(), nullptr);

    if (place == families_.end())
        place = families_.insert(place, nullptr);
    auto number = static_cast<unsigned>(place - families_.begin());
    family_learn(family->counts, trees_.get(), dump_.get(), added_++);
    if (number < max_families)
        reads_[number] = family->counts;
    *place = std::move(family);
    return number;
}

bool Core::has_files(const struct family *family) const
{
    return std::any_of(files_.begin(), files_.end(), [family](auto &one) {
        return watch_family(one.second) == family;
    });
}

/* Families go that were dropped: whose files are gone, and whom no options have. */
void Core::retire()
{
    std::vector<std::shared_ptr<Family>> gone;
    {
        /* Callbacks use what is in no list any more: with one under way, later. */
        std::unique_lock<std::shared_mutex> gate(gate_, std::try_to_lock);
        if (!gate || !open_)
            return;
        std::lock_guard<std::mutex> guard(lock_);
        gone.reserve(families_.size());
        for (size_t i = 0; i < families_.size(); i++) {
            auto &family = families_[i];
            if (!family || family.use_count() > 1 || has_files(family->counts))
                continue;
            family_stats(family->counts, &retired_);
            if (i < max_families)
                reads_[i] = nullptr;
            gone.push_back(std::move(family));
        }
        retired_.memory = retired_.ranges = retired_.spacing = 0;
    }
    /* Waits for late readers, too. */
    for (auto &family : gone)
        watch_forget(cache->watch(), family->counts);
}

void Core::read(unsigned family, const void *key, size_t len)
{
    if (family >= max_families)
        return;
    unsigned token = watch_enter(cache->watch());
    if (struct family *f = reads_[family].load())
        family_read(f, key, len);
    watch_leave(cache->watch(), token);
}

void Core::stalled(const std::string &name, bool yes)
{
    std::lock_guard<std::mutex> guard(stalls_lock_);

    if (yes)
        stalls_.insert(name);
    else
        stalls_.erase(name);
}

bool Core::stalled(const std::string &name)
{
    std::lock_guard<std::mutex> guard(stalls_lock_);

    return stalls_.count(name) > 0;
}

/* A file's shape waits for the file's creation under a token, which RocksDB
 * hands on with the file's properties.  Files that nobody announces, as those of
 * SstFileWriter, are forgotten. */
std::string Core::shaped(std::shared_ptr<Family> family, struct shape *shape)
{
    std::shared_lock<std::shared_mutex> gate(gate_);
    std::lock_guard<std::mutex> guard(lock_);
    std::string token = std::to_string(++token_) + "-" +
                        std::to_string(reinterpret_cast<uintptr_t>(this));

    if (!open_ || closing) {
        shape_free(shape);
        return token;
    }
    if (order_.size() >= max_shaped) {
        auto old = shaped_.find(order_.front());
        if (old != shaped_.end()) {
            shape_free(old->second.shape);
            shaped_.erase(old);
        }
        order_.erase(order_.begin());
    }
    shaped_[token] = {std::move(family), shape};
    order_.push_back(token);
    return token;
}

bool Core::take(const rocksdb::TableFileCreationInfo &info, Shaped *out)
{
    auto &user = info.table_properties.readable_properties;
    auto token = user.find(property);
    std::lock_guard<std::mutex> guard(lock_);

    if (token == user.end())
        return false;
    auto it = shaped_.find(token->second);
    if (it == shaped_.end())
        return false;
    *out = it->second;
    shaped_.erase(it);
    for (auto one = order_.begin(); one != order_.end(); ++one)
        if (*one == token->second) {
            order_.erase(one);
            break;
        }
    return true;
}

void Core::created(const rocksdb::TableFileCreationInfo &info)
{
    std::shared_lock<std::shared_mutex> gate(gate_);
    Shaped shaped;

    if (!open_ || !take(info, &shaped))
        return;
    try {
        if (wait(info, shaped))
            return;
    } catch (...) { /* no memory: now, then */
    }
    warm_and_free(info, shaped);
}

void Core::warm_and_free(const rocksdb::TableFileCreationInfo &info, Shaped &shaped)
{
    try {
        if (info.status.ok() && info.file_size > 0 && bridge_blocks(shaped.shape) > 0 &&
            !closing)
            warm(info, shaped);
    } catch (...) {
        failures_++;
    }
    shape_free(shaped.shape);
}

/* Files beyond the bound are warmed at once. */
bool Core::wait(const rocksdb::TableFileCreationInfo &info, const Shaped &shaped)
{
    uint64_t n = bridge_blocks(shaped.shape);
    std::lock_guard<std::mutex> guard(lock_);
    auto it = waiting_.find(std::this_thread::get_id());

    if (it == waiting_.end() ||
        info.reason != rocksdb::TableFileCreationReason::kCompaction ||
        it->second.blocks + n > config.blocks / waiting_part)
        return false;
    it->second.files.emplace_back(info, shaped);
    it->second.blocks += n;
    return true;
}

/* What waited for the calling thread. */
Core::Waiting Core::no_more_waiting()
{
    std::lock_guard<std::mutex> guard(lock_);
    auto it = waiting_.find(std::this_thread::get_id());
    Waiting own{};

    if (it == waiting_.end())
        return own;
    own = std::move(it->second);
    waiting_.erase(it);
    return own;
}

void Core::subcompaction_begins()
{
    std::shared_lock<std::shared_mutex> gate(gate_);
    Waiting old = no_more_waiting();

    /* RocksDB does not tell of the end of one that the database's end interrupts. */
    for (auto &file : old.files)
        shape_free(file.second.shape);
    std::lock_guard<std::mutex> guard(lock_);
    if (open_)
        waiting_[std::this_thread::get_id()] = {};
}

/* The thread's files are whole, and no version has them yet. */
void Core::subcompaction_ends(const rocksdb::SubcompactionJobInfo &info)
{
    std::shared_lock<std::shared_mutex> gate(gate_);
    Waiting own = no_more_waiting();

    for (auto &file : own.files) {
        if (!info.status.ok()) /* they will be deleted */
            file.first.status = info.status;
        warm_and_free(file.first, file.second);
    }
}

static void recording(std::vector<BlockName> *names, const std::function<void()> &work)
{
    purpose().recorded = names;
    try {
        work();
    } catch (...) {
        purpose().recorded = nullptr;
        throw;
    }
    purpose().recorded = nullptr;
}

/* Whether a Seek() has put its block into the cache. */
enum class Brought { yes, no_room, failed };

static Brought brought_by(const rocksdb::Iterator &it)
{
    Status s = it.status();

    if (s.IsMemoryLimit()) /* of a cache with strict_capacity_limit */
        return Brought::no_room;
    /* Incomplete: deletions alone.  InvalidArgument: the reader has no merge operator.
     * Both are met behind the block that was asked for. */
    return s.ok() || s.IsIncomplete() || s.IsInvalidArgument() ? Brought::yes
                                                               : Brought::failed;
}

/* Look-ups of a reader before that of a data block.  A file tells of its own
 * compression: options may have been others then. */
static size_t looked_up_before(const Family &family,
                               const rocksdb::TableProperties &file)
{
    auto &text = file.compression_options;
    bool dictionary = text.find("max_dict_bytes=") != text.npos &&
                      text.find("max_dict_bytes=0;") == text.npos;

    return size_t(family.partitioned) + size_t(family.index_in_cache && dictionary);
}

void Core::warm(const rocksdb::TableFileCreationInfo &info, Shaped &shaped)
{
    auto begin = Clock::now();
    uint32_t n = bridge_blocks(shaped.shape), done = 0;
    std::vector<uint8_t> want(n), have(n);
    std::vector<BlockName> names;
    BlockName first;
    size_t capacity = cache->GetCapacity(), len;
    double price = bridge_price(cache->watch());
    uint64_t each = info.table_properties.data_size / n + 1;
    uint64_t bytes = std::min<uint64_t>(
        config.warm_bytes,
        static_cast<uint64_t>(config.share * static_cast<double>(capacity)));
    auto end = begin + std::chrono::milliseconds(
                           stalled(info.cf_name) ? config.stall_ms : config.warm_ms);
    int level = std::min(std::max(bridge_level(shaped.shape), 0), QM_LSM_LEVELS - 1);

    made_++;
    blocks_ += n;
    level_blocks_[level] += n;
    if (config.mode == QM_LSM_OFF)
        return;
    bridge_plan(config.mode, shaped.family->counts, shaped.shape, price, window_,
                want.data());

    rocksdb::SstFileReader reader(shaped.family->options);
    if (!reader.Open(info.file_path).ok()) {
        failures_++;
        return;
    }
    rocksdb::ReadOptions read;
    read.total_order_seek = true;
    read.fill_cache = true;
    read.max_skippable_internal_keys = 1; /* of deletions, not the blocks behind them */
    std::unique_ptr<rocksdb::Iterator> it(reader.NewIterator(read));
    Brought brought = Brought::failed;
    recording(&names, [&] {
        const void *key = bridge_first(shaped.shape, 0, &len);
        it->Seek(Slice(static_cast<const char *>(key), len));
        brought = brought_by(*it);
    });
    if (brought == Brought::no_room)
        cut_++;
    else if (brought == Brought::failed || names.empty())
        failures_++;
    if (brought != Brought::yes || names.empty())
        return;
    /* The name of the block at offset 0: others may be looked up before it, and other
     * blocks behind it if it has deletions alone.  Where that cannot be told, the
     * file's blocks are left to the cache. */
    size_t before = looked_up_before(*shaped.family, info.table_properties);
    if (before > 0 && names.size() > before + 1)
        return;
    first = before > 0 ? names.back() : names[0];
    have[0] = want[0];
    if (!want[0])
        cache->erase(first);
    done += want[0];
    recording(&names, [&] {
        for (uint32_t i = 1; i < n; i++) {
            if (!want[i])
                continue;
            if (closing || (done + 1) * each > bytes || Clock::now() > end) {
                cut_++;
                break;
            }
            const void *key = bridge_first(shaped.shape, i, &len);
            it->Seek(Slice(static_cast<const char *>(key), len));
            brought = brought_by(*it);
            if (brought != Brought::yes) {
                ++(brought == Brought::no_room ? cut_ : failures_);
                break;
            }
            have[i] = 1;
            done++;
        }
    });
    warmed_ += done;
    level_warmed_[level] += done;
    struct file *file =
        watch_add(cache->watch(), shaped.family->counts, first.word, shaped.shape,
                  info.table_properties.data_size, have.data(), config.blocks);
    if (!file) {
        failures_++;
        return;
    }
    for (auto &name : names)
        if (name.word[0] == first.word[0])
            watch_adopt(file, name.word);
    {
        std::lock_guard<std::mutex> guard(lock_);
        auto old = files_.find(info.file_path);
        if (old != files_.end())
            watch_remove(cache->watch(), old->second);
        files_[info.file_path] = file;
    }
    auto us = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin)
            .count());
    warm_us_ += us;
    for (uint64_t max = warm_us_max_;
         us > max && !warm_us_max_.compare_exchange_weak(max, us);)
        ;
}

/* Erase() frees blocks, which may take long and run code of the program's: no lock is
 * held. */
uint64_t Core::erase(const std::vector<Names> &files)
{
    uint64_t erased = 0;
    size_t before = cache->GetUsage(), after;

    for (auto &names : files)
        for (uint64_t i = 0; i < names.n; i++, erased++) {
            BlockName name;
            memcpy(name.word, names.name.get()[i], sizeof name.word);
            cache->erase(name);
            watch_erased(cache->watch(), name.word);
        }
    /* How many of them were there, nearly: others may insert meanwhile. */
    after = cache->GetUsage();
    if (after < before)
        bridge_erased(cache->watch(),
                      static_cast<uint64_t>(static_cast<double>(before - after) /
                                            cache->mean_block()));
    return erased;
}

void Core::deleted(const std::string &path)
{
    std::shared_lock<std::shared_mutex> gate(gate_);
    struct file *file;

    if (!open_)
        return;
    {
        std::lock_guard<std::mutex> guard(lock_);
        auto it = files_.find(path);
        if (it == files_.end())
            return;
        file = it->second;
        files_.erase(it);
    }
    if (config.mode != QM_LSM_OFF) {
        std::vector<Names> names(1);
        names[0].of(file);
        erased_ += erase(names);
    }
    watch_remove(cache->watch(), file);
}

/* Blocks of the files that a compaction replaces. */
static uint64_t blocks_of(const rocksdb::CompactionJobInfo &info)
{
    uint64_t n = 0;

    for (auto &path : info.input_files) {
        auto it = info.table_properties.find(path);
        if (it != info.table_properties.end() && it->second)
            n += it->second->num_data_blocks;
    }
    return n;
}

/* The first phase: blocks that the compaction replaces and nobody will read until it
 * ends leave now, if others need their place. */
void Core::compaction_begins(const rocksdb::CompactionJobInfo &info)
{
    std::shared_lock<std::shared_mutex> gate(gate_);

    if (!open_)
        return;
    std::vector<struct file *> files;
    double t1;
    {
        std::lock_guard<std::mutex> guard(lock_);
        t1 = phases_t1(&phases_, blocks_of(info));
        purpose().ends = static_cast<double>(intervals_) + t1;
        jobs_[info.job_id] = intervals_;
        compacted_ = true;
        for (auto &path : info.input_files) {
            auto it = files_.find(path);
            if (it != files_.end())
                files.push_back(it->second);
        }
    }
    if (config.mode == QM_LSM_OFF || config.mode == QM_LSM_ERASE ||
        config.mode == QM_LSM_FLUSH ||
        static_cast<double>(cache->GetUsage()) <
            .97 * static_cast<double>(cache->GetCapacity()))
        return;
    /* Without the lock: they are there as long as the compaction is. */
    std::vector<Names> names(files.size());
    auto steps = static_cast<uint32_t>(std::fmax(std::ceil(t1), 1));
    for (size_t i = 0; i < files.size(); i++)
        names[i].cold(files[i], steps, std::max(steps, cold_after));
    cold_ += erase(names);
}

void Core::compaction_ends(const rocksdb::CompactionJobInfo &info)
{
    std::shared_lock<std::shared_mutex> gate(gate_);
    std::lock_guard<std::mutex> guard(lock_);
    auto job = jobs_.find(info.job_id);

    purpose().ends = 0;
    if (job == jobs_.end())
        return;
    if (info.status.ok())
        phases_compaction(&phases_, blocks_of(info), intervals_ - job->second);
    jobs_.erase(job);
}

/* The second phase begins when the compaction ends, for a flush now. */
void Core::phase_of_new(uint32_t *from, uint32_t *steps)
{
    std::lock_guard<std::mutex> guard(lock_);
    double rest = purpose().ends - static_cast<double>(intervals_);

    *from = static_cast<uint32_t>(std::fmax(rest, 0));
    *steps = phases_t2(&phases_, cache->blocks(), window_);
}

void Core::stats(qm_lsm_stats *out)
{
    std::lock_guard<std::mutex> guard(lock_);
    *out = retired_;
    for (auto &family : families_)
        if (family)
            family_stats(family->counts, out);
    out->files = made_;
    out->blocks = blocks_;
    out->warmed = warmed_;
    out->erased = erased_;
    out->cold = cold_;
    out->cut = cut_;
    out->failures = failures_;
    out->warm_us = warm_us_;
    out->warm_us_max = warm_us_max_;
    out->price = bridge_price(cache->watch());
    out->window = window_;
    for (int i = 0; i < QM_LSM_LEVELS; i++) {
        out->level_blocks[i] = level_blocks_[i];
        out->level_warmed[i] = level_warmed_[i];
    }
}

} // namespace quickmine::lsm
