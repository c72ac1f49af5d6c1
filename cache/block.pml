/* SPDX-License-Identifier: BSD-3-Clause */
/* block.pml - the states of one block, for spin: every way in which readers, writers,
 * prefetching, eviction and the reclaiming of memory can meet over it.
 *
 * The model is of one block number and of the headers and buffers that stand for it in
 * turn.  Each step names the function that it models.  What is left out: orders of
 * eviction (any block may be evicted at any time), rings, shards, and that memory is
 * weakly ordered (the thread sanitizer and liburcu answer for that).  A block has two
 * bytes, so that writes can cover it in part.
 *
 * What is done with the shard's mutex held is one step (an atomic) here.  Who does not
 * hold it looks at the table, at `hittable` and at `buf`, once each and in this order,
 * and cannot tell.
 *
 * A byte's value is the number of the write that stored it, counted as they reach the
 * layer below; so larger is newer.  What is checked, in all states:
 *
 *   - no stale read: a reader gets nothing older than what was acknowledged, or seen by
 *     another reader, before it began;
 *   - what is kept of a fill, and what is in the cache while no write is in flight, is
 *     what is below: so a fill that a write overtook is not kept;
 *   - no lost wake-up: who waits does not wait for ever (spin looks for dead ends);
 *   - nothing is used after it was freed, freed twice, or has a reference too few;
 *   - when all is over, nothing has a reference too many.
 *
 * With TIER=1 there is the second tier below the cache, too, and crashes: any step may
 * be the last one of a process that is killed, or of the machine.  Then a server starts
 * again, recovers the tier and reads.  Checked as well:
 *
 *   - what the tier would serve while no write is in flight is what is below: nothing
 *     older, and after a crash of the machine nothing that the layer below has lost;
 *   - an unmarked region loses no block by a crash of the machine, nor any by that of
 *     the process, but those that were written to (so that dropping all is no answer).
 *
 * A segment of it has one slot here.  Left out: admission, the queue (a block that was
 * evicted is written before the call returns, as in a simulation), several regions of
 * the map, blocks that are compared before they are believed (tier/verify.c), errors
 * and death, attaching and resizing; and a write that reaches the layer below when its
 * server is long dead.
 *
 * tests/long/cache/spin runs it; the numbers of processes are macros.
 */
#ifndef READERS
#define READERS 2
#endif
#ifndef READS
#define READS 1 /* of each reader */
#endif
#ifndef WRITERS
#define WRITERS 2 /* the first writes both bytes, the second one, the third the other */
#endif
#ifndef PREFETCHES
#define PREFETCHES 1 /* each by a thread that issues one and carries one out */
#endif
#ifndef EVICTIONS
#define EVICTIONS 1
#endif
#ifndef GRACES
#define GRACES 1 /* grace periods */
#endif
#ifndef HEADERS
#define HEADERS 2
#endif
#ifndef BUFS
#define BUFS 2
#endif

#ifndef TIER
#define TIER 0
#endif
#if TIER
#ifndef WARM
#define WARM 0 /* the block is in the tier from before */
#endif
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef REFILLS
#define REFILLS 0 /* segments filled anew for other blocks; this one stays or leaves */
#endif
#ifndef MARKED
#define MARKED 0 /* a change of another block may have marked the region */
#endif
#ifndef FLUSHES
#define FLUSHES 0
#endif
#ifndef SYNCS
#define SYNCS 0
#endif
#ifndef VOLATILE
#define VOLATILE 0 /* the layer below loses what was not flushed, too */
#endif
#ifndef UPDATES
#define UPDATES 0 /* a write of both bytes hands its data over if the tier had them */
#endif
#define SLOTS 2
#endif

#define POISON 99 /* what is in a free buffer */

mtype = {NONE, MAIN, PREFETCH};      /* enum qm_part */
mtype = {FREE, USED, LIMBO, GRACED}; /* the memory of a header or a buffer */

/* struct qm_block; numbers from 1, 0 being none. */
typedef header {
    mtype memory = FREE;
    mtype part = NONE;
    bit filled, hittable;
    byte buf, refs, waiting;
#if TIER
    bit handed; /* evicted with its data, not yet handed over */
    byte ticket
#endif
};
header hd[HEADERS + 1];

/* struct qm_buf */
typedef buffer {
    mtype memory = FREE;
    byte at[2]
};
buffer bufs[BUFS + 1];

