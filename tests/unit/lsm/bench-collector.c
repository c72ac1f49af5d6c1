/* SPDX-License-Identifier: BSD-3-Clause */
/* What a read costs: counted by its key, and as a look-up of a block; ns, by threads.
 * Run by hand. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

int main(void)
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
            struct timespec a, b;
            clock_gettime(CLOCK_MONOTONIC, &a);
            for (unsigned long i = 0; i < n; i++)
                pthread_create(&thread[i], NULL, reads, (void *)(i * 77));
            for (unsigned long i = 0; i < n; i++)
                pthread_join(thread[i], NULL);
            clock_gettime(CLOCK_MONOTONIC, &b);
            printf("%-28s %lu threads: %.0f ns\n", names[what], n,
                   ((double)(b.tv_sec - a.tv_sec) * 1e9 +
                    (double)(b.tv_nsec - a.tv_nsec)) /
                       READS);
        }
    shape_free(s);
    watch_free(watch);
    collector_free(family.collector);
    return 0;
}
