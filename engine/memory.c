/* SPDX-License-Identifier: BSD-3-Clause */
/* memory.c - see memory.h.
 *
 * What the last byte of each has earned is known of both:
 *
 *   blocks  demands that would have hit if the cache had been larger by an eighth, by a
 *           small cache beside those of the adaptive eviction (struct qm_cache_reads);
 *           of these, the share that was missed, as the others had been prefetched
 *   rules   prefetch hits of rules that would be the next to go (struct
 *           qm_mining_stats): rules of an eighth less memory would not have brought
 *           them
 *
 * Divided by the bytes, these are misses a byte, and the side with the greater value is
 * given bytes of the other, a step at a time: an eighth of what the rules have.  So
 * rules double or halve in some six steps, and a step is a small part of the cache.
 *
 * Where so little is missed that there are no such events in QUIET calls, and in
 * DEMANDS_EACH demands for each block of the cache, there is little to earn, and rules
 * have half of what they had, down to the least with which they learn much.
 *
 * A hot set that just fits without rules needs that, too.  If in such a time more was
 * missed than a plain cache that has all of the memory would have missed (its shadow),
 * rules have the least at once, and if that is so again they sleep: they forget all,
 * and have no block's memory.  They wake when there is something to decide by, or when
 * a WAKE_PART of the demands misses.  Each time that this was in vain they sleep
 * PATIENCE_GROW times as long before misses alone wake them again.
 *
 * Where blocks are worth much, prefetching as a whole may cost more than it saves:
 * those of few rules and those that wait take places, and useless reads delay others.
 * Compared are, in misses,
 *
 *   saved   the used blocks, times the part of a read's time that each saves (S of
 *           admission.h)
 *   places  what as many blocks more would have hit: a share of what an eighth would
 *   reads   the unused blocks, times the cost of a read by the threshold of
 *           admission.h, PRICE_MOST at most, as at the moment of a burst it says far
 *           more
 *
 * If saved is less than places and reads, twice in a row, rules sleep and nothing at
 * all is prefetched.  That a plain cache would have missed less, as above, is another
 * thing, and not the first of these two.  Estimates of what would have been missed
 * without prefetching are not used for this: they are some percent off, and all there
 * is to decide about is a few percent.  It is tried again when such a time has passed
 * PATIENCE_GROW times, and after each vain try that many times as often; and at once
 * when WAKE_GROWN times as much is missed, as of a scan that comes.  A try whose cost
 * is TRY_TIMES what it saves ends early: its rules have to be learned anew, so that
 * most of what it reads at first is useless.  What is missed in so short a time says
 * little, so that the whole time before the try is what later ones are compared with.
 * With another policy or another size, a try begins anew.  Rules that have more than a
 * few bytes have earned it, or have yet to be cut, and do not sleep for this.
 *
 * Rules that do not fill what they have are cut down to what they take, and a step.
 * They begin with little, and grow as they earn it, so that a cache that needs no rules
 * is one without rules.
 *
 * What decides is noisy, and a change has to show: so a decision takes a number of
 * events (misses and prefetch hits), EVENTS_EACH for each block of the cache and
 * EVENTS_LEAST at least; the values must differ by MARGIN; and a turn, to grow after
 * shrinking or the reverse, needs the same result TURN times in a row.
 */
#include "engine/memory.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_PART 32 /* of the memory, for rules, at first; */
#define MOST_PART  4  /* at most */

/* What rules ask for at least while they are awake; and asleep, when they keep nothing.
 */
#define LEAST_RULES (UINT64_C(64) << 10)
#define ASLEEP      (UINT64_C(1) << 8)

#define WAKE_PART     32 /* of the demands */
#define VAIN_PART     32 /* of a plain cache's misses, by which there must be more, */
#define VAIN_LEAST    8  /* and this many */
#define PLAINLY_PART  8  /* the same, for a decision at once */
#define PLAINLY_LEAST 32
#define PATIENCE_MAX  64 /* times of QUIET calls; a power of PATIENCE_GROW */
#define PATIENCE_GROW 4  /* factor for each try in vain */

