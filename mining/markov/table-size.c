/* SPDX-License-Identifier: BSD-3-Clause */
/* table-size.c - how many lines a table of pairs has.
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
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mining/markov/table-lines.h"

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

struct qm_markov *qm_markov_new_of_lines(uint64_t lines)
{
    return lines < UINT64_MAX / LINE - 1 ? qm_markov_new((lines + 1) * LINE) : NULL;
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

void qm_markov_split_next(struct qm_markov *p)
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

void qm_markov_reserve(struct qm_markov *p, uint64_t n)
{
    uint64_t most = atomic_load_explicit(&p->most, memory_order_relaxed);

    while (lines_in_use(p) < most && lines_in_use(p) < n / HELD_PER_LINE)
        qm_markov_split_next(p);
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
        least = 1;
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
