/* SPDX-License-Identifier: BSD-3-Clause */
/* table.c - a set-associative table whose sets are cache lines of eight words.
 *
 * A key's hash names a line and a tag.  A word of that line is a pair, or 0:
 *
 *   bits 0-33   the block
 *   bits 34-49  tag: which of the line's keys
 *   bits 50-53  count; 0: no pair is here
 *   bits 54-55  how often others followed the key since (3: or more often)
 *   bits 56-59  age: pairs that entered the line since this one was last of use
 *   bits 60-63  the owner
 *
 * All of a key's pairs are in one line, so a key with one follower takes 8 bytes.
 *
 * What goes when a line is full is the pair of the lowest count, the oldest of these.
 * Most pairs are seen once and never again, so an entering pair takes the place of such
 * a one as a rule; that those with higher counts do not stay for ever, one in
 * FADE_EVERY of the entering pairs lowers the counts of all in its line.
 *
 * All of that passes over pairs of other owners that are present and have no more than
 * their share of the line.  Such a pair's count is lowered by its owner's reads only:
 * that others read something else after the same block says little of what he will
 * read.
 *
 * table-size.c says how lines become more and fewer.
 */
#define XXH_INLINE_ALL
#include <stdbool.h>
#include <xxhash.h>

#include "mining/markov/table-lines.h"

uint64_t qm_markov_key1(uint64_t b)
{
    return XXH3_64bits(&b, sizeof b);
}

uint64_t qm_markov_key2(uint64_t a, uint64_t b)
{
    uint64_t both[] = {a, b};

    return XXH3_64bits(both, sizeof both);
}

void qm_markov_owners(struct qm_markov *p, unsigned there)
{
    atomic_store_explicit(&p->owners, there & ~1u, memory_order_relaxed);
}

/* Whether w belongs to another owner, which is present. */
static bool is_others(const struct qm_markov *p, const struct word *w, unsigned owner)
{
    return w->owner != owner &&
           atomic_load_explicit(&p->owners, memory_order_relaxed) >> w->owner & 1;
}

/* Another block than w's followed its key.  others: this is known from other contexts'
 * reads. */
static void weaken(struct word *w, bool others)
{
    if (w->since < SINCE_MAX)
        w->since++;
    if (!others)
        w->count -= (w->count + 3) / 8; /* 5 and more, by one or two */
}

/* Something enters the line of w. */
static void grow_older(struct word *w, bool fade)
{
    if (w->age < AGE_MAX)
        w->age++;
    if (fade && w->count > 1)
        w->count--;
}

/* Which of a line's words belong to other owners that are present and have their share
 * of it or less, when a pair of owner's enters. */
static unsigned spared(const struct qm_markov *p, const struct word *words,
                       unsigned owner)
{
    unsigned has[QM_MARKOV_OWNERS] = {0}, owners = 1, spared = 0;

    for (unsigned i = 0; i < WAYS; i++)
        if (words[i].count > 0 && is_others(p, &words[i], owner))
            owners += has[words[i].owner]++ == 0;
    if (owners == 1)
        return 0;
    for (unsigned i = 0; i < WAYS; i++)
        if (words[i].count > 0 && is_others(p, &words[i], owner) &&
            has[words[i].owner] * owners <= WAYS)
            spared |= 1u << i;
    return spared;
}

static void grow_if_crowded(struct qm_markov *p, uint64_t held)
{
    if (held > lines_in_use(p) * HELD_PER_LINE)
        qm_markov_split_next(p);
}

static void hold_one_more(struct qm_markov *p)
{
    grow_if_crowded(p,
                    atomic_fetch_add_explicit(&p->held, 1, memory_order_relaxed) + 1);
}

/* The pair is not there yet: it takes the place of the least worth. */
static void enter(struct qm_markov *p, struct line *line, struct word new)
{
    bool fade = new.block % FADE_EVERY == 0;
    struct word words[WAYS], gone = {0};
    unsigned least = WAYS, sparing;

    for (unsigned i = 0; i < WAYS; i++)
        words[i] = unpack(load(line, i));
    sparing = spared(p, words, new.owner);
    for (unsigned i = 0; i < WAYS; i++) {
        if (sparing >> i & 1 || (least < WAYS && !goes_before(&words[i], &gone)))
            continue;
        gone = words[i];
        least = i;
    }
    if (least == WAYS) /* owners have changed meanwhile */
        return;
    for (unsigned i = 0; i < WAYS; i++) {
        if (i == least || sparing >> i & 1 || words[i].count == 0)
            continue;
        uint64_t was = pack(&words[i]);
        grow_older(&words[i], fade);
        store(line, i, was, &words[i]);
    }
    store(line, least, 0, &new);
    if (gone.count == 0) {
        hold_one_more(p);
        return;
    }
    atomic_fetch_add_explicit(&p->evicted, 1, memory_order_relaxed);
    /* All of its lines may be full: it could have no more until now. */
    grow_if_crowded(p, atomic_load_explicit(&p->held, memory_order_relaxed));
}