/* Rules are few below the larger of two bounds: FEW_RULES bytes, and a part of the most
 * that they may have, below which a large table cannot shrink. */
#define FEW_RULES  (2 * LEAST_RULES)
#define FEW_PART   16   /* of the most that rules may have */
#define PRICE_MOST 1.0  /* misses */
#define WAKE_GROWN 1.25 /* times as much is missed as when they fell asleep */

/* A try to prefetch again, or the period after a bad one, ends early when all of these
 * are reached and TRY_TIMES what it saves would still cost more than it saves. */
#define TRY_TICKS  2    /* calls of qm_memory_tick() */
#define TRY_READS  1024 /* demands */
#define TRY_WASTED 32   /* blocks that left without being used */
#define TRY_TIMES  2.0

#define STEP_PART    8 /* of what rules have */
#define EVENTS_LEAST 4096
#define EVENTS_EACH  2 /* for each block of the cache */
#define MARGIN       1.25
#define TURN         2
#define QUIET        16 /* calls of qm_memory_tick() */
#define DEMANDS_EACH 8  /* for each block of the cache */

/* The part of the rules that is at the margin, by what their interface says. */
#define MARGINAL_PART 8.0

/* What a prefetch hit of such rules is worth, in misses: without them another rule, or
 * the cache, might have brought the block.  Found by trying on three recordings, where
 * from a quarter to a half makes little difference. */
#define WEIGHT 0.3

static uint64_t clamp(uint64_t n, uint64_t least, uint64_t most)
{
    return n < least ? least : n > most ? most : n;
}

uint64_t qm_memory_most_rules(uint64_t total)
{
    return total / MOST_PART > LEAST_RULES ? total / MOST_PART : LEAST_RULES;
}

uint64_t qm_memory_first_rules(uint64_t total)
{
    return clamp(total / FIRST_PART, LEAST_RULES, qm_memory_most_rules(total));
}

static uint64_t blocks_within(const struct qm_memory *m, uint64_t bytes)
{
    return m->config.simulated ? qm_cache_blocks_within(bytes, m->config.block_size)
                               : qm_cache_resize_within(m->config.cache, bytes);
}

/* What rules cost shows against a cache that has their memory, too. */
static void compare(const struct qm_memory *m)
{
    if (m->rules > 0)
        qm_cache_compare(m->config.cache, blocks_within(m, m->total));
}

void qm_memory_init(struct qm_memory *m, const struct qm_memory_config *config)
{
    *m = (struct qm_memory){
        .config = *config,
        .total = config->total,
        .rules = config->rules,
        .given = config->rules,
        .patience = 1,
    };
    pthread_mutex_init(&m->lock, NULL);
    compare(m);
}

void qm_memory_destroy(struct qm_memory *m)
{
    pthread_mutex_destroy(&m->lock);
}

/* Bounds the rules.  Returns what they may take then: more than `rules` if their table
 * cannot be that small, and less if it cannot be that large. */
static uint64_t give_rules(const struct qm_memory *m, uint64_t rules)
{
    struct qm_prefetcher *p = m->config.prefetcher;
    struct qm_mining_stats stats;

    if (!p->ops->set_memory || rules == 0)
        return rules;
    p->ops->set_memory(p, rules);
    p->ops->stats(p, &stats);
    return stats.rules_limit > rules ? stats.rules_limit : rules;
}

/* Gives the cache and the rules their parts.  What becomes smaller is first, and what
 * becomes larger waits until that memory is given back: so at no moment do they have
 * more than the larger of the old and the new total.  As qm_memory_resize(). */
