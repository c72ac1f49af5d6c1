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
 * and have no block's memory.  But where a plain cache misses much, too, they give way
 * only if they, or what was prefetched, can be why: it may be the eviction
 * (memory-counts.c).  Rules wake when there is something to decide by, or when a
 * WAKE_PART of the demands misses.  Each time that this was in vain they sleep
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
 * is to decide about is a few percent.  When such a time has passed PATIENCE_GROW
 * times, and after each time in vain that many times as often, rules wake; and at once
 * when WAKE_GROWN times as much is missed, as of a scan that comes.  Then they learn
 * anew, and nothing is read yet: what they want is watched (watch.h), and as soon as
 * that would have saved TRY_TIMES what it costs, prefetching is tried.  If it does not
 * come to that, rules sleep on.  Either ends early if its cost is TRY_TIMES what it
 * saves.  What is missed in so short a time says little, so that the whole time before
 * is what later ones are compared with.  With another policy or another size, a try
 * begins anew.  Rules that have more than a few bytes have earned it, or have yet to be
 * cut, and do not sleep for this.
 *
 * Rules that do not fill what they have are cut down to what they take, and a step.
 * They begin with little, and grow as they earn it, so that a cache that needs no rules
 * is one without rules.  While they are *young* they may fill up to a FIRST_PART of the
 * memory without having earned it, as long as a FILL_PART of the demands misses, or
 * would without prefetching: where nearly all fits, the memory that they take costs
 * more misses than they save.  If it is not known that they are worth it (watch.h) when
 * the cache is full, and less than a FIT_PART of the demands misses, what is read may
 * just fit: they sleep at once, until more is missed after all.
 *
 * What decides is noisy, and a change has to show: so a decision takes a number of
 * events (misses and prefetch hits), EVENTS_EACH for each block of the cache and
 * EVENTS_LEAST at least; the values must differ by MARGIN; and a turn, to grow after
 * shrinking or the reverse, needs the same result TURN times in a row.
 */
#include "engine/memory-counts.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_PART 32 /* of the memory, for rules, before they have earned any; */
#define MOST_PART  4  /* at most */

/* What rules take at least, about: their table a 32nd of the most that it was made for
 * (mining/markov/table.h), the confidence filter and the ages some KiB, and readahead a
 * quarter of all. */
#define TABLE_PART  24
#define TABLE_LEAST (UINT64_C(40) << 10)

/* What rules ask for at least while they are awake; and asleep, when they keep nothing.
 */
#define LEAST_RULES (UINT64_C(64) << 10)
#define ASLEEP      (UINT64_C(1) << 8)

#define WAKE_PART     32 /* of the demands */
#define FIT_PART      32 /* the same, below which what is read may just fit */
#define FILL_PART     8  /* the same, from which on young rules may fill more */
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
#define WAKE_GROWN 1.25 /* times as much is missed as when they fell asleep */

/* A try to prefetch again, or the period after a bad one, ends early when all of these
 * are reached and TRY_TIMES what it saves would still cost more than it saves. */
#define TRY_TICKS  2    /* calls of qm_memory_tick() */
#define TRY_READS  1024 /* demands */
#define TRY_BLOCKS 32   /* that left without being used, or would have been used */
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
    const uint64_t most = qm_memory_most_rules(total);

    return clamp(most / TABLE_PART + TABLE_LEAST, LEAST_RULES, most);
}

/* What they may fill before they have earned it. */
static uint64_t young_rules(uint64_t total)
{
    return clamp(total / FIRST_PART, qm_memory_first_rules(total),
                 qm_memory_most_rules(total));
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
        .young = true,
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
    struct qm_memory_counts c;

    m->vain = m->dear = false;
    m->trend = 0;
    if (!decides(m))
        return;
    c = qm_memory_count(m);
    qm_memory_count_anew(m, &c);
}

static void watch(struct qm_memory *m, bool watching)
{
    m->watching = watching;
    if (m->config.bound)
        qm_bound_watch(m->config.bound, watching);
}