byte table;    /* the header under the block's number in the hash table */
bit asleep[READERS];  /* in pthread_cond_wait() on the shard's `filled` */
bit reading[READERS]; /* in an RCU read-side section */
bit awaited[READERS]; /* and the grace period waits for its end */
bit queued[HEADERS + 1];  /* prefetches that no thread has taken */

/* struct qm_cache_write */
bit in_flight[WRITERS + 1], conflict[WRITERS + 1];

/* The layer below, and what is known of it outside. */
byte below[2], newest;
byte known[2]; /* acknowledged, or seen by a reader */

#if TIER
/* The tier's file.  `foot` and `tag` are incarnations, as the kernel has them; the same
 * on the disk; 0: zeroed, dead.  `sum` is the incarnation with whose checksum the data
 * agrees. */
typedef segment {
    byte at[2];
    byte sum, foot, tag, disk_foot, disk_tag;
    bit synced; /* the data */
    byte inc;   /* in memory */
    byte pins
};
segment seg[SLOTS + 1];
bit map, disk_map; /* the region's bit */
bit other_boot;    /* than the superblock has */

/* In memory. */
byte incarnation;
byte place; /* the slot that the index has for the block; 0: none */
byte moment, last, writing; /* struct stamp, of tier/journal.c */
byte update_of, update_ticket; /* what a write has handed over, and its ticket, or 0 */
bit marked, wanted, uncovered, changed, intent_lock;
byte busy;

bit dead;        /* the processes are killed */
bit keeps;       /* nothing says that the block may be lost */
byte flushed[2]; /* what is below as of the last flush */

#define LIFE     {
#define LIFE_END } unless { dead }
#else
#define LIFE
#define LIFE_END
#endif

#define covers(w, byte) (w == 0 || w == 2 - (byte))
#define any_in_flight   (in_flight[0] || (WRITERS > 1 && in_flight[1]) || \
                         (WRITERS > 2 && in_flight[2]))

inline broadcast()
{
    d_step {
        for (i : 0 .. READERS - 1) {
            asleep[i] = 0
        }
        i = 0
    }
}

/* ---- slab.c */

/* qm_slab_block(): 0 if there is none */
inline slab_block(h)
{
    d_step {
        h = 0;
        for (i : 1 .. HEADERS) {
            if
            :: h == 0 && hd[i].memory == FREE -> h = i
            :: else
            fi
        }
        i = 0;
        if
        :: h != 0 ->
            assert(hd[h].refs == 0 && hd[h].buf == 0 && !hd[h].hittable);
            hd[h].memory = USED;
            hd[h].filled = 0
        :: else
        fi
    }
}

/* qm_slab_buf() */
inline slab_buf(b)
{
    d_step {
        b = 0;
        for (i : 1 .. BUFS) {
            if
            :: b == 0 && bufs[i].memory == FREE -> b = i
            :: else
            fi
        }
        i = 0;
        if
        :: b != 0 -> bufs[b].memory = USED
        :: else
        fi
    }
}

inline free_buf(b)
{
    d_step {
        assert(bufs[b].memory != FREE);
        bufs[b].memory = FREE;
        bufs[b].at[0] = POISON;
        bufs[b].at[1] = POISON
    }
}

/* qm_slab_retire_block() */
inline retire_block(h)
{
    d_step {
        assert(hd[h].memory == USED && hd[h].refs == 0 && hd[h].part == NONE);
        assert(table != h);
        hd[h].memory = LIMBO
    }
}

/* ---- shard.c */

/* forget() */
inline forget(h)
{
    hd[h].part = NONE;
    hd[h].hittable = 0;
    table = 0;
    if
    :: hd[h].waiting > 0 -> broadcast()
    :: else
    fi;
    if
    :: hd[h].refs == 0 -> retire_block(h)
    :: else
    fi
}

/* qm_shard_filled() */
inline shard_filled(h, b)
{
    hd[h].buf = b;
    hd[h].filled = 1;
    if
    :: hd[h].part == MAIN -> hd[h].hittable = 1
    :: else
    fi;
    if
    :: hd[h].waiting > 0 -> broadcast()
    :: else
    fi
}

/* qm_shard_promote() */
inline shard_promote(h)
{
    hd[h].part = MAIN;
    if
    :: hd[h].filled -> hd[h].hittable = 1
    :: else
    fi
}

/* qm_shard_unref() */
inline shard_unref(h)
{
    assert(hd[h].refs > 0 && hd[h].memory == USED);
    hd[h].refs--;
    if
    :: hd[h].refs == 0 && hd[h].part == NONE -> retire_block(h)
    :: else
    fi
}