static int divide(struct qm_memory *m, uint64_t total, uint64_t rules)
{
    const bool fewer = rules < m->given;
    uint64_t blocks = 0;
    int error = EINVAL;

    if (rules < total && blocks_within(m, total - rules) > 0) {
        if (fewer)
            rules = give_rules(m, rules);
        if (rules < total)
            blocks = blocks_within(m, total - rules);
    }
    if (blocks > 0)
        error = qm_cache_resize(m->config.cache, blocks);
    if (error != 0 && error != EAGAIN) {
        if (fewer)
            (void)give_rules(m, m->given);
        return error;
    }
    m->pending = error == EAGAIN;
    if (!fewer && rules > m->given && !m->pending) {
        uint64_t take = give_rules(m, rules);

        if (take > rules && take < total &&
            (blocks = blocks_within(m, total - take)) > 0) {
            error = qm_cache_resize(m->config.cache, blocks);
            m->pending = error == EAGAIN;
            rules = take;
        }
    }
    if (rules < m->given || !m->pending)
        m->given = rules;
    m->total = total;
    m->rules = rules;
    compare(m);
    return error;
}

static void rest(struct qm_memory *m, bool resting)
{
    m->resting = resting;
    if (m->config.bound)
        qm_bound_rest(m->config.bound, resting);
}

/* What was counted since the last decision. */
struct since {
    uint64_t misses, hits; /* of these, what had been prefetched */
    uint64_t plain;        /* misses of a plain cache; */
    bool compared;         /* unless nobody knows these */
    uint64_t demands;
    uint64_t wasted;   /* prefetched blocks that left unused */
    uint64_t held;     /* prefetched blocks that wait, now */
    uint64_t marginal; /* see struct qm_mining_stats */
    double gain;       /* see struct qm_cache_reads */
    uint64_t rules_bytes;
};

static struct since count(const struct qm_memory *m)
{
    struct qm_cache_reads reads;
    struct qm_cache_stats cache;
    struct qm_mining_stats stats;

    qm_cache_get_reads(m->config.cache, &reads);
    qm_cache_get_stats(m->config.cache, &cache);
    m->config.prefetcher->ops->stats(m->config.prefetcher, &stats);
    return (struct since){
        .misses = reads.misses - m->misses,
        .hits = reads.prefetch_hits - m->hits,
        .plain = reads.plain - m->plain,
        .compared = reads.lru > 0,
        .demands = cache.hits + cache.prefetch_hits + cache.misses - m->demands,
        .wasted = cache.wasted - m->wasted,
        .held = cache.prefetch_blocks,
        .marginal = stats.marginal - m->marginal,
        .gain = reads.gain - m->gain,
        .rules_bytes = stats.rules_bytes,
    };
}

/* The next decision is made of what is counted from now on. */
static void begin_to_count(struct qm_memory *m, const struct since *s)
{
    m->misses += s->misses;
    m->hits += s->hits;
    m->plain += s->plain;
    m->demands += s->demands;
    m->wasted += s->wasted;
    m->marginal += s->marginal;
    m->gain += s->gain;
    m->quiet = 0;
    m->held = m->price = 0;
    m->ticks = 0;
}

/* Whether rules have so few bytes that they have earned none. */
static bool has_few_rules(const struct qm_memory *m)
{
    const uint64_t part = qm_memory_most_rules(m->total) / FEW_PART;

    return m->rules < (part > FEW_RULES ? part : FEW_RULES);
}

static bool decides(const struct qm_memory *m)
{
    return m->config.trades && m->config.prefetcher->ops->set_memory;
}

/* Another policy or another size: what was seen so far says nothing of it. */
static void begin_anew(struct qm_memory *m)
{
    struct since s;

    m->vain = m->dear = false;
    m->trend = 0;
    if (!decides(m))
        return;
    s = count(m);
    begin_to_count(m, &s);
}

void qm_memory_use(struct qm_memory *m, struct qm_prefetcher *prefetcher)
{
    pthread_mutex_lock(&m->lock);
    m->config.prefetcher = prefetcher;
    m->marginal = 0; /* it begins to count anew */
    m->given = m->rules;
    if (m->asleep) {
        m->asleep = false;
        rest(m, false);
        (void)divide(m, m->total, qm_memory_first_rules(m->total));
    } else {
        (void)give_rules(m, m->rules);
    }
    begin_anew(m);
    pthread_mutex_unlock(&m->lock);
}

