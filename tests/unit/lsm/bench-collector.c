/* SPDX-License-Identifier: BSD-3-Clause */
/* What a read costs: counted by its key, and as a look-up of a block; ns, by threads.
 * With a file of models, also what it takes to predict 1,000 ranges.  Run by hand. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lsm/feature.h"
#include "lsm/watch.h"

#define READS 2000000

static struct collector *collector;
static struct watch *watch;
static int what;

static void *reads(void *arg)
{
    unsigned long x = (unsigned long)arg + 1;
    char key[24];

    for (int i = 0; i < READS; i++) {
        x = x * 6364136223846793005ul + 1442695040888963407ul;
        unsigned long k = (x >> 33) % 300000;
        if (what == 0) { /* of making the key */
            sprintf(key, "user%08lu", k);
        } else if (what == 1) {
            collector_read(collector, key, (size_t)sprintf(key, "user%08lu", k));
        } else {
            uint64_t name[2] = {77, (k / 20 * 4005) >> 2};
            watch_look(watch, name, true);
        }
    }
    return NULL;
}

static double since(const struct timespec *a)
{
    struct timespec b;

    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)(b.tv_sec - a->tv_sec) * 1e9 + (double)(b.tv_nsec - a->tv_nsec);
}

/* Six intervals in which ranges are read and written more or less often, so that their
 * features differ. */
static void fill_intervals(void)
{
    for (unsigned i = 0; i < 6 * 300000; i++) {
        unsigned long x = i * 2654435761ul % 300000, y = x * x / 300000;
        char key[24];
        size_t len = (size_t)sprintf(key, "user%08lu", (y * 7919 + i % 50) % 300000);
        if (i % 3 == 0)
            collector_write(collector, key, len);
        else
            collector_read(collector, key, len);
        if (i % 300000 == 299999)
            collector_tick(collector, 0);
    }
}

/* The best of 20 times, of the first step and of all. */
static void predict(const char *path, struct collector *c)
{
    char err[200];
    struct trees *trees = trees_read(path, FEATURES, err, sizeof err);
    struct moment moment = features_moment(time(NULL));
    struct table *t = collector_table(c);
    double sum = 0;

    if (!trees) {
        fprintf(stderr, "%s\n", err);
        exit(1);
    }
    for (uint32_t steps = 1;; steps = trees_steps(trees)) {
        double best = 1e18;
        for (int k = 0; k < 20; k++) {
            struct timespec a;
            double ns;
            clock_gettime(CLOCK_MONOTONIC, &a);
            for (uint32_t i = 0; i < 1000; i++)
                sum += features_hot(trees, 0, steps, t, (i * 7 + 3) % t->n, &moment);
            ns = since(&a);
            best = ns < best ? ns : best;
        }
        printf("1,000 ranges, steps: %u: %.2f ms\n", steps, best / 1e6);
        if (steps == trees_steps(trees))
            break;
    }
    if (sum < 0)
        printf("%f\n", sum);
    table_put(t);
    trees_free(trees);
}

int main(int argc, char **argv)
{
    static const char *names[] = {"the key alone", "collector_read, key and all",
                                  "watch_look"};
    struct family family = {.collector = collector_new(32768, 1)};
    struct shape *s = shape_new(family.collector, 1, 0);
    char key[24];
    static uint8_t warmed[20000];
    uint64_t first[2] = {77, 0};

    collector = family.collector;
    watch = watch_new();
    for (unsigned long i = 0; i < 300000; i++) {
        shape_key(s, key, (size_t)sprintf(key, "user%08lu", i), 200);
        if (i % 20 == 19)
            shape_block(s, 4000);
    }
    shape_finish(s);
    watch_add(watch, &family, first, s, 4005ul * 15000, warmed, 1000000);
    for (what = 0; what < 3; what++)
        for (unsigned long n = 1; n <= 2; n++) {
            pthread_t thread[2];
            struct timespec a;
            clock_gettime(CLOCK_MONOTONIC, &a);
            for (unsigned long i = 0; i < n; i++)
                pthread_create(&thread[i], NULL, reads, (void *)(i * 77));
            for (unsigned long i = 0; i < n; i++)
                pthread_join(thread[i], NULL);
            printf("%-28s %lu threads: %.0f ns\n", names[what], n, since(&a) / READS);
        }
    fill_intervals();
    if (argc > 1)
        predict(argv[1], collector);
    shape_free(s);
    watch_free(watch);
    collector_free(family.collector);
    return 0;
}
