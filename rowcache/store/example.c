/* SPDX-License-Identifier: BSD-3-Clause */
/* example.c - counts the words of its standard input in a store that may be larger than
 * memory, and prints how often a word has come, also in earlier runs.
 *
 *   example DIRECTORY WORD <TEXT */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <qmstore.h>

static void warn(void *opaque, const char *message)
{
    fprintf(stderr, "warning: %s\n", message);
}

static int count_of(struct qmstore *store, const char *word, uint64_t *count)
{
    void *value;
    size_t len;
    int r = qmstore_get(store, word, strlen(word), &value, &len, NULL);

    *count = 0;
    if (r == ENOENT)
        return 0;
    if (r != 0)
        return r;
    if (len == sizeof *count)
        memcpy(count, value, sizeof *count);
    free(value);
    return 0;
}

int main(int argc, char **argv)
{
    struct qmstore_config config;
    struct qmstore *store;
    char err[300], word[256];
    uint64_t count;
    int r, closed;

    if (argc != 3 || !*argv[2]) {
        fprintf(stderr, "usage: example DIRECTORY WORD <TEXT\n");
        return 2;
    }
    qmstore_config_init(&config);
    config.path = argv[1];
    config.memory = 16 << 20;
    config.warn = warn;
    if (qmstore_open(&config, &store, err, sizeof err) != 0) {
        fprintf(stderr, "example: %s\n", err);
        return 1;
    }
    r = 0;
    while (r == 0 && scanf("%255s", word) == 1) {
        r = count_of(store, word, &count);
        count++;
        if (r == 0)
            r = qmstore_put(store, word, strlen(word), &count, sizeof count, 0);
    }
    if (r == 0)
        r = count_of(store, argv[2], &count);
    closed = qmstore_close(store);
    if (r == 0)
        r = closed;
    if (r != 0) {
        fprintf(stderr, "example: %s\n", strerror(r));
        return 1;
    }
    printf("%" PRIu64 "\n", count);
    return 0;
}