int qm_memory_resize(struct qm_memory *m, uint64_t total)
{
    uint64_t rules = 0;
    int error;

    pthread_mutex_lock(&m->lock);
    if (m->asleep)
        rules = ASLEEP;
    else if (m->rules > 0)
        rules = clamp((uint64_t)((double)m->rules / (double)m->total * (double)total),
                      LEAST_RULES, qm_memory_most_rules(total));
    error = divide(m, total, rules);
    if (error == 0 || error == EAGAIN)
        begin_anew(m);
    pthread_mutex_unlock(&m->lock);
    return error;
}

/* Whether a plain cache would have missed less, by one of `part` and `least` misses. */
static bool is_vain(const struct since *s, unsigned part, unsigned least)
{
    return s->compared && s->misses > s->plain + s->plain / part + least &&
           s->hits < s->misses;
}

/* The part of the demands that missed, or would have without prefetching. */
static double missed(const struct since *s)
{
    return (double)(s->misses + s->hits) / (double)s->demands;
}

/* The part of a read's time that a prefetched block saves if it is used. */
static double saved(const struct qm_memory *m)
{
    const struct qm_admission *a = m->config.admission;

    return a ? (double)atomic_load_explicit(&a->saved, memory_order_relaxed) : 1;
}

/* What a read ahead costs at the moment, in misses: of the probability from which on it
 * is worth it (admission.h). */
static double price(const struct qm_memory *m)
{
    double p = m->config.admission ? qm_admission_threshold(m->config.admission) : 0;
    double cost = saved(m) * p / (1 - p);

    return cost < PRICE_MOST ? cost : PRICE_MOST;
}

/* Whether `times` what prefetching saves is less than the places of rules and
 * prefetched blocks cost, and its useless reads. */
static bool is_dear(const struct qm_memory *m, const struct since *s, uint64_t blocks,
                    double times)
{
    const double taken =
        m->held / m->ticks + (double)s->rules_bytes / m->config.block_size;
    const double places = s->gain * QM_CACHE_GAIN_PART * taken / (double)blocks;
    const double reads = (double)s->wasted * m->price / m->ticks;

    return times * saved(m) * (double)s->hits < places + reads;
}

static uint64_t wake(struct qm_memory *m)
{
    m->asleep = false;
    rest(m, false);
    return LEAST_RULES;
}

static uint64_t fall_asleep(struct qm_memory *m)
{
    m->vain = m->dear = false;
    m->asleep = true;
    m->slept = 0;
    m->patience *= m->patience < PATIENCE_MAX ? PATIENCE_GROW : 1;
    return ASLEEP;
}

static uint64_t fall_to_rest(struct qm_memory *m)
{
    rest(m, true);
    return fall_asleep(m);
}

/* Whether a try, or the time after one that was dear, is plainly in vain before it is
 * over. */
static bool is_plainly_dear(const struct qm_memory *m, const struct since *s,
                            uint64_t blocks)
{
    return !m->asleep && m->dear && has_few_rules(m) && m->ticks >= TRY_TICKS &&
           s->demands >= TRY_READS && s->wasted >= TRY_WASTED &&
           is_dear(m, s, blocks, TRY_TIMES);
}

/* Rules were in vain.  What they should have. */
static uint64_t yield(struct qm_memory *m)
{
    m->trend = 0;
    if (!m->vain) {
        m->vain = true;
        return LEAST_RULES;
    }
    return fall_asleep(m);
}

/* The same, where little was missed, of many demands. */
static uint64_t decide_quiet(struct qm_memory *m, const struct since *s)
{
    if (m->asleep) {
        if (s->misses < s->demands / WAKE_PART || ++m->slept < m->patience)
            return m->rules;
        return wake(m);
    }
    if (is_vain(s, VAIN_PART, VAIN_LEAST))
        return yield(m);
    m->vain = false;
    m->patience = 1;
    return clamp(m->rules / 2, LEAST_RULES, qm_memory_most_rules(m->total));
}

