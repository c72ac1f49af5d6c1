/* SPDX-License-Identifier: BSD-3-Clause */
/* lsm-bench.cc - one cell of bench/lsm: a workload on RocksDB, in a mode of
 * libquickmine-lsm or of a rival.
 *
 * In virtual time (lsm-time.hpp) files are the page cache's, and a model says what work
 * takes; hit rates and counts are RocksDB's own.  With live=1 reads are direct, and
 * times are measured.  Prints a line of JSON: hit rate of data blocks, misses in 1,000
 * reads, reads a second, p95, the worst 200 ms, and the windows for a chart. */
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/perf_context.h>
#include <rocksdb/perf_level.h>

#include <qmlsm.hpp>

#include "bench/lsm-rivals.hpp"
#include "bench/lsm-time.hpp"

using namespace rocksdb;
namespace lsm = quickmine::lsm;

namespace
{
/* The model, in us: as measured live with direct reads on these machines' disk. */
constexpr double read_us = 4, miss_us = 100, warm_us = 25, key_us = 4, after_us = 200e3;

/* All clocks, and which jobs run. */
struct Jobs : EventListener {
    Time time;
    std::atomic<int> running{0}, sealed{0};
    std::atomic<bool> changed{false}; /* since settle() */
    std::atomic<double> ended{-1e18};
    std::atomic<long> flushes{0}, compactions{0};
    void OnMemTableSealed(const MemTableInfo &) override
    {
        sealed++;
        changed = true;
    }
    void OnFlushBegin(DB *, const FlushJobInfo &) override
    {
        time.join();
        sealed = 0;
    }
    void OnFlushCompleted(DB *, const FlushJobInfo &) override
    {
        changed = true;
        time.leave();
        flushes++;
    }
    void OnCompactionBegin(DB *, const CompactionJobInfo &) override
    {
        time.join();
        running++;
    }
    void OnCompactionCompleted(DB *, const CompactionJobInfo &) override
    {
        changed = true;
        time.leave();
        ended = time.now();
        running--;
        compactions++;
    }
    /* The reader waits until jobs that are due have begun: a real thread takes a while.
     * Bounded, for RocksDB may have reasons to let one wait. */
    void settle(DB *db)
    {
        if (!changed.exchange(false))
            return;
        for (int i = 0; i < 2000; i++) {
            uint64_t due = 0, running_now = 0;
            db->GetIntProperty(DB::Properties::kCompactionPending, &due);
            db->GetIntProperty(DB::Properties::kNumRunningCompactions, &running_now);
            if (sealed == 0 && (due == 0 || (running_now > 0 && running > 0)))
                return;
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        }
    }
};

/* Behind the one that warms: blocks that it read take time. */
struct After : EventListener {
    Jobs *jobs = nullptr;
    std::function<uint64_t()> warmed;
    std::mutex lock;
    uint64_t last = 0;
    void OnTableFileCreated(const TableFileCreationInfo &) override
    {
        take_time();
    }
    void OnSubcompactionCompleted(const SubcompactionJobInfo &) override
    {
        take_time();
    }
    void take_time()
    {
        uint64_t more;
        if (!jobs->time.joined() || !warmed)
            return;
        {
            std::lock_guard<std::mutex> guard(lock);
            uint64_t now = warmed();
            more = now - last;
            last = now;
        }
        jobs->time.job(static_cast<double>(more) * warm_us);
    }
};

struct Pacer : TablePropertiesCollector {
    Jobs *jobs;
    explicit Pacer(Jobs *of) : jobs(of)
    {
    }
    Status AddUserKey(const Slice &, const Slice &, EntryType, SequenceNumber,
                      uint64_t) override
    {
        jobs->time.job(key_us);
        return Status::OK();
    }
    Status Finish(UserCollectedProperties *) override
    {
        return Status::OK();
    }
    UserCollectedProperties GetReadableProperties() const override
    {
        return {};
    }
    const char *Name() const override
    {
        return "bench.pacer";
    }
};

struct Pacers : TablePropertiesCollectorFactory {
    Jobs *jobs;
    explicit Pacers(Jobs *of) : jobs(of)
    {
    }
    TablePropertiesCollector *CreateTablePropertiesCollector(Context) override
    {
        return new Pacer(jobs);
    }
    const char *Name() const override
    {
        return "bench.pacer";
    }
};

void usage()
{
    fprintf(stderr,
            "usage: lsm-bench DIRECTORY [mode=M] [workload=W] [zipf=Z] [cache=MiB] "
            "[model=FILE] [dump=FILE] [keys=N] [reads=N] [warmup=N] [seed=N] "
            "[scans=S] [writes=W] [interval=MS] [keyed=1] [series=1] [pace=N] "
            "[live=1] [ranges=N] [compactions=0]\n");
    exit(2);
}

Cell cell_of(int argc, char **argv)
{
    Cell cell;
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
        else if (name == "ranges")
            cell.ranges = static_cast<uint32_t>(atol(value.c_str()));
        else if (name == "compactions")
            cell.compactions = value == "1";
        else if (name == "keyed")
            cell.keyed = value == "1";
        else if (name == "series")
            cell.series = value == "1";
        else if (name == "live")
            cell.live = value == "1";
        else
            usage();
    }
    return cell;
}

