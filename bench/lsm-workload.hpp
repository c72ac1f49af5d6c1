/* SPDX-License-Identifier: BSD-3-Clause */
/* lsm-workload.hpp - the operations of a cell of bench/lsm, made before it runs.
 *
 * All modes of a cell and seed see the same operations in the same order.  Keys are
 * numbers.  For each read there are `writes` writes in the mean: each fifth appends a
 * key, the others change one that is drawn as reads are.
 *
 * - synthetic: Zipf over ranges of 20 keys, which lie anywhere.
 * - hot: 97 of 100 reads, and half of the changes, are of a tenth of the ranges.
 * - commerce: 7 of 10 reads are of a hot set of 4 % that moves on, eight times in a
 *   run; the others are Zipf's.
 * - messaging: writes append; the age of what is read is log-uniform.
 * - day: six phases of the above, one after the other. */
#ifndef QM_BENCH_LSM_WORKLOAD_HPP
#define QM_BENCH_LSM_WORKLOAD_HPP

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

struct Cell {
    std::string mode = "adaptive", workload = "synthetic", path;
    std::string model, dump; /* of mode leaper, and to train one from */
    double zipf = .5, scans = 0;
    long keys = 100000, reads = 100000, warmup = 60000;
    size_t cache = 8 << 20;
    unsigned seed = 1;
    unsigned interval = 200;
    bool keyed = false, series = false, live = false;
    double writes = 1. / 3; /* of reads: 75 / 20 / 5 */
    long pace = 0;          /* reads a second; 0: as fast as it goes */
    uint32_t ranges = 0;    /* most key ranges; 0: the library's own number */
    bool compactions = true;
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

inline std::string key_of(long i)
{
    char text[24];
    snprintf(text, sizeof text, "key%012ld", i);
    return text;
}

constexpr int scanned = 50; /* keys of a scan */

struct Operations {
    struct Read {
        uint32_t key;
        bool scan;
        uint16_t writes; /* that follow it */
    };
    std::vector<Read> reads;
    std::vector<uint32_t> writes;

    explicit Operations(const Cell &c) : cell(c), place(shuffled(c)), added(c.keys)
    {
        std::mt19937_64 h(cell.seed + 1000), w(cell.seed + 2000);
        double owed = 0;
        for (long i = -cell.warmup; i < cell.reads; i++) {
            long now = std::max(i, 0L);
            Phase phase = phase_at(now);
            Read read{};
            read.key = static_cast<uint32_t>(draw(phase, h, now, false));
            read.scan =
                phase.scans > 0 && static_cast<double>(h() % 1000) < phase.scans * 1000;
            for (owed += phase.writes; owed >= 1; owed--, read.writes++)
                writes.push_back(
                    static_cast<uint32_t>(phase.kind == "messaging" || w() % 5 == 0
                                              ? added++
                                              : draw(phase, w, now, true)));
            reads.push_back(read);
        }
    }
    long keys() const
    {
        return added;
    }

  private:
    struct Phase {
        std::string kind;
        double zipf, scans, writes;
        long shift; /* of the ranks: another hot set */
    };
    Phase phase_at(long now) const
    {
        static const Phase day[] = {
            {"synthetic", .9, 0, 1. / 3, 0},   {"messaging", 0, 0, 1.5, 0},
            {"synthetic", 0, 0, 1. / 3, 0},    {"commerce", .3, .118, .176, 0},
            {"synthetic", .9, .5, 1. / 3, 71}, {"hot", 0, 0, 1. / 3, 0},
        };
        if (cell.workload == "day")
            return day[std::min(5L, now * 6 / cell.reads)];
        return {cell.workload, cell.zipf, cell.scans, cell.writes, 0};
    }
    static std::vector<long> shuffled(const Cell &c)
    {
        std::vector<long> place;
        std::mt19937_64 g(c.seed * 77 + 5);
        for (long i = 0; i < c.keys / 20; i++)
            place.push_back(i);
        std::shuffle(place.begin(), place.end(), g);
        return place;
    }
    long draw(const Phase &phase, std::mt19937_64 &g, long now, bool write)
    {
        auto n = static_cast<long>(place.size());
        long r;
        if (phase.kind == "messaging")
            return std::max(
                0L, added - 1 -
                        static_cast<long>(
                            std::exp(static_cast<double>(g() >> 11) * 0x1p-53 * 10.5)));
        if (phase.kind == "hot") {
            bool hot = g() % 100 < (write ? 50 : 97);
            r = static_cast<long>(g() % static_cast<uint64_t>(hot ? n / 10 : n));
        } else if (phase.kind == "commerce" && g() % 10 < 7) {
            long steps = cell.workload == "day" ? 24 : 8;
            r = (now / (cell.reads / steps + 1) * (n / 9) +
                 static_cast<long>(g() % static_cast<uint64_t>(n / 25 + 1))) %
                n;
        } else {
            auto it = zipfs.find(phase.zipf);
            if (it == zipfs.end())
                it = zipfs.emplace(phase.zipf, Zipf(n, phase.zipf)).first;
            r = (it->second.next(g) + phase.shift * 13) % n;
        }
        return place[static_cast<size_t>(r)] * 20 + static_cast<long>(g() % 20);
    }

    const Cell cell;
    const std::vector<long> place; /* of ranges: hot ones lie anywhere */
    std::map<double, Zipf> zipfs;
    long added;
};

#endif
