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
 * The lines are in use from the first on, and more of them as pairs come, so that few
 * pairs take little memory: linear hashing (Litwin, VLDB'80).  With n = first << level
 * lines in use, a key's line is
 *
 *   the hash's high bits, scaled to first  +  first * the tag's lowest level bits.
 *
 * To grow, line by line, beginning with line 0, is split: what has the tag's next bit
 * goes from line i to line i + n; when all n have been, level is one more.  A word has
 * its tag, so where it goes is known.  But at full size as many bits of the tag as
 * there were levels say what the line says: two keys of a line are taken for one
 * another once in 2,048 then, and less often before.
 *
 * A line is split when there are more than HELD_PER_LINE pairs for each: then few
 * overflow, as long as there are lines left (keys' lines are Poisson-distributed; most
 * that do have a key that many blocks follow).  That a pair has given way is no reason
 * to grow: where many blocks follow one, they do so for ever.
 *
 * To shrink, the last line that was split is joined with the one that it came of.  A
 * table that may have fewer than its first lines knows a sample of the keys: those
 * whose line is among the first `active` ones.
 *
 * One thread splits or joins, no other waits for it: they may miss what is being moved,
 * or leave something in the old line, where it is not found any more and grows old.
 */
#define XXH_INLINE_ALL
#include "mining/markov/table.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    WAYS = QM_MARKOV_FOUND_MAX,
    LINE = 64, /* bytes */
    BLOCK_BITS = 34,
    TAG_BITS = 16,
    TAGS = 1 << TAG_BITS,
    SINCE_MAX = 3,
    AGE_MAX = 15,
    FADE_EVERY = 4,
    HELD_PER_LINE = 2,
    LEVELS = 5,       /* a table begins with a 32nd of its lines, */
    FIRST_MIN = 64,   /* but a page of them if it has that, */
    SAMPLE_PART = 32, /* and can do with a part of these */
    NEXT_BITS = 56,
    /* Blocks that are tried to find out what a table's keys are of: no more than an
     * eighth of the keys that it can tell apart, so that few are taken for another, and
     * no more than take some seconds. */
    ADOPT_PART = 8,
    ADOPT_MAX = 1 << 26,
    ADOPT_MARGIN = 1024, /* beyond the blocks that are known to follow others */
};

struct line {
    _Alignas(LINE) _Atomic uint64_t words[WAYS];
};

struct qm_markov {
    void *memory; /* that the lines are in */
    struct line *lines;
    uint64_t first;               /* lines in use at first, */
    atomic_uint_least64_t active; /* or as many if there may be less: none is split */
    unsigned levels;              /* n is first << levels */
    uint64_t n;                   /* lines there can be */
    atomic_uint_least64_t most;   /* lines that may be in use now; to n */
    atomic_uint_least64_t extent; /* level << NEXT_BITS | next: see struct extent */
    atomic_flag splitting;
    atomic_uint owners; /* that are there */
    atomic_uint_least64_t held, evicted;
};

struct word {
    uint64_t block;
    unsigned tag, count, since, age, owner;
};

static struct word unpack(uint64_t w)
{
    return (struct word){
        .block = w & (QM_MARKOV_BLOCKS - 1),
        .tag = w >> BLOCK_BITS & (TAGS - 1),
        .count = w >> 50 & 15,
        .since = w >> 54 & 3,
        .age = w >> 56 & 15,
        .owner = w >> 60,
    };
}

static uint64_t pack(const struct word *w)
{
    return w->block | (uint64_t)w->tag << BLOCK_BITS | (uint64_t)w->count << 50 |
           (uint64_t)w->since << 54 | (uint64_t)w->age << 56 | (uint64_t)w->owner << 60;
}

static uint64_t load(const struct line *line, unsigned i)
{
    return atomic_load_explicit(&line->words[i], memory_order_relaxed);
}

/* Readers of a line that does not change must not take it from each other's caches. */
static void store(struct line *line, unsigned i, uint64_t was, const struct word *w)
{
    uint64_t is = pack(w);

    if (is != was)
        atomic_store_explicit(&line->words[i], is, memory_order_relaxed);
}