/* The cell's database, in its mode. */
struct Bench {
    const Cell &cell;
    Operations all;
    std::shared_ptr<Jobs> jobs = std::make_shared<Jobs>();
    std::atomic<long> at{0}; /* reads so far */
    Options o;
    lsm::Attached attached;
    std::shared_ptr<Rival> rival;
    DB *db = nullptr;

    explicit Bench(const Cell &c) : cell(c), all(c)
    {
        BlockBasedTableOptions t;
        o.create_if_missing = true;
        o.compression = kNoCompression;
        o.write_buffer_size = 512 << 10;
        o.target_file_size_base = 1 << 20;
        o.max_bytes_for_level_base = 4 << 20;
        o.level0_file_num_compaction_trigger = 4;
        o.level0_slowdown_writes_trigger = o.level0_stop_writes_trigger = 12;
        o.soft_pending_compaction_bytes_limit = 0;
        o.hard_pending_compaction_bytes_limit = 0;
        o.max_background_jobs = 2;
        o.disable_auto_compactions = !cell.compactions;
        o.use_direct_reads = o.use_direct_io_for_flush_and_compaction = cell.live;
        t.block_cache = NewLRUCache(cell.cache, 2);
        t.filter_policy.reset(NewBloomFilterPolicy(10));
        if (cell.mode == "prepopulate")
            t.prepopulate_block_cache =
                BlockBasedTableOptions::PrepopulateBlockCache::kFlushOnly;
        o.table_factory.reset(NewBlockBasedTableFactory(t));
        o.listeners.push_back(jobs);
        if (!cell.live)
            o.table_properties_collector_factories.push_back(
                std::make_shared<Pacers>(jobs.get()));
        auto after = std::make_shared<After>();
        after->jobs = jobs.get();
        set_mode();
        if (attached)
            after->warmed = [this] { return attached->stats().warmed; };
        else if (rival)
            after->warmed = [this] { return rival->warmed.load(); };
        o.listeners.push_back(after);
        DestroyDB(cell.path, o);
        check(DB::Open(o, cell.path, &db));
        fill();
    }
    ~Bench()
    {
        jobs->time.stop();
        delete db;
        DestroyDB(cell.path, o);
    }
    static void check(const Status &s)
    {
        if (!s.ok()) {
            fprintf(stderr, "lsm-bench: %s\n", s.ToString().c_str());
            exit(1);
        }
    }
    void set_mode()
    {
        const std::vector<std::string> modes = {"adaptive",  "off", "erase", "flush",
                                                "selective", "all", "leaper"};
        auto mode = std::find(modes.begin(), modes.end(), cell.mode);
        if (mode != modes.end()) {
            lsm::Config config;
            config.interval_ms = cell.live ? cell.interval : 0;
            config.ranges = cell.ranges;
            config.model = cell.model.empty() ? nullptr : cell.model.c_str();
            config.dump = cell.dump.empty() ? nullptr : cell.dump.c_str();
            config.mode = static_cast<qm_lsm_mode>(mode - modes.begin());
            attached = lsm::attach(o, config);
            if (!attached) {
                fprintf(stderr, "lsm-bench: %s\n", attached.says.c_str());
                exit(1);
            }
        } else if (cell.mode == "incremental") {
            rival = Rival::attach(o, nullptr, &at);
        } else if (cell.mode == "oracle") {
            rival =
                Rival::attach(o, std::make_shared<Future>(all, cell.cache / 4200), &at);
        } else if (cell.mode != "stock" && cell.mode != "prepopulate") {
            usage();
        }
    }
    void fill()
    {
        WriteOptions wo;
        std::string value(200, 'x');
        std::mt19937_64 g(cell.seed);
        wo.disableWAL = true;
        for (long i = 0; i < cell.keys; i++) {
            for (auto &c : value)
                c = static_cast<char>('a' + (g() & 15));
            check(db->Put(wo, key_of(i), value));
        }
        check(db->Flush(FlushOptions()));
        check(db->CompactRange(CompactRangeOptions(), nullptr, nullptr));
        if (rival)
            rival->first_write = db->GetLatestSequenceNumber() + 1;
    }
    void put(uint32_t key, const std::string &value)
    {
        WriteOptions wo;
        wo.disableWAL = true;
        wo.no_slowdown = !cell.live;
        Status s = db->Put(wo, key_of(key), value);
        if (s.IsIncomplete()) { /* it would wait for a job: the jobs go on alone */
            wo.no_slowdown = false;
            jobs->time.blocked(true);
            s = db->Put(wo, key_of(key), value);
            jobs->time.blocked(false);
        }
        check(s);
    }
};