/* And where much was. */
static uint64_t decide_busy(struct qm_memory *m, const struct since *s, uint64_t blocks)
{
    const uint64_t most = qm_memory_most_rules(m->total);
    const uint64_t step = m->rules / STEP_PART;
    double missed, of_rules, of_blocks;
    int better;

    m->vain = false;
    if (m->asleep)
        return wake(m);
    if (s->rules_bytes + 2 * step < m->rules) {
        m->trend = 0;
        return clamp(s->rules_bytes + step, LEAST_RULES, most);
    }
    missed = (double)s->misses / (double)(s->misses + s->hits);
    of_blocks =
        s->gain * missed * QM_CACHE_GAIN_PART / ((double)blocks * m->config.block_size);
    of_rules = (double)s->marginal * MARGINAL_PART * WEIGHT / (double)s->rules_bytes;
    better = of_rules > of_blocks * MARGIN ? 1 : of_blocks > of_rules * MARGIN ? -1 : 0;
    if (better * m->trend < 0)
        m->trend = 0;
    m->trend += better;
    if (better == 0 || abs(m->trend) < TURN)
        return m->rules;
    return clamp(better > 0 ? m->rules + step : m->rules - step, LEAST_RULES, most);
}

/* The same, of what was counted since the last decision. */
static uint64_t decide_by(struct qm_memory *m, const struct since *s, bool busy)
{
    const uint64_t blocks = qm_cache_capacity(m->config.cache);

    if (m->resting) {
        if (missed(s) > m->missed * WAKE_GROWN)
            m->patience = 1;
        if (++m->slept < m->patience)
            return m->rules;
        m->missed = missed(s);
        m->vain = m->dear = true; /* a bad time more of either kind will do */
        return wake(m);
    }
    if (!m->asleep && has_few_rules(m) && is_dear(m, s, blocks, 1)) {
        m->missed = missed(s);
        if (m->dear)
            return fall_to_rest(m);
        m->dear = true;
        return m->rules;
    }
    m->dear = false;
    return busy ? decide_busy(m, s, blocks) : decide_quiet(m, s);
}

/* What rules should have; what they have if there is nothing to decide. */
static uint64_t decide(struct qm_memory *m)
{
    const uint64_t blocks = qm_cache_capacity(m->config.cache);
    const struct since s = count(m);
    bool busy, quiet;
    uint64_t rules;

    m->held += (double)s.held;
    m->price += price(m);
    m->ticks++;
    busy =
        s.misses + s.hits >= EVENTS_LEAST && s.misses + s.hits >= blocks * EVENTS_EACH;
    quiet = ++m->quiet % QUIET == 0 && s.demands >= blocks * DEMANDS_EACH;
    if (!m->asleep && is_vain(&s, PLAINLY_PART, PLAINLY_LEAST)) {
        begin_to_count(m, &s);
        return yield(m);
    }
    if (is_plainly_dear(m, &s, blocks)) {
        rules = fall_to_rest(m);
    } else {
        if (!busy && !quiet)
            return m->rules;
        rules = decide_by(m, &s, busy);
    }
    begin_to_count(m, &s);
    return rules;
}

void qm_memory_tick(struct qm_memory *m)
{
    uint64_t rules;

    pthread_mutex_lock(&m->lock);
    if (m->pending) {
        (void)divide(m, m->total, m->rules);
    } else if (decides(m)) {
        rules = decide(m);
        if (rules != m->rules && divide(m, m->total, rules) != EINVAL)
            m->traded++;
    }
    pthread_mutex_unlock(&m->lock);
}

void qm_memory_get_stats(struct qm_memory *m, struct qm_memory_stats *stats)
{
    pthread_mutex_lock(&m->lock);
    *stats = (struct qm_memory_stats){
        .total = m->total,
        .rules = m->rules,
        .blocks = qm_cache_capacity(m->config.cache),
        .traded = m->traded,
        .resting = m->resting,
    };
    pthread_mutex_unlock(&m->lock);
}
