/* SPDX-License-Identifier: BSD-3-Clause */
/* lsm-bench.cc - one cell of bench/lsm: a workload on RocksDB, in a mode of
 * libquickmine-lsm.
 *
 * Writes are paced and are a fixed number for each read, so that modes see the same
 * operations in the same order; what differs is the cache.  Prints a line of JSON: hit
 * rate of data blocks, misses per 1,000 reads, reads a second, p95, the worst 200 ms,
 * and the 200 ms windows for a chart. */
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>
#include <rocksdb/table.h>

#include <qmlsm.hpp>

using namespace rocksdb;
using Clock = std::chrono::steady_clock;
namespace lsm = quickmine::lsm;

namespace
{
struct Cell {
    std::string mode = "adaptive", workload = "synthetic", path;
    std::string model, dump; /* of mode leaper, and to train one from */
    double zipf = .5, scans = 0;
    long keys = 400000, reads = 400000, warmup = 200000;
    size_t cache = 16 << 20;
    unsigned seed = 1;
    unsigned interval = 500;
    bool keyed = false, series = false, plain = false;
    double writes = 1. / 3; /* of reads: 75 / 20 / 5 */
    long pace = 0;          /* reads a second; 0: as fast as it goes */
};

struct Jobs : EventListener {
    std::atomic<int> running{0};
    std::atomic<long> flushes{0}, compactions{0};
    void OnFlushCompleted(DB *, const FlushJobInfo &) override
    {
        flushes++;
    }
    void OnCompactionBegin(DB *, const CompactionJobInfo &) override
    {
        running++;
    }
    void OnCompactionCompleted(DB *, const CompactionJobInfo &) override
    {
        running--;
        compactions++;
    }
};

/* Gray's approximation of Zipf's distribution over n, exponent below 1. */
struct Zipf {
    long n;
    double theta, zetan = 0, alpha, eta;
    Zipf(long items, double skew) : n(items), theta(std::min(skew, .999))
    {
        for (long i = 1; i <= n; i++)
            zetan += 1 / std::pow(static_cast<double>(i), theta);
        double zeta2 = 1 + std::pow(.5, theta);
        alpha = 1 / (1 - theta);
        eta = (1 - std::pow(2. / static_cast<double>(n), 1 - theta)) /
              (1 - zeta2 / zetan);
    }
    long next(std::mt19937_64 &g) const
    {
        double u = static_cast<double>(g() >> 11) * 0x1p-53, uz = u * zetan;
        if (theta == 0)
            return static_cast<long>(u * static_cast<double>(n));
        if (uz < 1)
            return 0;
        if (uz < 1 + std::pow(.5, theta))
            return 1;
        return std::min(n - 1, static_cast<long>(static_cast<double>(n) *
                                                 std::pow(eta * u - eta + 1, alpha)));
    }
};

std::string key_of(long i)
{
    char text[24];
    snprintf(text, sizeof text, "key%012ld", i);
    return text;
}

/* Which key the next read or write is of. */
struct Workload {
    const Cell &cell;
    Zipf zipf;
    long range = 200, ranges, added;
    std::vector<long> place; /* of ranges: hot ones lie anywhere */
    Workload(const Cell &c)
        : cell(c), zipf(c.workload == "synthetic" ? c.keys / 20 : c.keys / 200, c.zipf),
          ranges(zipf.n), added(c.keys)
    {
        std::mt19937_64 g(c.seed * 77 + 5);
        range = c.keys / ranges;
        for (long i = 0; i < ranges; i++)
            place.push_back(i);
        std::shuffle(place.begin(), place.end(), g);
    }
    long read(std::mt19937_64 &g, long now)
    {
        if (cell.workload == "messaging") /* what was appended lately */
            return std::max(
                0L, added - 1 -
                        static_cast<long>(
                            std::exp(static_cast<double>(g() >> 11) * 0x1p-53 * 10.5)));
        long r = zipf.next(g);
        if (cell.workload == "commerce" && g() % 10 < 7) /* a hot set that moves on */
            r = (now / (cell.reads / 8 + 1) * 37 +
                 static_cast<long>(g() % (ranges / 25 + 1))) %
                ranges;
        return place[r] * range + static_cast<long>(g() % range);
    }
    long write(std::mt19937_64 &g, long now)
    {
        if (cell.workload == "messaging" || g() % 5 == 0)
            return added++;
        return read(g, now);
    }
};

void usage()
{
    fprintf(stderr,
            "usage: lsm-bench DIRECTORY [mode=M] [workload=W] [zipf=Z] [cache=MiB] "
            "[model=FILE] [dump=FILE] [keys=N] [reads=N] [seed=N] [scans=S] [keyed=1] "
            "[series=1] [pace=N]\n");
    exit(2);
}

void fill(DB *db, const Cell &cell, std::mt19937_64 &g)
{
    WriteOptions wo;
    std::string value(200, 'x');
    wo.disableWAL = true;
    for (long i = 0; i < cell.keys; i++) {
        for (auto &c : value)
            c = static_cast<char>('a' + (g() & 15));
        db->Put(wo, key_of(i), value);
    }
    db->Flush(FlushOptions());
    db->CompactRange(CompactRangeOptions(), nullptr, nullptr);
}
} // namespace