/* ---- cache.c */

/* begin_fill(); mutex held */
inline begin_fill(h, to)
{
    slab_block(h);
    if
    :: h != 0 ->
        hd[h].refs = 1;
        hd[h].part = to;
        assert(table == 0);
        table = h
    :: else
    fi
}

/* qm_cache_fail() */
inline fail(h)
{
    atomic {
        if
        :: hd[h].part != NONE -> forget(h) /* qm_shard_discard() */
        :: else
        fi;
        shard_unref(h)
    }
}

/* qm_cache_fill() */
inline fill(h, b, kept) /* with v */
{
    atomic { /* buf_for() */
        b = 0;
        if
        :: hd[h].part != NONE -> slab_buf(b)
        :: else
        fi;
        if
        :: b != 0 ->
            bufs[b].at[0] = v[0];
            bufs[b].at[1] = v[1]
        :: else
        fi
    }
    atomic {
        if
        :: hd[h].part != NONE && b != 0 && !any_in_flight -> /* qm_writes_overlap() */
            assert(bufs[b].at[0] == below[0] && bufs[b].at[1] == below[1]);
            shard_filled(h, b);
            kept = 1
        :: else ->
            kept = 0;
            if
            :: b != 0 -> free_buf(b) /* qm_slab_unused_buf() */
            :: else
            fi;
            if
            :: hd[h].part != NONE -> forget(h) /* qm_shard_discard() */
            :: else
            fi
        fi;
        shard_unref(h);
        b = 0
    }
}

inline read_below() /* into v */
{
    d_step {
        v[0] = below[0];
        v[1] = below[1]
    }
}

#if TIER
/* ---- tier/read.c, tier/index.c */

/* qm_tier_read() of one block, into v */
inline tier_read(s, hit)
{
    atomic { /* index_find() */
        s = place;
        if
        :: s != 0 -> seg[s].pins++
        :: else
        fi
    }
    if
    :: s != 0 ->
        d_step { /* read_slot() */
            v[0] = seg[s].at[0];
            v[1] = seg[s].at[1];
            hit = (seg[s].sum == seg[s].inc)
        }
        atomic { /* index_confirm() */
            if
            :: place != s -> hit = 0
            :: place == s && !hit -> /* journal_drop() */
                seg[s].tag = 0;
                place = 0
            :: else
            fi
        }
        d_step { /* unpin() */
            seg[s].pins--;
            s = 0
        }
    :: else
    fi
}

/* ---- tier/journal.c, tier/intent.c */

#define lock_intent                                                                    \
    atomic {                                                                           \
        !intent_lock -> intent_lock = 1                                                \
    }

#define is_stale(ticket) (writing > 0 || last > ticket) /* journal_is_stale() */

inline raise_last(to)
{
    d_step { /* raise_to() */
        if
        :: last < to -> last = to
        :: else
        fi
    }
}

/* qm_tier_write_begin() */
inline tier_write_begin(s, all)
{
    writing++;
#if UPDATES
    d_step {
        moment++;
        stamp = moment
    }
    raise_last(stamp);
#else
    moment++; /* where it becomes the stamp of its block does not matter */
    last = moment;
#endif
    /* intent_begin() */
    busy++;
    all = marked;
    uncovered = 1;
    changed = 1;
    if
    :: !all -> /* mark_page() */
        wanted = 1;
        lock_intent;
        if
        :: !marked ->
            d_step { /* durable */
                map = wanted;
                disk_map = wanted
            }
            marked = 1
        :: else
        fi;
        intent_lock = 0
    :: else
    fi;
    atomic { /* drop() */
        s = place;
        if
        :: s != 0 -> seg[s].pins++
        :: else
        fi;
#if UPDATES
        held = s != 0 && covers(me, 0) && covers(me, 1) /* all of it */
#endif
    }
    if
    :: s != 0 -> /* kill_run() */
        seg[s].tag = 0;
        atomic {
            if
            :: place == s -> place = 0
            :: else
            fi
        }
        d_step {
            seg[s].pins--;
            s = 0
        }
    :: else
    fi;
    all = 0
}