/* Whether w, of this line, would be the next to go. */
static bool is_marginal(const struct line *line, const struct word *w)
{
    for (unsigned i = 0; i < WAYS; i++) {
        struct word other = unpack(load(line, i));

        if (other.count == 0 || goes_before(&other, w))
            return false;
    }
    return true;
}

enum qm_markov_known qm_markov_learn(struct qm_markov *p, unsigned owner, uint64_t key,
                                     uint64_t block)
{
    struct line *line = line_of(p, key);
    struct word new = {.block = block, .tag = tag_of(key), .count = 1, .owner = owner};
    enum qm_markov_known known = QM_MARKOV_NEW;

    if (block >= QM_MARKOV_BLOCKS || !line)
        return known;
    for (unsigned i = 0; i < WAYS; i++) {
        uint64_t was = load(line, i);
        struct word w = unpack(was);

        if (w.count == 0 || w.tag != new.tag)
            continue;
        if (w.block == block) {
            known = is_marginal(line, &w) ? QM_MARKOV_MARGINAL : QM_MARKOV_KNOWN;
            if (w.count < QM_MARKOV_COUNT_MAX)
                w.count++;
            w.since = w.age = 0;
            if (!is_others(p, &w, owner))
                w.owner = owner;
        } else {
            weaken(&w, is_others(p, &w, owner));
        }
        store(line, i, was, &w);
    }
    if (known == QM_MARKOV_NEW)
        enter(p, line, new);
    return known;
}

void qm_markov_expect(const struct qm_markov *p, uint64_t key)
{
    __builtin_prefetch(line_of(p, key)); /* of NULL it does nothing */
}

/* What follows the key of that tag in the line, at least min_count times. */
static unsigned find_tag(const struct line *line, unsigned tag, unsigned min_count,
                         struct qm_markov_pair found[QM_MARKOV_FOUND_MAX])
{
    unsigned n = 0, sum = 0;

    for (unsigned i = 0; i < WAYS; i++) {
        struct word w = unpack(load(line, i));

        if (w.count < min_count || w.tag != tag)
            continue;
        found[n++] = (struct qm_markov_pair){
            .block = w.block, .count = w.count, .since = w.since};
        sum += w.count;
    }
    for (unsigned i = 0; i < n; i++)
        found[i].rest = sum - found[i].count;
    return n;
}

unsigned qm_markov_find(const struct qm_markov *p, uint64_t key,
                        struct qm_markov_pair found[QM_MARKOV_FOUND_MAX])
{
    const struct line *line = line_of(p, key);

    return line ? find_tag(line, tag_of(key), 1, found) : 0;
}

uint64_t qm_markov_lines(const struct qm_markov *p)
{
    return p->n;
}

/* As qm_markov_each(), for a line of a table of full size: the lowest tag first. */
static int each_key(const struct qm_markov *p, uint64_t number, unsigned min_count,
                    int (*each)(void *opaque, uint64_t line, unsigned tag,
                                const struct qm_markov_pair *found, unsigned n),
                    void *opaque)
{
    unsigned apart = 1u << p->levels, in_line = (unsigned)(number / p->first);
    const struct line *line = line_at(p, number % p->first, in_line);
    struct qm_markov_pair found[QM_MARKOV_FOUND_MAX];
    int r = 0;

    for (unsigned from = 0; line && r == 0;) {
        unsigned tag = TAGS;

        for (unsigned i = 0; i < WAYS; i++) {
            struct word w = unpack(load(line, i));

            if (w.count >= min_count && w.tag % apart == in_line && w.tag >= from &&
                w.tag < tag)
                tag = w.tag;
        }
        if (tag == TAGS)
            break;
        from = tag + 1;
        unsigned n = find_tag(line, tag, min_count, found);
        if (n > 0) /* they may have gone meanwhile */
            r = each(opaque, number, tag, found, n);
    }
    return r;
}