int main(int argc, char **argv)
{
    Cell cell;
    const std::vector<std::string> modes = {"adaptive",  "off", "erase", "flush",
                                            "selective", "all", "leaper"};
    if (argc < 2)
        usage();
    cell.path = argv[1];
    for (int i = 2; i < argc; i++) {
        std::string arg = argv[i], name = arg.substr(0, arg.find('=')),
                    value =
                        arg.find('=') == arg.npos ? "" : arg.substr(name.size() + 1);
        if (name == "mode")
            cell.mode = value;
        else if (name == "model")
            cell.model = value;
        else if (name == "dump")
            cell.dump = value;
        else if (name == "workload")
            cell.workload = value;
        else if (name == "zipf")
            cell.zipf = atof(value.c_str());
        else if (name == "cache")
            cell.cache = static_cast<size_t>(atof(value.c_str()) * (1 << 20));
        else if (name == "keys")
            cell.keys = atol(value.c_str());
        else if (name == "reads")
            cell.reads = atol(value.c_str());
        else if (name == "warmup")
            cell.warmup = atol(value.c_str());
        else if (name == "seed")
            cell.seed = static_cast<unsigned>(atoi(value.c_str()));
        else if (name == "interval")
            cell.interval = static_cast<unsigned>(atoi(value.c_str()));
        else if (name == "scans")
            cell.scans = atof(value.c_str());
        else if (name == "writes")
            cell.writes = atof(value.c_str());
        else if (name == "pace")
            cell.pace = atol(value.c_str());
        else if (name == "keyed")
            cell.keyed = value == "1";
        else if (name == "series")
            cell.series = value == "1";
        else
            usage();
    }

    auto jobs = std::make_shared<Jobs>();
    Options o;
    o.create_if_missing = true;
    o.compression = kNoCompression;
    o.write_buffer_size = 2 << 20;
    o.target_file_size_base = 2 << 20;
    o.max_bytes_for_level_base = 16 << 20;
    o.level0_file_num_compaction_trigger = 4;
    o.max_background_jobs = 2;
    o.use_direct_reads = true;
    o.use_direct_io_for_flush_and_compaction = true;
    o.listeners.push_back(jobs);
    BlockBasedTableOptions t;
    t.block_cache = NewLRUCache(cell.cache, 2);
    t.filter_policy.reset(NewBloomFilterPolicy(10));
    if (cell.mode == "prepopulate")
        t.prepopulate_block_cache =
            BlockBasedTableOptions::PrepopulateBlockCache::kFlushOnly;
    o.table_factory.reset(NewBlockBasedTableFactory(t));

    lsm::Config config;
    lsm::Attached attached;
    config.interval_ms = cell.interval;
    config.model = cell.model.empty() ? nullptr : cell.model.c_str();
    config.dump = cell.dump.empty() ? nullptr : cell.dump.c_str();
    auto mode = std::find(modes.begin(), modes.end(), cell.mode);
    if (mode != modes.end()) {
        config.mode = static_cast<qm_lsm_mode>(mode - modes.begin());
        attached = lsm::attach(o, config);
        if (!attached) {
            fprintf(stderr, "lsm-bench: %s\n", attached.says.c_str());
            return 1;
        }
    } else if (cell.mode != "stock" && cell.mode != "prepopulate") {
        usage();
    }
    std::mt19937_64 g(cell.seed), h(cell.seed + 1000), w(cell.seed + 2000);
    DB *db;
    DestroyDB(cell.path, o);
    Status s = DB::Open(o, cell.path, &db);
    if (!s.ok()) {
        fprintf(stderr, "lsm-bench: %s\n", s.ToString().c_str());
        return 1;
    }
    fill(db, cell, g);
    Workload load(cell);
    SetPerfLevel(kEnableCount);
    PerfContext *pc = get_perf_context();
    std::string value, fresh(200, 'y');
    WriteOptions wo;
    wo.disableWAL = true;
    std::vector<float> latency, during;
    std::vector<double> windows;
    uint64_t hits = 0, misses = 0, wh = 0, wm = 0, busy_misses = 0, busy_reads = 0;
    double owed = 0;
    long wreads = 0;
    auto begin = Clock::now(), window = begin;
    ReadOptions ro;
    for (long i = -cell.warmup; i < cell.reads; i++) {
        if (i == 0)
            begin = window = Clock::now();
        if (i >= 0 && cell.pace > 0 && i % 64 == 0)
            while (Clock::now() - begin <
                   std::chrono::microseconds(i * 1000000 / cell.pace))
                ;
        std::string key = key_of(load.read(h, std::max(i, 0L)));
        bool scan =
            cell.scans > 0 && static_cast<double>(h() % 1000) < cell.scans * 1000;
        pc->Reset();
        auto a = Clock::now();
        if (cell.keyed && attached)
            attached->read(key);
        if (scan) {
            std::unique_ptr<Iterator> it(db->NewIterator(ro));
            it->Seek(key);
            for (int k = 0; k < 50 && it->Valid(); k++)
                it->Next();
        } else {
            db->Get(ro, key, &value);
        }
        auto b = Clock::now();
        owed += cell.writes;
        for (; owed >= 1; owed--) {
            for (size_t z = 0; z + 8 <= fresh.size(); z += 8) {
                uint64_t x = w();
                memcpy(&fresh[z], &x, 8);
            }
            db->Put(wo, key_of(load.write(w, std::max(i, 0L))), fresh);
        }
        if (i < 0)
            continue;
        uint64_t hit = pc->block_cache_hit_count, miss = pc->block_read_count;
        float us = std::chrono::duration<float, std::micro>(b - a).count();
        latency.push_back(us);
        hits += hit;
        misses += miss;
        wh += hit;
        wm += miss;
        wreads++;
        if (jobs->running > 0) {
            busy_misses += miss;
            busy_reads++;
            during.push_back(us);
        }
        if (wreads >= 64 && b - window > std::chrono::milliseconds(200)) {
            windows.push_back(
                wh + wm ? static_cast<double>(wh) / static_cast<double>(wh + wm) : 1);
            wh = wm = 0;
            wreads = 0;
            window = b;
        }
    }
    double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    auto at = [](std::vector<float> &v, double q) {
        if (v.empty())
            return 0.f;
        auto n = static_cast<size_t>(q * static_cast<double>(v.size() - 1));
        std::nth_element(v.begin(), v.begin() + static_cast<long>(n), v.end());
        return v[n];
    };
    std::vector<double> sorted = windows;
    std::sort(sorted.begin(), sorted.end());
    printf(
        "{\"mode\": \"%s\", \"workload\": \"%s\", \"zipf\": %.2f, \"cache\": %zu, "
        "\"seed\": %u, "
        "\"scans\": %.2f, \"hit\": %.5f, \"misses_per_1000\": %.2f, \"reads_s\": %.0f, "
        "\"p95_us\": "
        "%.1f, "
        "\"worst_200ms\": %.4f, \"busy_misses_per_1000\": %.2f, \"busy_p95_us\": %.1f, "
        "\"flushes\": %ld, \"compactions\": %ld",
        cell.mode.c_str(), cell.workload.c_str(), cell.zipf, cell.cache >> 10,
        cell.seed, cell.scans,
        static_cast<double>(hits) /
            static_cast<double>(hits + misses + (hits + misses == 0)),
        1000. * static_cast<double>(misses) / static_cast<double>(cell.reads),
        static_cast<double>(cell.reads) / seconds,
        static_cast<double>(at(latency, .95)), sorted.empty() ? 0 : sorted[0],
        busy_reads
            ? 1000. * static_cast<double>(busy_misses) / static_cast<double>(busy_reads)
            : 0,
        static_cast<double>(at(during, .95)), jobs->flushes.load(),
        jobs->compactions.load());
    if (attached) {
        lsm::Stats st = attached->stats();
        printf(", \"blocks\": %lu, \"warmed\": %lu, \"used\": %lu, \"late\": %lu, "
               "\"erased\": %lu, "
               "\"cold\": %lu, \"cut\": %lu, \"failures\": %lu, \"warm_ms\": %lu, "
               "\"warm_ms_max\": %lu, "
               "\"ranges\": %u, \"spacing\": %u, \"price\": %.3f, \"window\": %.1f, "
               "\"levels\": [",
               st.blocks, st.warmed, st.used, st.late, st.erased, st.cold, st.cut,
               st.failures, st.warm_us / 1000, st.warm_us_max / 1000, st.ranges,
               st.spacing, st.price, st.window);
        for (int i = 0; i < 4; i++)
            printf("%s%.2f", i ? ", " : "",
                   st.level_blocks[i] ? static_cast<double>(st.level_warmed[i]) /
                                            static_cast<double>(st.level_blocks[i])
                                      : 0);
        printf("]");
    }
    if (cell.series) {
        printf(", \"series\": [");
        for (size_t i = 0; i < windows.size(); i++)
            printf("%s%.4f", i ? ", " : "", windows[i]);
        printf("]");
    }
    printf("}\n");
    delete db;
    DestroyDB(cell.path, o);
    return 0;
}