/* qm_tier_write_end(); the data is handed over at the end of it */
inline tier_write_end()
{
#if UPDATES
    d_step {
        moment++;
        ended = moment
    }
    held = held && writing == 1; /* is_alone() */
    held = held && last <= stamp;
    raise_last(ended);
#else
    d_step {
        moment++;
        last = moment
    }
#endif
    writing--;
    /* intent_end() */
    d_step {
        uncovered = 1;
        changed = 1
    }
    busy--
#if UPDATES
    ;
    d_step { /* update(); a queue of one */
        if
        :: held && ok && update_ticket == 0 ->
            update_of = version;
            update_ticket = ended
        :: else
        fi;
        held = 0;
        stamp = 0;
        ended = 0
    }
#endif
}

/* ---- tier/log.c */

/* evict(); whether its new footer is zeros, or lists others, is the same here. */
inline evict(s)
{
    d_step { /* durable */
        seg[s].foot = 0;
        seg[s].disk_foot = 0
    }
    atomic {
        if
        :: place == s -> place = 0
        :: else
        fi
    }
    seg[s].pins == 0; /* wait_for_pins() */
    d_step { /* open_segment(), revive() */
        incarnation++;
        seg[s].inc = incarnation;
        seg[s].tag = incarnation
    }
}

/* The same, but the block stays where it is: no matter what becomes of it meanwhile, the
 * new footer lists it.  The new incarnation has the same live tag, so it is the same
 * number here. */
inline keep_place(s)
{
    d_step { /* new_footer(), evict(): durable */
        seg[s].foot = seg[s].inc;
        seg[s].disk_foot = seg[s].inc
    }
    skip; /* revive() leaves its tag alone */
    s = 0
}

/* append(), of v; log_footer() */
inline append(s, ticket)
{
    d_step {
        seg[s].at[0] = v[0];
        seg[s].at[1] = v[1];
        seg[s].sum = seg[s].inc;
        seg[s].synced = 0
    }
    atomic { /* index_add() */
        if
        :: place == 0 && !is_stale(ticket) -> place = s
        :: else -> s = 0
        fi
    }
    d_step { /* some time later */
        if
        :: s != 0 -> seg[s].foot = seg[s].inc
        :: else
        fi;
        s = 0;
        v[0] = 0;
        v[1] = 0
    }
}

/* tier_sync() */
inline tier_sync()
{
    d_step {
        for (i : 1 .. SLOTS) {
            seg[i].disk_foot = seg[i].foot;
            seg[i].disk_tag = seg[i].tag;
            seg[i].synced = 1
        }
        disk_map = map;
        i = 0
    }
}
#endif

/* ---- Who wants the block: read_batch() of server/io.c, over qm_cache_demand(). */

/* Of a published buffer, within a read-side section. */
inline copy(b)
{
    assert(bufs[b].memory != FREE);
    v[0] = bufs[b].at[0];
    v[1] = bufs[b].at[1]
}

/* qm_cache_peek(), if what was read is not kept: it may be newer than what is in the
 * cache while a write is in flight, and then the next reader would find something older. */
inline peek(kept)
{
    atomic {
        if
        :: !kept && table != 0 && hd[table].filled ->
            b = hd[table].buf;
            copy(b);
            b = 0
        :: else
        fi;
        kept = 0
    }
}