struct Result {
    std::vector<float> latency, during;
    std::vector<double> windows;
    uint64_t hits = 0, misses = 0, busy_hits = 0, busy_misses = 0;
    double seconds = 0;
};

/* Time since the beginning, in us. */
struct Watch {
    Bench &b;
    std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
    double now()
    {
        return b.cell.live ? std::chrono::duration<double, std::micro>(
                                 std::chrono::steady_clock::now() - begin)
                                 .count()
                           : b.jobs->time.now();
    }
};

Result run(Bench &b)
{
    Result r;
    Watch watch{b};
    std::string value, fresh(200, 'y');
    PerfContext *pc = get_perf_context();
    ReadOptions ro;
    std::mt19937_64 w(b.cell.seed + 3000);
    uint64_t wh = 0, wm = 0;
    double begin = 0, window = 0, tick = 0;
    long wreads = 0, write = 0, warmup = b.cell.warmup;

    SetPerfLevel(kEnableCount);
    if (!b.cell.live)
        b.jobs->time.start();
    for (long i = 0; i < static_cast<long>(b.all.reads.size()); i++) {
        auto &op = b.all.reads[static_cast<size_t>(i)];
        double due = b.cell.pace > 0 ? 1e6 * static_cast<double>(i) /
                                           static_cast<double>(b.cell.pace)
                                     : 0;
        if (i == warmup)
            begin = window = watch.now();
        if (!b.cell.live && watch.now() < due)
            b.jobs->time.reader(due - watch.now());
        while (b.cell.live && watch.now() < due)
            ;
        if (!b.cell.live)
            b.jobs->settle(b.db);
        pc->Reset();
        double t0 = watch.now();
        bool busy = b.jobs->running > 0 || t0 - b.jobs->ended < after_us;
        if (b.cell.keyed && b.attached)
            b.attached->read(key_of(op.key));
        if (op.scan) {
            std::unique_ptr<Iterator> it(b.db->NewIterator(ro));
            it->Seek(key_of(op.key));
            for (int k = 0; k < scanned && it->Valid(); k++)
                it->Next();
        } else {
            b.db->Get(ro, key_of(op.key), &value);
        }
        uint64_t hit = pc->block_cache_hit_count, miss = pc->block_read_count;
        double us = b.cell.live ? watch.now() - t0
                                : (op.scan ? 5 : 1) * read_us +
                                      static_cast<double>(miss) * miss_us;
        if (!b.cell.live)
            b.jobs->time.reader(us);
        b.at = i + 1;
        for (int k = 0; k < op.writes; k++) {
            for (size_t z = 0; z + 8 <= fresh.size(); z += 8) {
                uint64_t x = w();
                memcpy(&fresh[z], &x, 8);
            }
            b.put(b.all.writes[static_cast<size_t>(write++)], fresh);
        }
        double t1 = watch.now();
        if (!b.cell.live && b.attached && t1 - tick >= 1000. * b.cell.interval) {
            tick = t1;
            b.attached->tick();
        }
        if (i < warmup)
            continue;
        r.latency.push_back(static_cast<float>(us));
        r.hits += hit;
        r.misses += miss;
        wh += hit;
        wm += miss;
        wreads++;
        if (busy) {
            r.busy_hits += hit;
            r.busy_misses += miss;
            r.during.push_back(static_cast<float>(us));
        }
        if (wreads >= 64 && t1 - window > 200e3) {
            r.windows.push_back(
                wh + wm ? static_cast<double>(wh) / static_cast<double>(wh + wm) : 1);
            wh = wm = 0;
            wreads = 0;
            window = t1;
        }
    }
    r.seconds = (watch.now() - begin) / 1e6;
    return r;
}

