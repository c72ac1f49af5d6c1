/* pairs-file.c - pairs as records of a rules directory (see pairs-file.h). */
#include "mining/pairs-file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "mining/record.h"

#define SAVE_FROM 2 /* times seen */

/* The prefix of the record that says how many lines the table had; its place in the
 * order of use is the first, so it is delivered before all others. */
#define LINES_KEY UINT64_MAX

/* Is added to tags: a prefix's two blocks differ, and a line may have its tag's number.
 */
#define TAGS_FROM (UINT64_C(1) << 40)

struct loading {
    struct qm_pairs *pairs;
    struct qm_pairs *other; /* of as many lines as the file's, if these are others */
    bool lost;              /* there is no memory for that one */
    uint64_t keys;          /* seen before the first record */
    struct qm_suffixes list;
};

/* The order of use is not kept; but how many there are is good to know: what is loaded
 * comes line by line, and not from all over the table. */
static int load_prefix(void *opaque, uint64_t line, uint64_t tag)
{
    struct loading *l = opaque;

    if (line == LINES_KEY && tag != qm_pairs_lines(l->pairs)) {
        l->other = qm_pairs_new_of_lines(tag);
        l->lost = !l->other;
    }
    l->keys++;
    return 0;
}

static int load_record(void *opaque, uint64_t line, uint64_t tag,
                       const unsigned char *record, size_t size)
{
    struct loading *l = opaque;
    struct qm_pairs *to = l->other ? l->other : l->pairs;
    int r;

    if (l->lost || line == LINES_KEY)
        return 0;
    r = qm_record_decode(record, size, &l->list);
    if (l->keys > 0)
        qm_pairs_reserve(to, l->keys);
    l->keys = 0;
    for (size_t i = 0; r == 0 && i < l->list.n; i++) {
        const struct qm_suffix *s = &l->list.v[i];

        /* The file is whole, so what no table can have is somebody else's. */
        if (tag < TAGS_FROM || tag - TAGS_FROM > UINT32_MAX ||
            !qm_pairs_put(to, line, (unsigned)(tag - TAGS_FROM), s->block, s->support))
            r = EINVAL;
    }
    return r;
}

int qm_pairs_load(struct qm_pairs *pairs, const struct qm_mining_config *config,
                  struct qm_rules_dir **dir, char *err, size_t len)
{
    struct qm_mining_config own = *config;
    struct loading loading = {.pairs = pairs};
    char *name;
    int r;

    if (asprintf(&name, "%s, pairs",
                 config->rules_for ? config->rules_for : "any device") < 0) {
        snprintf(err, len, "out of memory");
        return ENOMEM;
    }
    own.rules_for = name;
    r = qm_rules_dir_open(&own, dir, err, len);
    free(name);
    if (r != 0)
        return r;
    r = qm_rules_dir_load(*dir, 0, NULL, load_prefix, load_record, &loading, err, len);
    free(loading.list.v);
    if (r == 0 && loading.other)
        qm_pairs_adopt(pairs, loading.other);
    qm_pairs_free(loading.other);
    if (r == 0 && loading.lost)
        snprintf(
            err, len,
            "the rules in %s are not used: there is no memory for a table as large "
            "as they were saved from",
            config->rules_dir);
    if (r != 0)
        qm_rules_dir_close(*dir);
    return r;
}

struct saving {
    struct qm_rules_save *save;
    uint64_t place;
};

/* By count, then by block, as records must be. */
static int by_count(const void *a, const void *b)
{
    const struct qm_suffix *x = a, *y = b;

    if (x->support != y->support)
        return x->support < y->support ? 1 : -1;
    return x->block < y->block ? -1 : x->block > y->block;
}

static bool has(const struct qm_suffixes *list, uint64_t block)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i].block == block)
            return true;
    return false;
}

static int save_key(void *opaque, uint64_t line, unsigned tag,
                    const struct qm_pair *found, unsigned n)
{
    struct saving *s = opaque;
    struct qm_suffix suffixes[QM_PAIRS_FOUND_MAX];
    struct qm_suffixes list = {.v = suffixes};
    unsigned char *record;
    int r;

    for (unsigned i = 0; i < n; i++)
        suffixes[i] =
            (struct qm_suffix){.block = found[i].block, .support = found[i].count};
    qsort(suffixes, n, sizeof suffixes[0], by_count);
    for (unsigned i = 0; i < n; i++)
        if (!has(&list, suffixes[i].block)) /* one may be there twice for a while */
            suffixes[list.n++] = suffixes[i];
    record = malloc(qm_record_bound(list.n));
    if (!record)
        return ENOMEM;
    r = qm_rules_save_put(s->save, line, TAGS_FROM + tag, s->place++, record,
                          qm_record_encode(&list, record));
    free(record);
    return r;
}

/* The record of the table's lines, which comes last by its key. */
static int save_lines(struct saving *s, uint64_t lines)
{
    struct qm_suffix unused = {.block = 0, .support = 1};
    struct qm_suffixes list = {.v = &unused, .n = 1};
    unsigned char record[64];

    if (qm_record_bound(1) > sizeof record)
        return EINVAL;
    return qm_rules_save_put(s->save, LINES_KEY, lines, 0, record,
                             qm_record_encode(&list, record));
}

int qm_pairs_save(const struct qm_pairs *pairs, struct qm_rules_dir *dir)
{
    struct saving saving = {.place = 1};
    int r = qm_rules_save_begin(dir, &saving.save), r2;

    if (r != 0)
        return r;
    r = qm_pairs_each(pairs, SAVE_FROM, save_key, &saving);
    if (r == 0)
        r = save_lines(&saving, qm_pairs_lines(pairs));
    r2 = qm_rules_save_end(saving.save, r == 0);
    return r != 0 ? r : r2;
}