proctype reader(byte me)
{
    byte i, h, mine, b, reads;
    byte v[2], least[2];
    bit have, failed, kept;
#if TIER
    byte s;
    bit hit;
#endif

    LIFE
    do
    :: reads == READS -> break
    :: reads < READS ->
        reads++;
        d_step {
            least[0] = known[0];
            least[1] = known[1]
        }
    again: /* demand() */
        have = 0;
        atomic { /* qm_rcu_read_lock(), qm_shard_find() */
            reading[me] = 1;
            h = table
        }
        atomic {
            b = 0;
            if
            :: h != 0 ->
                assert(hd[h].memory != FREE);
                if
                :: hd[h].hittable -> b = hd[h].buf
                :: else
                fi
            :: else
            fi;
            h = 0
        }
        atomic { /* copy_out(), qm_rcu_read_unlock() */
            reading[me] = 0;
            awaited[me] = 0;
            if
            :: b != 0 ->
                copy(b);
                goto done
            :: else
            fi
        }
        atomic { /* demand_locked() */
            h = table;
            if
            :: h == 0 ->
                begin_fill(h, MAIN);
                mine = h;
                h = 0
            :: else ->
                if
                :: hd[h].part == PREFETCH -> shard_promote(h)
                :: else
                fi;
                hd[h].refs++;
                mine = 0;
                have = hd[h].filled
            fi
        }
        if
        :: h == 0 && mine == 0 -> /* ENOMEM: read_below() past the cache */
            read_below();
            peek(kept);
            goto done
        :: h != 0 && !have -> /* plan(): qms_prefetch_take() */
            d_step {
                if
                :: queued[h] ->
                    mine = h;
                    queued[h] = 0
                :: else
                fi
            }
        :: else
        fi;
        have = 0;
        failed = 0;
        if
        :: mine != 0 -> /* read_run() */
#if TIER
            hit = 0;
            tier_read(s, hit); /* read_tier() */
#endif
            if
#if TIER
            :: hit ->
                hit = 0;
                have = 1;
                fill(mine, b, kept);
                peek(kept)
            :: !hit ->
                read_below();
#else
            :: read_below();
#endif
                have = 1;
                fill(mine, b, kept);
                peek(kept)
            :: failed = 1;
                fail(mine)
            fi;
            mine = 0
        :: else
        fi;
        if
        :: h != 0 -> /* qm_cache_wait() */
            atomic {
                hd[h].waiting++;
                do
                :: !hd[h].filled && hd[h].part != NONE ->
                    asleep[me] = 1; /* pthread_cond_wait() */
                    asleep[me] == 0
                :: else -> break
                od;
                hd[h].waiting--;
                b = 0;
                if
                :: hd[h].filled && !have ->
                    reading[me] = 1;
                    b = hd[h].buf
                :: else
                fi
            }
            atomic {
                if
                :: b != 0 -> /* copy_out() */
                    copy(b);
                    have = 1;
                    reading[me] = 0;
                    awaited[me] = 0
                :: else
                fi;
                shard_unref(h);
                h = 0
            }
            if
            :: !have && !failed -> goto again /* EAGAIN: qm_cache_demand_again() */
            :: else
            fi
        :: else
        fi;
        if
        :: failed -> goto next /* the error is the reader's */
        :: else
        fi;
    done:
        skip;
        d_step {
            assert(v[0] != POISON && v[1] != POISON);
            assert(v[0] >= least[0] && v[1] >= least[1]);
            if
            :: v[0] > known[0] -> known[0] = v[0]
            :: else
            fi;
            if
            :: v[1] > known[1] -> known[1] = v[1]
            :: else
            fi
        }
    next:
        skip;
        d_step {
            b = 0;
            v[0] = 0;
            v[1] = 0;
            least[0] = 0;
            least[1] = 0;
            have = 0;
            failed = 0;
            h = 0
        }
    od
    LIFE_END
}

/* ---- Prefetching: qms_prefetch_issue(), and the worker, of server/prefetch.c. */

proctype prefetcher()
{
    byte i, h, b;
    byte v[2];
    bit kept;

    atomic { /* qm_cache_prefetch() */
        if
        :: table == 0 -> begin_fill(h, PREFETCH)
        :: else /* EEXIST */
        fi
    }
    atomic {
        if
        :: h != 0 && hd[h].part == PREFETCH -> /* qm_cache_wanted() */
            queued[h] = 1;
            h = 0
        :: else
        fi
    }
    if
    :: h != 0 ->
        fail(h);
        h = 0
    :: else
    fi;
    d_step { /* qm_ahead_run(), of any client */
        for (i : 1 .. HEADERS) {
            if
            :: h == 0 && queued[i] ->
                h = i;
                queued[i] = 0
            :: else
            fi
        }
        i = 0
    }
    if
    :: h != 0 -> /* work() */
        if
        :: hd[h].part == NONE -> fail(h) /* qm_cache_wanted(): cancelled */
        :: hd[h].part != NONE ->
            if
            :: read_below();
                fill(h, b, kept)
            :: fail(h)
            fi
        fi
    :: else
    fi
}

/* ---- Writes: qms_write() of server/writing.c, and writes.c. */