double share(uint64_t part, uint64_t rest)
{
    return part + rest ? static_cast<double>(part) / static_cast<double>(part + rest)
                       : 0;
}

double quantile(std::vector<float> &v, double q)
{
    if (v.empty())
        return 0;
    auto n = static_cast<size_t>(q * static_cast<double>(v.size() - 1));
    std::nth_element(v.begin(), v.begin() + static_cast<long>(n), v.end());
    return static_cast<double>(v[n]);
}

double mean(const std::vector<float> &v)
{
    double sum = 0;
    for (auto x : v)
        sum += static_cast<double>(x);
    return v.empty() ? 0 : sum / static_cast<double>(v.size());
}

void print(Bench &b, Result &r)
{
    const Cell &c = b.cell;
    auto reads = static_cast<double>(r.latency.size()),
         during = std::max(1., static_cast<double>(r.during.size()));
    std::vector<double> sorted = r.windows;
    std::sort(sorted.begin(), sorted.end());
    printf("{\"mode\": \"%s\", \"workload\": \"%s\", \"zipf\": %.2f, \"cache\": %zu, "
           "\"seed\": %u, \"scans\": %.2f, \"writes\": %.3f, \"live\": %d, "
           "\"slips\": %ld, ",
           c.mode.c_str(), c.workload.c_str(), c.zipf, c.cache >> 10, c.seed, c.scans,
           c.writes, c.live, b.jobs->time.slips());
    printf("\"hit\": %.5f, \"misses_per_1000\": %.2f, \"reads_s\": %.0f, "
           "\"mean_us\": %.2f, \"p95_us\": %.1f, \"worst_200ms\": %.4f, "
           "\"busy_share\": %.3f, \"busy_hit\": %.5f, \"busy_misses_per_1000\": %.2f, "
           "\"busy_mean_us\": %.2f, \"busy_p95_us\": %.1f, \"flushes\": %ld, "
           "\"compactions\": %ld",
           share(r.hits, r.misses), 1000. * static_cast<double>(r.misses) / reads,
           reads / r.seconds, mean(r.latency), quantile(r.latency, .95),
           sorted.empty() ? 0 : sorted[0], static_cast<double>(r.during.size()) / reads,
           share(r.busy_hits, r.busy_misses),
           1000. * static_cast<double>(r.busy_misses) / during, mean(r.during),
           quantile(r.during, .95), b.jobs->flushes.load(), b.jobs->compactions.load());
    if (b.rival)
        printf(", \"blocks\": %lu, \"warmed\": %lu", b.rival->blocks.load(),
               b.rival->warmed.load());
    if (b.attached) {
        lsm::Stats st = b.attached->stats();
        printf(", \"blocks\": %lu, \"warmed\": %lu, \"used\": %lu, \"late\": %lu, "
               "\"erased\": %lu, \"cold\": %lu, \"cut\": %lu, \"failures\": %lu, "
               "\"warm_ms\": %lu, \"warm_ms_max\": %lu, \"ranges\": %u, "
               "\"spacing\": %u, \"price\": %.3f, \"window\": %.1f, \"levels\": [",
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
    if (c.series) {
        printf(", \"series\": [");
        for (size_t i = 0; i < r.windows.size(); i++)
            printf("%s%.4f", i ? ", " : "", r.windows[i]);
        printf("]");
    }
    printf("}\n");
}
} // namespace

int main(int argc, char **argv)
{
    Cell cell = cell_of(argc, argv);
    Bench b(cell);
    Result r = run(b);

    print(b, r);
    return 0;
}
