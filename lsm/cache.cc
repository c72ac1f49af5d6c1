/* SPDX-License-Identifier: BSD-3-Clause */
/* cache.cc - see cache.hpp. */
#include "lsm/cache.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "lsm/bridge.h"

using rocksdb::Cache;
using rocksdb::Slice;
using rocksdb::Status;

namespace quickmine::lsm
{

Purpose &purpose()
{
    static thread_local Purpose own;
    return own;
}

std::shared_ptr<WatchedCache> WatchedCache::of(const std::shared_ptr<Cache> &cache)
{
    static std::mutex lock;
    static std::map<Cache *, std::weak_ptr<WatchedCache>> known;
    std::lock_guard<std::mutex> guard(lock);

    if (auto same = std::dynamic_pointer_cast<WatchedCache>(cache))
        return same;
    for (auto it = known.begin(); it != known.end();)
        it = it->second.expired() ? known.erase(it) : std::next(it);
    if (auto same = known[cache.get()].lock())
        return same;
    auto made = std::make_shared<WatchedCache>(cache);
    known[cache.get()] = made;
    return made;
}

static std::atomic<uint64_t> fronts{0};

WatchedCache::WatchedCache(std::shared_ptr<Cache> behind)
    : Cache(std::shared_ptr<rocksdb::MemoryAllocator>(behind,
                                                      behind->memory_allocator())),
      behind_(std::move(behind)), watch_(watch_new()), own_(++fronts)
{
    if (!watch_)
        throw std::bad_alloc();
}

WatchedCache::~WatchedCache()
{
    for (auto &name : lasting_)
        erase(name);
    watch_free(watch_);
}

/* CacheKey::CreateUniqueForProcessLifetime() makes such names. */
WatchedCache::Named::Named(const WatchedCache &cache, const Slice &key) : slice(key)
{
    if (key.size() != sizeof name.word)
        return;
    memcpy(name.word, key.data(), sizeof name.word);
    if (name.word[0] != 0 || !(name.word[1] >> 63))
        return;
    lasting = true;
    name.word[1] -= cache.own_ << 20;
    slice = Slice(reinterpret_cast<const char *>(name.word), sizeof name.word);
}

void WatchedCache::looked(const Slice &key, bool hit)
{
    BlockName name;

    if (key.size() != sizeof name.word)
        return;
    Purpose &mine = purpose();
    memcpy(name.word, key.data(), sizeof name.word);
    if (mine.recorded) {
        try {
            mine.recorded->push_back(name);
        } catch (const std::bad_alloc &) { /* the file's block will die by itself */
        }
    } else if (!mine.background) {
        watch_look(watch_, name.word, hit);
    }
}

/* What RocksDB's LRU cache has for a block beside key and value, and by default charges
 * for. */
static const size_t handle_bytes = 72;
static const double usual_block = 4200; /* before any was inserted */
static const uint64_t newest = 1024;    /* blocks, of which the mean tells */

double WatchedCache::mean_block() const
{
    double mean = mean_.load(std::memory_order_relaxed);

    return mean > 0 ? mean : usual_block;
}

uint64_t WatchedCache::blocks() const
{
    return static_cast<uint64_t>(
        std::round(static_cast<double>(GetUsage()) / mean_block()));
}

void WatchedCache::inserted(const Slice &key, size_t charge)
{
    BlockName name;

    if (key.size() != sizeof name.word)
        return;
    memcpy(name.word, key.data(), sizeof name.word);
    watch_insert(watch_, name.word);
    if (name.word[0] == 0) /* RocksDB's own objects and reservations, of any size */
        return;
    uint64_t n = inserted_.fetch_add(1, std::memory_order_relaxed) + 1;
    double mean = mean_.load(std::memory_order_relaxed),
           bytes = static_cast<double>(charge + key.size() + handle_bytes);
    mean_.store(mean + (bytes - mean) / static_cast<double>(std::min(n, newest)),
                std::memory_order_relaxed);
}

bool WatchedCache::keep(const BlockName &name)
{
    std::lock_guard<std::mutex> guard(lock_);
    for (auto &one : lasting_)
        if (one.word[1] == name.word[1])
            return true;
    try {
        lasting_.push_back(name);
    } catch (const std::bad_alloc &) {
        return false;
    }
    return true;
}

/* An object that cannot be kept, as RocksDB's caches answer when they are full. */
static Status refused(const Slice &key, void *value, Cache::DeleterFn deleter,
                      Cache::Handle **handle)
{
    if (handle) {
        *handle = nullptr;
        return Status::MemoryLimit();
    }
    if (deleter)
        deleter(key, value);
    return Status::OK();
}

void WatchedCache::erase(const BlockName &name)
{
    behind_->Erase(Slice(reinterpret_cast<const char *>(name.word), sizeof name.word));
}

const char *WatchedCache::Name() const
{
    return behind_->Name();
}

Status WatchedCache::Insert(const Slice &key, void *value, size_t charge,
                            DeleterFn deleter, Handle **handle, Priority priority)
{
    Named named(*this, key);
    if (named.lasting && !keep(named.name))
        return refused(key, value, deleter, handle);
    Status s = behind_->Insert(named.slice, value, charge, deleter, handle, priority);
    if (s.ok())
        inserted(key, charge);
    return s;
}

Status WatchedCache::Insert(const Slice &key, void *value,
                            const CacheItemHelper *helper, size_t charge,
                            Handle **handle, Priority priority)
{
    Named named(*this, key);
    if (named.lasting && !keep(named.name))
        return refused(key, value, helper->del_cb, handle);
    Status s = behind_->Insert(named.slice, value, helper, charge, handle, priority);
    if (s.ok())
        inserted(key, charge);
    return s;
}

Cache::Handle *WatchedCache::Lookup(const Slice &key, rocksdb::Statistics *stats)
{
    Handle *found = behind_->Lookup(Named(*this, key).slice, stats);
    looked(key, found != nullptr);
    return found;
}

Cache::Handle *WatchedCache::Lookup(const Slice &key, const CacheItemHelper *helper,
                                    const CreateCallback &create, Priority priority,
                                    bool wait, rocksdb::Statistics *stats)
{
    Handle *found =
        behind_->Lookup(Named(*this, key).slice, helper, create, priority, wait, stats);
    looked(key, found != nullptr);
    return found;
}

/* The rest is the cache's behind. */
bool WatchedCache::Ref(Handle *handle)
{
    return behind_->Ref(handle);
}
bool WatchedCache::Release(Handle *handle, bool erase_if_last_ref)
{
    return behind_->Release(handle, erase_if_last_ref);
}
bool WatchedCache::Release(Handle *handle, bool useful, bool erase_if_last_ref)
{
    return behind_->Release(handle, useful, erase_if_last_ref);
}
void *WatchedCache::Value(Handle *handle)
{
    return behind_->Value(handle);
}
void WatchedCache::Erase(const Slice &key)
{
    behind_->Erase(Named(*this, key).slice);
}
uint64_t WatchedCache::NewId()
{
    return behind_->NewId();
}
void WatchedCache::SetCapacity(size_t capacity)
{
    behind_->SetCapacity(capacity);
}
void WatchedCache::SetStrictCapacityLimit(bool strict)
{
    behind_->SetStrictCapacityLimit(strict);
}
bool WatchedCache::HasStrictCapacityLimit() const
{
    return behind_->HasStrictCapacityLimit();
}
size_t WatchedCache::GetCapacity() const
{
    return behind_->GetCapacity();
}
size_t WatchedCache::GetUsage() const
{
    return behind_->GetUsage();
}
size_t WatchedCache::GetOccupancyCount() const
{
    return behind_->GetOccupancyCount();
}
size_t WatchedCache::GetTableAddressCount() const
{
    return behind_->GetTableAddressCount();
}
size_t WatchedCache::GetUsage(Handle *handle) const
{
    return behind_->GetUsage(handle);
}
size_t WatchedCache::GetPinnedUsage() const
{
    return behind_->GetPinnedUsage();
}
size_t WatchedCache::GetCharge(Handle *handle) const
{
    return behind_->GetCharge(handle);
}
Cache::DeleterFn WatchedCache::GetDeleter(Handle *handle) const
{
    return behind_->GetDeleter(handle);
}
void WatchedCache::DisownData()
{
    behind_->DisownData();
}
void WatchedCache::ApplyToAllEntries(
    const std::function<void(const Slice &, void *, size_t, DeleterFn)> &callback,
    const ApplyToAllEntriesOptions &options)
{
    behind_->ApplyToAllEntries(callback, options);
}
void WatchedCache::EraseUnRefEntries()
{
    behind_->EraseUnRefEntries();
}
std::string WatchedCache::GetPrintableOptions() const
{
    return behind_->GetPrintableOptions();
}
bool WatchedCache::IsReady(Handle *handle)
{
    return behind_->IsReady(handle);
}
void WatchedCache::Wait(Handle *handle)
{
    behind_->Wait(handle);
}
void WatchedCache::WaitAll(std::vector<Handle *> &handles)
{
    behind_->WaitAll(handles);
}

} // namespace quickmine::lsm