proctype writer(byte me)
{
    byte i, h, b, old, version;
    bit ok, drop;
#if TIER
    byte s;
    bit all;
#if UPDATES
    byte stamp, ended;
    bit held;
#endif
#endif

    LIFE
    d_step { /* qm_cache_write_begin() */
        for (i : 0 .. WRITERS - 1) {
            if
            :: in_flight[i] && ((covers(i, 0) && covers(me, 0)) ||
                                (covers(i, 1) && covers(me, 1))) ->
                conflict[i] = 1;
                conflict[me] = 1
            :: else
            fi
        }
        i = 0;
        in_flight[me] = 1
    }

#if TIER
    tier_write_begin(s, all);
#endif
    atomic { /* pwrite() below; a failed write may have stored its bytes */
        if
        :: ok = 1
        :: ok = 0
        fi;
        if
        :: true ->
            newest++;
            version = newest;
            if
            :: covers(me, 0) -> below[0] = version
            :: else
            fi;
            if
            :: covers(me, 1) -> below[1] = version
            :: else
            fi
        :: !ok
        fi
    }

    /* qm_cache_write_end(); the mutex of the writes in flight is held only for this */
    drop = !ok || conflict[me];
    if
    :: table == 0 -> goto looked /* change_number(): qm_cache_contains() */
    :: else
    fi;
    atomic {
        h = table;
        if
        :: h != 0 -> /* change_block() */
            b = 0;
            if
            :: hd[h].filled && !drop -> slab_buf(b)
            :: else
            fi;
            if
            :: b == 0 -> forget(h) /* qm_shard_discard(); in the end also without memory */
            :: else ->
                old = hd[h].buf;
                bufs[b].at[0] = (covers(me, 0) -> version : bufs[old].at[0]);
                bufs[b].at[1] = (covers(me, 1) -> version : bufs[old].at[1]);
                hd[h].buf = b;
                bufs[old].memory = LIMBO /* qm_slab_retire_buf() */
            fi
        :: else
        fi
    }
looked:
    skip;
    d_step {
        in_flight[me] = 0;
        if
        :: !any_in_flight && table != 0 && hd[table].filled ->
            b = hd[table].buf;
            assert(bufs[b].at[0] == below[0] && bufs[b].at[1] == below[1])
        :: else
        fi;
#if TIER
        b = 0
    }
    tier_write_end();
    d_step {
        if
        :: writing == 0 && place != 0 ->
            assert(seg[place].at[0] == below[0] && seg[place].at[1] == below[1])
        :: else
        fi;
#endif
        /* The reply. */
        if
        :: ok && covers(me, 0) && version > known[0] -> known[0] = version
        :: else
        fi;
        if
        :: ok && covers(me, 1) && version > known[1] -> known[1] = version
        :: else
        fi;
        h = 0;
        b = 0;
        old = 0;
        version = 0;
        ok = 0;
        drop = 0;
        conflict[me] = 0
    }
    LIFE_END
}

/* ---- Other blocks need room, and memory: qm_slab_reclaim() of slab.c. */

inline take_limbo()
{
    for (i : 1 .. HEADERS) {
        if
        :: hd[i].memory == LIMBO -> hd[i].memory = GRACED
        :: else
        fi
    }
    for (i : 1 .. BUFS) {
        if
        :: bufs[i].memory == LIMBO -> bufs[i].memory = GRACED
        :: else
        fi
    }
    i = 0
}

inline free_graced()
{
    for (i : 1 .. HEADERS) {
        if
        :: hd[i].memory == GRACED ->
            assert(hd[i].refs == 0);
            hd[i].memory = FREE;
            hd[i].filled = 0;
            if
            :: hd[i].buf != 0 ->
                assert(bufs[hd[i].buf].memory == USED);
                bufs[hd[i].buf].memory = GRACED;
                hd[i].buf = 0
            :: else
            fi
        :: else
        fi
    }
    for (i : 1 .. BUFS) {
        if
        :: bufs[i].memory == GRACED ->
            bufs[i].memory = FREE;
            bufs[i].at[0] = POISON;
            bufs[i].at[1] = POISON
        :: else
        fi
    }
    i = 0
}