void qm_memory_use(struct qm_memory *m, struct qm_prefetcher *prefetcher)
{
    pthread_mutex_lock(&m->lock);
    m->config.prefetcher = prefetcher;
    m->given = m->rules;
    m->fits = false;
    watch(m, false);
    rest(m, false);
    if (m->asleep) {
        m->asleep = false;
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

static uint64_t wake(struct qm_memory *m)
{
    m->asleep = false;
    rest(m, false);
    return LEAST_RULES;
}

/* Rules wake, but what they want is watched. */
static uint64_t wake_to_watch(struct qm_memory *m)
{
    m->asleep = false;
    m->dear = true; /* it ends as soon as it is plainly in vain */
    watch(m, true);
    return LEAST_RULES;
}

/* What was watched would have paid.  A bad time more of either kind will do. */
static uint64_t try_again(struct qm_memory *m)
{
    watch(m, false);
    m->vain = m->dear = true;
    rest(m, false);
    return m->rules;
}

static uint64_t fall_asleep(struct qm_memory *m)
{
    watch(m, false);
    m->vain = m->dear = m->young = false;
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

static bool is_few(const struct qm_memory *m, const struct qm_memory_counts *c)
{
    return m->ticks < TRY_TICKS || c->demands < TRY_READS;
}

/* Whether a try, or the time after one that was dear, is plainly in vain before it is
 * over. */
static bool is_plainly_dear(const struct qm_memory *m, const struct qm_memory_counts *c,
                            uint64_t blocks)
{
    return !m->asleep && m->dear && has_few_rules(m) && !is_few(m, c) &&
           c->wasted >= TRY_BLOCKS && qm_memory_is_dear(m, c, blocks, TRY_TIMES);
}

/* Whether what is watched plainly pays before that is over. */
static bool pays_plainly(const struct qm_memory *m, const struct qm_memory_counts *c,
                         uint64_t blocks)
{
    return m->watching && !is_few(m, c) && c->saved >= TRY_BLOCKS &&
           !qm_memory_is_dear(m, c, blocks, 1 / TRY_TIMES);
}

/* Rules were in vain.  What they should have. */
static uint64_t yield(struct qm_memory *m)
{
    m->trend = 0;
    m->young = false;
    if (!m->vain && m->rules > qm_memory_first_rules(m->total)) {
        m->vain = true;
        return LEAST_RULES;
    }
    return fall_asleep(m);
}

/* The same, where little was missed, of many demands. */
static uint64_t decide_quiet(struct qm_memory *m, const struct qm_memory_counts *c)
{
    if (m->asleep) {
        if (c->misses < c->demands / WAKE_PART || ++m->slept < m->patience)
            return m->rules;
        return wake(m);
    }
    if (qm_memory_is_vain(c, VAIN_PART, VAIN_LEAST))
        return yield(m);
    m->vain = false;
    m->patience = 1;
    return clamp(m->rules / 2, LEAST_RULES, qm_memory_most_rules(m->total));
}

/* And where much was. */
static uint64_t decide_busy(struct qm_memory *m, const struct qm_memory_counts *c,
                            uint64_t blocks)
{
    const uint64_t most = qm_memory_most_rules(m->total);
    const uint64_t step = m->rules / STEP_PART;
    double missed, of_rules, of_blocks;
    int better;

    m->vain = false;
    if (m->asleep)
        return wake(m);
    if (c->rules_bytes + 2 * step < m->rules) {
        m->trend = 0;
        return clamp(c->rules_bytes + step, LEAST_RULES, most);
    }
    missed = (double)c->misses / (double)(c->misses + c->hits);
    of_blocks = qm_memory_places(c, missed / ((double)blocks * m->config.block_size));
    of_rules = (double)c->marginal * MARGINAL_PART * WEIGHT / (double)c->rules_bytes;
    better = of_rules > of_blocks * MARGIN ? 1 : of_blocks > of_rules * MARGIN ? -1 : 0;
    if (better * m->trend < 0)
        m->trend = 0;
    m->trend += better;
    if (better == 0 || abs(m->trend) < TURN)
        return m->rules;
    return clamp(better > 0 ? m->rules + step : m->rules - step, LEAST_RULES, most);
}

/* The same, of what was counted since the last decision. */
static uint64_t decide_by(struct qm_memory *m, const struct qm_memory_counts *c,
                          bool busy)
{
    const uint64_t blocks = qm_cache_capacity(m->config.cache);

    if (m->watching)
        return fall_to_rest(m); /* it does not plainly pay */
    if (m->resting) {
        if (qm_memory_missed(c) > m->missed * WAKE_GROWN)
            m->patience = 1;
        if (++m->slept < m->patience)
            return m->rules;
        m->missed = qm_memory_missed(c);
        return m->config.bound ? wake_to_watch(m) : wake(m);
    }
    if (!m->asleep && !m->young && has_few_rules(m) &&
        qm_memory_is_dear(m, c, blocks, 1)) {
        m->missed = qm_memory_missed(c);
        if (m->dear)
            return fall_to_rest(m);
        m->dear = true;
        return m->rules;
    }
    m->dear = false;
    return busy ? decide_busy(m, c, blocks) : decide_quiet(m, c);
}

static bool is_proven(const struct qm_memory *m)
{
    return !m->config.bound || qm_watch_is_proven(&m->config.bound->watch, false);
}

/* What young rules should have that sleep since what is read may just fit, after more
 * was missed. */
static uint64_t decide_fit(struct qm_memory *m, uint64_t misses, uint64_t blocks)
{
    m->fit_misses += misses;
    if (m->fit_misses < blocks / FIT_PART + PLAINLY_LEAST)
        return m->rules;
    m->fits = m->asleep = false;
    m->fitted = true;
    return qm_memory_first_rules(m->total);
}

/* What young rules should have. */
static uint64_t decide_young(struct qm_memory *m, const struct qm_memory_counts *c,
                             uint64_t blocks)
{
    const uint64_t misses = m->misses + c->misses - m->ticked_misses;
    const uint64_t hits = m->hits + c->hits - m->ticked_hits;
    const uint64_t demands = m->demands + c->demands - m->ticked_demands;
    const uint64_t most = young_rules(m->total);

    m->ticked_misses += misses;
    m->ticked_hits += hits;
    m->ticked_demands += demands;
    if (m->fits)
        return decide_fit(m, misses, blocks);
    if (!is_proven(m) && !m->fitted && c->full && misses < demands / FIT_PART) {
        m->fits = m->asleep = true;
        return ASLEEP;
    }
    if (m->rules >= most)
        m->young = false;
    if (m->rules >= most || misses + hits < demands / FILL_PART ||
        c->rules_bytes + LEAST_RULES / 4 < m->rules)
        return m->rules;
    return clamp(c->rules_bytes + c->rules_bytes / 2 + LEAST_RULES, m->rules, most);
}

/* What rules should have; what they have if there is nothing to decide. */
static uint64_t decide(struct qm_memory *m)
{
    const uint64_t blocks = qm_cache_capacity(m->config.cache);
    const struct qm_memory_counts c = qm_memory_count(m);
    bool busy, quiet;
    uint64_t rules;

    m->held += c.held;
    m->price += qm_memory_price(m);
    m->ticks++;
    busy =
        c.misses + c.hits >= EVENTS_LEAST && c.misses + c.hits >= blocks * EVENTS_EACH;
    quiet = ++m->quiet % QUIET == 0 && c.demands >= blocks * DEMANDS_EACH;
    if (m->young && !m->resting) {
        rules = decide_young(m, &c, blocks);
        if (rules != m->rules || m->fits)
            return rules;
    }
    if (!m->asleep && qm_memory_is_vain(&c, PLAINLY_PART, PLAINLY_LEAST)) {
        qm_memory_count_anew(m, &c);
        return yield(m);
    }
    if (is_plainly_dear(m, &c, blocks)) {
        rules = fall_to_rest(m);
    } else if (pays_plainly(m, &c, blocks)) {
        rules = try_again(m);
    } else {
        if (!busy && !quiet)
            return m->rules;
        rules = decide_by(m, &c, busy);
    }
    qm_memory_count_anew(m, &c);
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
