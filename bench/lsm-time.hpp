/* SPDX-License-Identifier: BSD-3-Clause */
/* lsm-time.hpp - virtual time for a reader and RocksDB's threads.
 *
 * Each thread has a clock, which a model moves on: by a number of microseconds for a
 * read, a block, a key that is written.  A thread that is ahead of another by more than
 * `slack` waits for it.  So a compaction takes the same time, in reads, on a
 * machine of any speed and load, and hit rates during it can be repeated.
 *
 * A clock that waits for one whose thread will not go on (RocksDB's own locks) gives up
 * after a second of real time and counts a slip. */
#ifndef QM_BENCH_LSM_TIME_HPP
#define QM_BENCH_LSM_TIME_HPP

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

class Time
{
  public:
    static constexpr double slack = 200; /* us */

    void start()
    {
        std::lock_guard<std::mutex> guard(lock_);
        on_ = true;
    }
    void stop()
    {
        std::lock_guard<std::mutex> guard(lock_);
        on_ = false;
        moved_.notify_all();
    }
    /* The calling thread, a job of RocksDB's, begins and ends. */
    void join()
    {
        std::lock_guard<std::mutex> guard(lock_);
        for (int i = 1; on_ && mine() == 0 && i < max; i++)
            if (!clock_[i].runs) {
                clock_[i] = {clock_[0].now, true, false};
                mine() = i;
            }
    }
    void leave()
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (mine() > 0)
            clock_[mine()].runs = false;
        mine() = 0;
        moved_.notify_all();
    }
    bool joined() const
    {
        return mine() > 0;
    }
    void job(double us)
    {
        if (mine() > 0)
            move(mine(), us);
    }
    void reader(double us)
    {
        move(0, us);
    }
    /* The reader cannot go on before the jobs do. */
    void blocked(bool yes)
    {
        std::lock_guard<std::mutex> guard(lock_);
        if (!yes) {
            double now = 0;
            for (int i = 1; i < max; i++)
                if (clock_[i].runs && (now == 0 || clock_[i].now < now))
                    now = clock_[i].now;
            if (now > clock_[0].now)
                clock_[0].now = now;
        }
        clock_[0].blocked = yes;
        moved_.notify_all();
    }
    double now() /* the reader's */
    {
        std::lock_guard<std::mutex> guard(lock_);
        return clock_[0].now;
    }
    long slips()
    {
        std::lock_guard<std::mutex> guard(lock_);
        return slips_;
    }

  private:
    static constexpr int max = 8;
    struct Clock {
        double now;
        bool runs, blocked;
    };
    static int &mine()
    {
        static thread_local int own = 0;
        return own;
    }
    bool ahead(int me) const
    {
        for (int i = 0; i < max; i++)
            if (i != me && clock_[i].runs && !clock_[i].blocked &&
                clock_[i].now + slack < clock_[me].now)
                return true;
        return false;
    }
    void move(int me, double us)
    {
        std::unique_lock<std::mutex> guard(lock_);
        if (!on_)
            return;
        double before = clock_[me].now;
        clock_[me].now += us;
        if (waiting_ > 0 && (static_cast<long>(before / (slack / 2)) !=
                             static_cast<long>(clock_[me].now / (slack / 2))))
            moved_.notify_all();
        if (!ahead(me))
            return;
        waiting_++;
        moved_.notify_all();
        if (!moved_.wait_for(guard, std::chrono::seconds(1),
                             [&] { return !on_ || !ahead(me); }))
            slips_++;
        waiting_--;
    }

    std::mutex lock_;
    std::condition_variable moved_;
    Clock clock_[max] = {{0, true, false}};
    bool on_ = false;
    int waiting_ = 0;
    long slips_ = 0;
};

#endif