proctype others()
{
    byte i, h, evictions, graces;
    bit waits;
#if TIER
    byte b, s, refills, syncs, ticket;
    byte v[2];
#endif

    LIFE
    do
    :: atomic { /* make_room() of shard.c, for another block */
            evictions < EVICTIONS && table != 0 ->
            evictions++;
            h = table;
#if TIER
            if
            :: hd[h].part == MAIN && hd[h].filled -> /* leaving() */
                hd[h].ticket = moment;
                hd[h].handed = 1
            :: else
            fi;
#endif
            forget(h);
            h = 0
        }
    :: d_step { /* qm_rcu_synchronize() begins */
            graces < GRACES && !waits ->
            graces++;
            waits = 1;
            take_limbo();
            for (i : 0 .. READERS - 1) {
                awaited[i] = reading[i]
            }
            i = 0
        }
#if TIER
    :: atomic { /* and has ended; evicted() */
            waits && !awaited[0] && !awaited[READERS - 1] ->
            for (i : 1 .. HEADERS) {
                if
                :: hd[i].memory == GRACED && hd[i].handed -> h = i
                :: else
                fi
            }
            i = 0
        }
        if
        :: h != 0 && place == 0 && !is_stale(hd[h].ticket) -> /* qm_tier_insert() */
            ticket = hd[h].ticket;
            if
            :: s = 1
            :: s = 2
            fi;
            evict(s);
            d_step { /* write_some() */
                b = hd[h].buf;
                copy(b);
                b = 0
            }
            append(s, ticket);
            ticket = 0
        :: else
        fi;
        d_step {
            h = 0;
            waits = 0;
            free_graced()
        }
#if UPDATES
    :: atomic { /* write_queued() */
            update_ticket != 0 ->
            ticket = update_ticket;
            i = update_of;
            update_ticket = 0;
            update_of = 0
        }
        if
        :: place == 0 && !is_stale(ticket) -> /* write_some() */
            if
            :: s = 1
            :: s = 2
            fi;
            evict(s);
            d_step {
                v[0] = i;
                v[1] = i
            }
            append(s, ticket)
        :: else
        fi;
        d_step {
            ticket = 0;
            i = 0
        }
#endif
    :: atomic { /* make_room(), for another block */
            refills < REFILLS && place != 0 && seg[place].foot != 0 ->
            refills++;
            s = place
        }
        if
        :: keep_place(s)
        :: evict(s);
            s = 0
        fi
    :: atomic {
            syncs < SYNCS ->
            syncs++;
            tier_sync()
        }
#else
    :: d_step { /* and has ended */
            waits && !awaited[0] && !awaited[READERS - 1] ->
            waits = 0;
            free_graced()
        }
#endif
    :: atomic {
            !waits -> break
        }
    od
    LIFE_END
}

#if TIER
/* ---- qms_flush(); intent_clear() */

proctype keeper()
{
    byte i, flushes;
    bit some;

    LIFE
    do
    :: flushes < FLUSHES ->
        flushes++;
        uncovered = 0; /* qm_tier_flush_begin() */
        d_step {
            flushed[0] = below[0];
            flushed[1] = below[1]
        }
        /* choose() */
        lock_intent;
        some = marked;
        changed = 0;
        some = some && !uncovered;
        some = some && busy == 0;
        intent_lock = 0;
        if
        :: some ->
            tier_sync();
            lock_intent;
            wanted = 0; /* unmark() */
            marked = 0;
            some = busy > 0;
            some = some || changed;
            if
            :: some ->
                wanted = 1;
                marked = 1
            :: else -> map = wanted /* write_page(), not durable */
            fi;
            intent_lock = 0;
            some = 0
        :: else
        fi
    :: flushes == FLUSHES -> break
    od
    LIFE_END
}

/* ---- Crashes, and what comes after: tier/recover.c */

inline lose_memory()
{
    d_step {
        for (i : 1 .. HEADERS) {
            hd[i].memory = FREE;
            hd[i].part = NONE;
            hd[i].filled = 0;
            hd[i].hittable = 0;
            hd[i].buf = 0;
            hd[i].refs = 0;
            hd[i].waiting = 0;
            hd[i].handed = 0;
            hd[i].ticket = 0;
            queued[i] = 0
        }
        for (i : 1 .. BUFS) {
            bufs[i].memory = FREE;
            bufs[i].at[0] = POISON;
            bufs[i].at[1] = POISON
        }
        for (i : 0 .. READERS - 1) {
            asleep[i] = 0;
            reading[i] = 0;
            awaited[i] = 0
        }
        for (i : 0 .. WRITERS) {
            in_flight[i] = 0;
            conflict[i] = 0
        }
        for (i : 1 .. SLOTS) {
            seg[i].pins = 0
        }
        table = 0;
        place = 0;
        moment = 0;
        last = 0;
        writing = 0;
        update_of = 0;
        update_ticket = 0;
        busy = 0;
        changed = 0;
        intent_lock = 0;
        i = 0
    }
}

/* What was written since the last sync, each page for itself, is there or is not.
 * Between two syncs a page has no third state that is live: a footer that leaves is
 * replaced durably, and then its tags die before they live again. */
inline lose_pages()
{
    for (i : 1 .. SLOTS) {
        if
        :: seg[i].foot = seg[i].disk_foot
        :: true
        fi;
        if
        :: seg[i].tag = seg[i].disk_tag
        :: true
        fi;
        if
        :: !seg[i].synced -> seg[i].sum = 0
        :: true
        fi;
        seg[i].disk_foot = seg[i].foot;
        seg[i].disk_tag = seg[i].tag;
        seg[i].synced = 1
    }
    if
    :: map = disk_map
    :: true
    fi;
    disk_map = map;
    if
    :: VOLATILE ->
        for (i : 0 .. 1) {
            if
            :: below[i] = flushed[i]
            :: true
            fi;
            known[i] = below[i]
        }
    :: else
    fi;
    i = 0
}