int qm_markov_each(const struct qm_markov *p, unsigned min_count,
                   int (*each)(void *opaque, uint64_t line, unsigned tag,
                               const struct qm_markov_pair *found, unsigned n),
                   void *opaque)
{
    int r = 0;

    for (uint64_t i = 0; i < p->n && r == 0; i++)
        r = each_key(p, i, min_count ? min_count : 1, each, opaque);
    return r;
}

/* Puts a pair into its line: in a free place, or in that of one with a lower count; or
 * nowhere, where there is no line. */
static void put(struct qm_markov *p, struct line *line, struct word new)
{
    unsigned at = WAYS;
    struct word least = new;

    if (!line)
        return;
    for (unsigned i = 0; i < WAYS; i++) {
        uint64_t was = load(line, i);
        struct word w = unpack(was);

        if (w.count > 0 && w.tag == new.tag && w.block == new.block) {
            w.count = w.count > new.count ? w.count : new.count;
            store(line, i, was, &w);
            return;
        }
        if (w.count < least.count) {
            least = w;
            at = i;
        }
    }
    if (at == WAYS)
        return;
    store(line, at, 0, &new);
    if (least.count > 0)
        atomic_fetch_add_explicit(&p->evicted, 1, memory_order_relaxed);
    else
        hold_one_more(p);
}

bool qm_markov_fits(const struct qm_markov *p, uint64_t line, unsigned tag,
                    uint64_t block, uint64_t count)
{
    return line < p->n && tag < TAGS && tag % (1u << p->levels) == line / p->first &&
           block < QM_MARKOV_BLOCKS && count >= 1 && count <= QM_MARKOV_COUNT_MAX;
}

bool qm_markov_put(struct qm_markov *p, uint64_t line, unsigned tag, uint64_t block,
                   uint64_t count)
{
    struct word new = {.block = block, .tag = tag, .count = (unsigned)count};

    if (!qm_markov_fits(p, line, tag, block, count))
        return false;
    put(p, line_at(p, line % p->first, tag), new);
    return true;
}

/* Copies what follows key, and returns it. */
static unsigned adopt_key(struct qm_markov *to, const struct qm_markov *from,
                          uint64_t key,
                          struct qm_markov_pair found[QM_MARKOV_FOUND_MAX])
{
    unsigned n = qm_markov_find(from, key, found);

    for (unsigned i = 0; i < n; i++)
        put(to, line_of(to, key),
            (struct word){
                .block = found[i].block, .tag = tag_of(key), .count = found[i].count});
    return n;
}

/* Copies what follows a block, and it and the next. */
static void adopt_block(struct qm_markov *to, const struct qm_markov *from, uint64_t b)
{
    struct qm_markov_pair next[QM_MARKOV_FOUND_MAX], found[QM_MARKOV_FOUND_MAX];
    unsigned n = adopt_key(to, from, qm_markov_key1(b), next);

    for (unsigned i = 0; i < n; i++)
        adopt_key(to, from, qm_markov_key2(b, next[i].block), found);
}

void qm_markov_adopt(struct qm_markov *to, const struct qm_markov *from)
{
    uint64_t first = UINT64_MAX, last = 0, keys = from->n << (TAG_BITS - from->levels);
    uint64_t most = keys / ADOPT_PART < ADOPT_MAX ? keys / ADOPT_PART : ADOPT_MAX;
    uint64_t in_use = lines_in_use(from);

    for (uint64_t i = 0; i < in_use * WAYS; i++) {
        struct word w = unpack(load(&from->lines[i / WAYS], i % WAYS));

        if (w.count == 0)
            continue;
        first = w.block < first ? w.block : first;
        last = w.block > last ? w.block : last;
    }
    if (first > last)
        return;
    if (last - first < most) {
        first = first > ADOPT_MARGIN ? first - ADOPT_MARGIN : 0;
        for (uint64_t b = first; b <= last + ADOPT_MARGIN; b++)
            adopt_block(to, from, b);
        return;
    }
    for (uint64_t i = 0; i < in_use * WAYS; i++) {
        struct word w = unpack(load(&from->lines[i / WAYS], i % WAYS));

        if (w.count > 0)
            adopt_block(to, from, w.block);
    }
}

void qm_markov_get_stats(const struct qm_markov *p, struct qm_markov_stats *stats)
{
    *stats = (struct qm_markov_stats){
        .held = atomic_load_explicit(&p->held, memory_order_relaxed),
        .evicted = atomic_load_explicit(&p->evicted, memory_order_relaxed),
        .bytes = (lines_in_use(p) + 1) * LINE,
        .most = (atomic_load_explicit(&p->most, memory_order_relaxed) + 1) * LINE,
    };
}
