/* SPDX-License-Identifier: BSD-3-Clause */
/* test-refused.c - random changes while the disk takes only a part of some batches,
 * beside a model: no key is lost, none comes back, and the number of keys is right;
 * also of what the next process finds, if this one does not close the store.
 *
 *   store-refused [OPERATIONS [SEED]] */
#include <sys/mman.h>

#include "rowcache/store/store.h"

#include "testing.h"

enum { KEYS = 12000, LONGEST = 200 };

/* Of a key, by the numbers of changes, which are in the values.  What a change that was
 * refused makes of a key, or leaves, is either. */
static struct model {
    uint32_t certain; /* the last that was made; 0: none, or a deletion */
    uint32_t refused; /* the first since; 0: none */
    bool deleted;     /* one of those was a deletion */
} * model;

static unsigned long operations = 40000;
static uint64_t seed = 1;
static struct disk_ops refusing;
static const struct disk_ops *below;
static unsigned refusals;

static int refuse_some(struct disk *d, const struct disk_record *changes, size_t n)
{
    refusals++;
    if (rnd(&seed) % 2)
        assert_int_equal(below->apply(d, changes, rnd_below(&seed, n) + 1), 0);
    return ENOSPC;
}

struct value {
    uint32_t key, number;
    char rest[LONGEST];
};

/* Whether the key is there, and is as one of the changes made it. */
static bool look(struct qmstore *s, uint32_t key)
{
    const struct model *m = &model[key];
    uint32_t number = 0;
    void *bytes;
    int r = qmstore_get(s, &key, sizeof key, &bytes, NULL, NULL);

    if (r == 0) {
        struct value v;

        memcpy(&v, bytes, offsetof(struct value, rest));
        free(bytes);
        assert_int_equal(v.key, key);
        number = v.number;
        assert_int_not_equal(number, 0);
    } else {
        assert_int_equal(r, ENOENT);
    }
    if (number != m->certain && !(number == 0 && m->deleted) &&
        !(number > 0 && m->refused > 0 && number >= m->refused))
        fail_msg("key %u is of change %u, and not of %u", key, number, m->certain);
    return r == 0;
}

static void change(struct qmstore *s, uint32_t key, uint32_t number)
{
    struct value v = {.key = key, .number = number};
    size_t len = sizeof v - rnd_below(&seed, LONGEST);
    bool deletes = rnd(&seed) % 5 == 0;
    struct model *m = &model[key];
    int r;

    if (deletes)
        r = qmstore_delete(s, &key, sizeof key);
    else
        r = qmstore_put(s, &key, sizeof key, &v, len, 0);
    if (r == 0 || r == ENOENT) {
        assert_true(r == 0 || (deletes && (m->certain == 0 || m->deleted)));
        *m = (struct model){.certain = deletes ? 0 : number};
        return;
    }
    assert_int_equal(r, ENOSPC);
    m->deleted |= deletes;
    if (!deletes && m->refused == 0)
        m->refused = number;
}

static void check_all(struct qmstore *s)
{
    uint64_t count = 0;

    for (uint32_t key = 0; key < KEYS; key++)
        count += look(s, key);
    assert_int_equal(stats_of(s).keys, count);
}

static void work(const struct qmstore_config *c)
{
    struct qmstore *s = open_ok(c);
    struct partition *p = &s->partitions[0];

    below = p->disk_ops;
    refusing = *below;
    refusing.apply = refuse_some;
    for (uint32_t i = 1; i <= operations; i++) {
        uint32_t key = (uint32_t)rnd_below(&seed, rnd(&seed) % 2 ? KEYS : KEYS / 10);

        if (i % 200 == 0) /* it refuses for a while, when gets still move keys */
            p->disk_ops = i / 200 % 2 ? &refusing : below;
        if (rnd(&seed) % 3 == 0)
            (void)look(s, key);
        else
            change(s, key, i);
        if (rnd(&seed) % 1500 == 0)
            assert_int_equal(store_filter_make(p), 0);
    }
    p->disk_ops = below;
    if (c->durability != QMSTORE_NONE)
        _exit(refusals == 0); /* the store is not closed */
    assert_true(refusals > 0);
    check_all(s);
    assert_int_equal(qmstore_close(s), 0);
}

static void run(const char *policy, const char *disk,
                enum qmstore_durability durability)
{
    struct qmstore_config c = small_config();
    struct qmstore *s;

    remove_below(test_dir);
    memset(model, 0, KEYS * sizeof *model);
    refusals = 0;
    c.write_buffer = 32 << 10;
    c.log_buffer = 16 << 10;
    c.policy = policy;
    c.disk = disk;
    c.durability = durability;
    if (durability == QMSTORE_NONE) {
        work(&c);
    } else {
        pid_t child = fork();

        assert_int_not_equal(child, -1);
        if (child == 0)
            work(&c);
        child_ends_well(child);
    }
    s = open_ok(&c);
    assert_int_equal(stats_of(s).lost, 0);
    check_all(s);
    assert_int_equal(qmstore_close(s), 0);
    rnd(&seed);
}

TEST_WITH(test_refused, make_memory_dir, remove_test_dir)
{
    static const char *const policies[] = {"lru", "lfu", "wtinylfu"};
    static const char *const disks[] = {"lmdb", "bdb", "files"};

    for (unsigned i = 0; i < 3; i++) {
        run(policies[i], "lmdb", QMSTORE_NONE);
        run(policies[i], disks[i], QMSTORE_SYNC);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        operations = strtoul(argv[1], NULL, 10);
    if (argc > 2)
        seed = strtoull(argv[2], NULL, 10);
    model = mmap(NULL, KEYS * sizeof *model, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return model == MAP_FAILED || run_listed(NULL, NULL);
}