struct qm_markov *qm_markov_new(uint64_t bytes)
{
    struct qm_markov *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    /* One line less than fits, for the alignment.  calloc(), as aligned_alloc() has no
     * zeros, and writing them would take memory at once. */
    p->n = bytes / LINE > 2 ? bytes / LINE - 1 : 1;
    while (p->levels < LEVELS && p->n >> (p->levels + 1) >= FIRST_MIN)
        p->levels++;
    p->first = p->n >> p->levels;
    p->n = p->first << p->levels;
    atomic_init(&p->most, p->n);
    atomic_init(&p->active, p->first);
    p->memory = calloc(p->n + 1, LINE);
    if (!p->memory) {
        free(p);
        return NULL;
    }
    p->lines = (struct line *)(((uintptr_t)p->memory + LINE - 1) / LINE * LINE);
    return p;
}

void qm_markov_free(struct qm_markov *p)
{
    if (p)
        free(p->memory);
    free(p);
}

uint64_t qm_markov_key1(uint64_t b)
{
    return XXH3_64bits(&b, sizeof b);
}

uint64_t qm_markov_key2(uint64_t a, uint64_t b)
{
    uint64_t both[] = {a, b};

    return XXH3_64bits(both, sizeof both);
}

static unsigned tag_of(uint64_t key)
{
    return key & (TAGS - 1);
}

/* How far the table has grown: there are first << level lines, and those that come of
 * the lines before next, which have been split. */
struct extent {
    unsigned level;
    uint64_t next;
};

static struct extent extent_of(const struct qm_markov *p)
{
    uint64_t e = atomic_load_explicit(&p->extent, memory_order_acquire);

    return (struct extent){
        .level = (unsigned)(e >> NEXT_BITS),
        .next = e & ((UINT64_C(1) << NEXT_BITS) - 1),
    };
}

static uint64_t active_lines(const struct qm_markov *p)
{
    return atomic_load_explicit(&p->active, memory_order_relaxed);
}

static uint64_t lines_in_use(const struct qm_markov *p)
{
    struct extent e = extent_of(p);

    return (p->first << e.level) + e.next - (p->first - active_lines(p));
}

/* Where a key of that tag is that was in line start, below first, in the beginning;
 * NULL: it is not in the sample. */
static struct line *line_at(const struct qm_markov *p, uint64_t start, unsigned tag)
{
    struct extent e = extent_of(p);
    uint64_t i = start + p->first * (tag & ((1u << e.level) - 1));

    if (start >= active_lines(p))
        return NULL;
    if (i < e.next && tag >> e.level & 1)
        i += p->first << e.level;
    return &p->lines[i];
}

/* By the key's high bits; its low bits are the tag. */
static struct line *line_of(const struct qm_markov *p, uint64_t key)
{
    uint64_t start = (uint64_t)((unsigned __int128)key * p->first >> 64);

    return line_at(p, start, tag_of(key));
}

/* Moves what has that bit of its tag to another line, which nobody knows of until the
 * table is of extent after. */
static void split_line(struct qm_markov *p, struct line *from, struct line *to,
                       unsigned bit, struct extent after)
{
    uint64_t moved[WAYS] = {0};

    for (unsigned i = 0; i < WAYS; i++) {
        uint64_t w = load(from, i);

        if (unpack(w).tag >> bit & 1) {
            moved[i] = w;
            atomic_store_explicit(&to->words[i], w, memory_order_relaxed);
        }
    }
    atomic_store_explicit(&p->extent, (uint64_t)after.level << NEXT_BITS | after.next,
                          memory_order_release);
    for (unsigned i = 0; i < WAYS; i++) { /* unless something else has come there */
        if (moved[i] != 0)
            atomic_compare_exchange_strong_explicit(&from->words[i], &moved[i], 0,
                                                    memory_order_relaxed,
                                                    memory_order_relaxed);
    }
}

