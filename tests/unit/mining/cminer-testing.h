/* SPDX-License-Identifier: BSD-3-Clause */
/* cminer-testing.h - what the tests of C-Miner* share: databases, and their rules as a
 * list. */
#ifndef QM_CMINER_TESTING_H
#define QM_CMINER_TESTING_H

#include <unistd.h>

#include "mining/baselines/cminer-file.h"
#include "mining/baselines/cminer.h"
#include "testing.h"

/* A directory for all tests of a program, and a file of rules in it. */
static char dir[] = "/tmp/quickmine.XXXXXX";
static char path[64];

static inline int make_dir(void **state)
{
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/rules", dir);
    return 0;
}

/* Nothing is left over beside the file. */
static inline int remove_dir(void **state)
{
    unlink(path);
    return rmdir(dir);
}

/* A rule a -> c or a & b -> c, in blocks, and where it stood among those of its prefix.
 */
struct cminer_rule {
    unsigned n; /* blocks in the prefix: 1 or 2 */
    uint64_t a, b, c;
    uint64_t support, of; /* of: the prefix's support */
};

struct cminer_rules {
    struct cminer_rule *v;
    size_t n, cap;
    const struct qm_cminer_db *db;
};

static inline void cminer_append(struct cminer_rules *list, struct cminer_rule rule)
{
    if (list->n == list->cap) {
        list->cap = list->cap ? 2 * list->cap : 256;
        list->v = realloc(list->v, list->cap * sizeof *list->v);
        assert_non_null(list->v);
    }
    list->v[list->n++] = rule;
}

static inline int cminer_collect(void *opaque, const struct qm_cminer_prefix *p)
{
    struct cminer_rules *list = opaque;
    assert_true(p->n > 0);
    for (uint32_t i = 0; i < p->n; i++) {
        struct cminer_rule rule = {
            .n = p->b == QM_CMINER_NONE ? 1 : 2,
            .a = list->db->blocks[p->a],
            .b = p->b == QM_CMINER_NONE ? 0 : list->db->blocks[p->b],
            .c = list->db->blocks[p->suffixes[i].c],
            .support = p->suffixes[i].support,
            .of = p->support,
        };
        cminer_append(list, rule);
    }
    return 0;
}

/* The order in which prefixes come, and each one's rules: by a, then a alone first,
 * then by b; then the strongest first, of equals the lower block. */
static inline int cminer_order(const void *x, const void *y)
{
    const struct cminer_rule *r = x, *s = y;
    if (r->a != s->a) {
        return r->a < s->a ? -1 : 1;
    }
    if (r->n != s->n) {
        return r->n < s->n ? -1 : 1;
    }
    if (r->b != s->b) {
        return r->b < s->b ? -1 : 1;
    }
    if (r->support != s->support) {
        return r->support > s->support ? -1 : 1;
    }
    return r->c < s->c ? -1 : r->c > s->c;
}

static inline void assert_same_cminer(const struct cminer_rules *is,
                                      const struct cminer_rules *should, int round)
{
    for (size_t i = 0; i < is->n && i < should->n; i++) {
        const struct cminer_rule *x = &is->v[i], *y = &should->v[i];
        if (cminer_order(x, y) != 0 || x->of != y->of) {
            fail_msg("round %d: rule %zu is %llu & %llu -> %llu (%u): %llu of %llu, "
                     "should be %llu & %llu -> %llu (%u): %llu of %llu",
                     round, i, (unsigned long long)x->a, (unsigned long long)x->b,
                     (unsigned long long)x->c, x->n, (unsigned long long)x->support,
                     (unsigned long long)x->of, (unsigned long long)y->a,
                     (unsigned long long)y->b, (unsigned long long)y->c, y->n,
                     (unsigned long long)y->support, (unsigned long long)y->of);
        }
    }
    if (is->n != should->n) {
        fail_msg("round %d: %zu rules, should be %zu", round, is->n, should->n);
    }
}

/* The rules of a numbered database; freed with free(list.v). */
static inline struct cminer_rules cminer_mine(const struct qm_cminer_config *config,
                                              const struct qm_cminer_db *db,
                                              struct qm_cminer_counts *counts)
{
    struct cminer_rules list = {.db = db};
    assert_int_equal(qm_cminer_mine(config, db, cminer_collect, &list, counts), 0);
    assert_int_equal(counts->rules, list.n);
    return list;
}

/* Writes the rules of db to path; returns how many. */
static inline struct qm_cminer_counts cminer_write(const struct qm_cminer_info *info,
                                                   const struct qm_cminer_db *db)
{
    struct qm_cminer_writer *writer;
    struct qm_cminer_counts counts;
    char err[256];

    assert_int_equal(qm_cminer_write(path, info, db, &writer, err, sizeof err), 0);
    assert_string_equal(err, "");
    assert_int_equal(
        qm_cminer_mine(&info->config, db, qm_cminer_write_prefix, writer, &counts), 0);
    assert_int_equal(qm_cminer_write_end(writer, true, err, sizeof err), 0);
    assert_string_equal(err, "");
    return counts;
}

#endif