/* take_blocks(), of one footer: recover_segment() */
inline recover_segment(s)
{
    d_step {
        seg[s].inc = seg[s].foot;
        if
        :: seg[s].foot != 0 && seg[s].tag == seg[s].foot &&
           !(other_boot && marked) && place == 0 -> place = s
        :: else ->
            seg[s].tag = 0;
            seg[s].foot = 0
        fi
    }
}

#define maybe_killed                                                                   \
    if                                                                                 \
    :: crashes < CRASHES -> goto killed                                                \
    :: true                                                                            \
    fi

proctype crash()
{
    byte i, crashes;

    do
    :: crashes < CRASHES ->
    killed:
        atomic {
            crashes++;
            keeps = (place != 0 && seg[place].foot == seg[place].inc &&
                     seg[place].tag == seg[place].inc);
            dead = 1;
            _nr_pr == 2; /* the others have left */
            lose_memory();
            if
            :: true /* the process */
            :: true -> /* the machine */
                keeps = keeps && !map && !disk_map && seg[1].synced && seg[2].synced &&
                        seg[1].foot == seg[1].disk_foot &&
                        seg[2].foot == seg[2].disk_foot &&
                        seg[1].tag == seg[1].disk_tag && seg[2].tag == seg[2].disk_tag;
                other_boot = 1;
                lose_pages()
            fi;
            /* intent_load() */
            marked = map;
            wanted = map;
            uncovered = map
        }
        recover_segment(1);
        maybe_killed;
        recover_segment(2);
        maybe_killed;
        tier_sync();
        maybe_killed;
        if
        :: other_boot -> /* intent_format() */
            d_step {
                map = 0;
                marked = 0;
                wanted = 0;
                uncovered = 0
            }
        :: else
        fi;
        maybe_killed;
        d_step {
            other_boot = 0; /* super_write() */
            assert(place == 0 || seg[place].sum != seg[place].inc ||
                   (seg[place].at[0] == below[0] && seg[place].at[1] == below[1]));
            assert(place != 0 || !keeps);
            keeps = 0
        }
        atomic {
            dead = 0;
            run reader(0)
        }
    :: _nr_pr == 2 -> break
    od
}
#endif

/* ---- All of them, and what is left when they are through. */

init
{
    byte i;

    atomic {
#if TIER
        if
        :: WARM ->
            place = 1;
            incarnation = 1;
            seg[1].sum = 1;
            seg[1].inc = 1;
            seg[1].foot = 1;
            seg[1].tag = 1;
            seg[1].disk_foot = 1;
            seg[1].disk_tag = 1
        :: else
        fi;
        if
        :: MARKED ->
            marked = 1;
            wanted = 1;
            map = 1;
            disk_map = 1
        :: true
        fi;
        seg[1].synced = 1;
        seg[2].synced = 1;
        run crash();
        run keeper();
#endif
        for (i : 0 .. READERS - 1) {
            run reader(i)
        }
        for (i : 0 .. WRITERS - 1) {
            run writer(i)
        }
        i = 0;
        do
        :: i < PREFETCHES ->
            run prefetcher();
            i++
        :: else -> break
        od;
        i = 0;
        run others()
    }
    _nr_pr == 1;
    d_step {
        for (i : 1 .. HEADERS) {
            assert(hd[i].refs == 0 && hd[i].waiting == 0 && !queued[i]);
            assert((hd[i].memory == USED) == (i == table));
            assert((hd[i].part != NONE) == (i == table));
            if
            :: i == table ->
                assert(hd[i].filled);
                assert(bufs[hd[i].buf].memory == USED)
            :: else
            fi
        }
#if TIER
        assert(writing == 0 && busy == 0 && !intent_lock);
        for (i : 1 .. SLOTS) {
            assert(seg[i].pins == 0);
            /* Invariant (I) of tier/format.h. */
            assert(seg[i].foot == 0 || seg[i].tag != seg[i].foot || i == place)
        }
        assert(place == 0 || seg[place].sum != seg[place].inc ||
               (seg[place].at[0] == below[0] && seg[place].at[1] == below[1]));
#endif
        i = 0
    }
}