/* Takes a line more, unless that is being done, or all are in use. */
static void split_next(struct qm_markov *p)
{
    struct extent e;

    if (lines_in_use(p) >= atomic_load_explicit(&p->most, memory_order_relaxed) ||
        atomic_flag_test_and_set_explicit(&p->splitting, memory_order_acquire))
        return;
    e = extent_of(p);
    if (lines_in_use(p) < atomic_load_explicit(&p->most, memory_order_relaxed)) {
        uint64_t n = p->first << e.level;
        struct line *from = &p->lines[e.next];
        struct extent after = {.level = e.level, .next = e.next + 1};

        if (after.next == n)
            after = (struct extent){.level = e.level + 1};
        split_line(p, from, from + n, e.level, after);
    }
    atomic_flag_clear_explicit(&p->splitting, memory_order_release);
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

/* Another block than w's followed its key; others: somebody else's reads tell. */
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

static bool goes_before(const struct word *a, const struct word *b)
{
    return a->count < b->count || (a->count == b->count && a->age > b->age);
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
        split_next(p);
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
    if (least == WAYS) /* who is there has changed meanwhile */
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

void qm_markov_reserve(struct qm_markov *p, uint64_t n)
{
    uint64_t most = atomic_load_explicit(&p->most, memory_order_relaxed);

    while (lines_in_use(p) < most && lines_in_use(p) < n / HELD_PER_LINE)
        split_next(p);
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

struct qm_markov *qm_markov_new_of_lines(uint64_t lines)
{
    return lines < UINT64_MAX / LINE - 1 ? qm_markov_new((lines + 1) * LINE) : NULL;
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

/* Puts w, which belongs there, into the line: in a free place, or in that of the pair
 * worth the least if that is worth less.  Returns whether there are fewer pairs then.
 */
static bool join_word(struct line *line, const struct word *w)
{
    struct word least = *w;
    unsigned at = WAYS;

    for (unsigned i = 0; i < WAYS; i++) {
        struct word there = unpack(load(line, i));

        if (there.count == 0) {
            store(line, i, 0, w);
            return false;
        }
        if (goes_before(&there, &least)) {
            least = there;
            at = i;
        }
    }
    if (at < WAYS)
        store(line, at, 0, w);
    return true;
}

/* The reverse of split_next().  What others put into the line meanwhile is found again
 * when it is split anew, or never. */
static void join_last(struct qm_markov *p)
{
    struct extent e = extent_of(p);
    uint64_t gone = 0;
    struct line *from, *to;

    if (e.next == 0)
        e = (struct extent){.level = e.level - 1, .next = p->first << (e.level - 1)};
    e.next--;
    to = &p->lines[e.next];
    from = to + (p->first << e.level);
    atomic_store_explicit(&p->extent, (uint64_t)e.level << NEXT_BITS | e.next,
                          memory_order_release);
    for (unsigned i = 0; i < WAYS; i++) {
        struct word w = unpack(load(from, i));

        if (w.count > 0)
            gone += join_word(to, &w);
        atomic_store_explicit(&from->words[i], 0, memory_order_relaxed);
    }
    atomic_fetch_sub_explicit(&p->held, gone, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->evicted, gone, memory_order_relaxed);
}

/* From now on the first n lines are active. */
static void set_active(struct qm_markov *p, uint64_t n)
{
    uint64_t before = active_lines(p), gone = 0;

    atomic_store_explicit(&p->active, n, memory_order_relaxed);
    for (uint64_t i = n; i < before; i++)
        for (unsigned k = 0; k < WAYS; k++) {
            gone += unpack(load(&p->lines[i], k)).count > 0;
            atomic_store_explicit(&p->lines[i].words[k], 0, memory_order_relaxed);
        }
    atomic_fetch_sub_explicit(&p->held, gone, memory_order_relaxed);
    atomic_fetch_add_explicit(&p->evicted, gone, memory_order_relaxed);
}

/* The pages that have none of the lines in use, but were in use. */
static void give_back(const struct qm_markov *p, uint64_t before)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)&p->lines[lines_in_use(p)] + page - 1;
    uintptr_t to = (uintptr_t)&p->lines[before];

    from -= from % page;
    to -= to % page;
    if (to > from)
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

void qm_markov_set_bytes(struct qm_markov *p, uint64_t bytes)
{
    uint64_t most = bytes / LINE > 1 ? bytes / LINE - 1 : 1, before = lines_in_use(p);
    uint64_t least = p->first;

    if (bytes == 0)
        least = p->first > SAMPLE_PART ? p->first / SAMPLE_PART : 1;
    most = most < least ? least : most > p->n ? p->n : most;
    if (before <= most && active_lines(p) == p->first) {
        atomic_store_explicit(&p->most, most, memory_order_relaxed);
        return;
    }
    while (atomic_flag_test_and_set_explicit(&p->splitting, memory_order_acquire))
        ; /* a line is being split: some 20 ns */
    atomic_store_explicit(&p->most, most, memory_order_relaxed);
    before = lines_in_use(p);
    while (lines_in_use(p) > most && lines_in_use(p) > p->first)
        join_last(p);
    set_active(p, most < p->first ? most : p->first);
    if (lines_in_use(p) < before)
        give_back(p, before);
    atomic_flag_clear_explicit(&p->splitting, memory_order_release);
}
