/* SPDX-License-Identifier: BSD-3-Clause */
/* announcer.c - reads a mounted file in contexts, and says what the server should
 * record.
 *
 *   mount-announcer announce SOCKET FILE THREADS ROUNDS   in contexts within contexts
 *   mount-announcer plain FILE THREADS READS              in none; threads have names
 *   mount-announcer forever SOCKET FILE                   in one context, until killed
 *
 * announce: the class of each context is a number of its own, so that each line of the
 * output names one context exactly: "class parent's-class nth-read offset length".
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/libqmctx/qmctx.h"

static int file;
static uint64_t size; /* of the file */
static struct qmctx *contexts;
static unsigned rounds;

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static void open_file(const char *path)
{
    struct stat st;

    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file == -1 || fstat(file, &st) == -1)
        die(path);
    size = (uint64_t)st.st_size;
}

static void read_at(uint64_t offset, size_t count)
{
    char buf[65536];
    ssize_t n = pread(file, buf, count, (off_t)offset);

    if (n != (ssize_t)count)
        die("pread");
}

/* count reads in the current context, which is klass. */
static void read_in(uint64_t klass, uint64_t parent, unsigned count, unsigned *seed)
{
    for (unsigned i = 0; i < count; i++) {
        size_t length = 512 + (size_t)rand_r(seed) % 60000;
        uint64_t offset = (uint64_t)rand_r(seed) % (size - length);

        read_at(offset, length);
        printf("%016" PRIx64 " %016" PRIx64 " %u %" PRIu64 " %zu\n", klass, parent, i,
               offset, length);
    }
}

static void begin(enum qmctx_kind kind, uint64_t klass)
{
    if (qmctx_begin(contexts, kind, klass, NULL) == -1) {
        fprintf(stderr, "qmctx_begin: %s\n", qmctx_error());
        exit(1);
    }
}

static void end(void)
{
    if (qmctx_end(contexts) == -1) {
        fprintf(stderr, "qmctx_end: %s\n", qmctx_error());
        exit(1);
    }
}

/* connection > transaction > query, some of which read nothing. */
static void *announce_thread(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg, seed = number;
    uint64_t connection = (uint64_t)(number + 1) << 32, klass = connection;

    begin(QMCTX_CONNECTION, connection);
    for (unsigned r = 0; r < rounds; r++) {
        uint64_t transaction = ++klass;

        begin(QMCTX_TRANSACTION, transaction);
        for (unsigned q = 0; q < 4; q++) {
            uint64_t query = ++klass;

            begin(QMCTX_QUERY, query);
            read_in(query, transaction, q, &seed);
            end();
        }
        /* What is read between two queries is the transaction's. */
        read_in(transaction, connection, 1, &seed);
        begin(QMCTX_QUERY, ++klass);
        end();
        end();
        begin(QMCTX_TRANSACTION, ++klass);
        end();
    }
    end();
    return NULL;
}

static void *plain_thread(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg, seed = number;
    char name[16];

    snprintf(name, sizeof name, "plain %u", number);
    pthread_setname_np(pthread_self(), name);
    for (unsigned i = 0; i < rounds; i++) {
        uint64_t offset = (uint64_t)rand_r(&seed) % (size - 4096);

        read_at(offset, 4096);
        printf("plain_%u %u %" PRIu64 " 4096\n", number, i, offset);
    }
    return NULL;
}

static void run(unsigned threads, void *body(void *))
{
    pthread_t *thread = calloc(threads, sizeof *thread);

    if (!thread)
        die("threads");
    for (unsigned i = 0; i < threads; i++)
        if ((errno = pthread_create(&thread[i], NULL, body, (void *)(uintptr_t)i)))
            die("pthread_create");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread[i], NULL);
    free(thread);
}

/* A mount that greets later than in the second that qmctx_announce() waits is looked
 * for when contexts begin. */
static bool is_known(void)
{
    for (unsigned i = 0; i < 60000 && !qmctx_connected(contexts); i++) {
        begin(QMCTX_CONNECTION, 0);
        end();
        usleep(1000);
    }
    return qmctx_connected(contexts);
}

static void announce(const char *path)
{
    if (qmctx_announce(path, &contexts) == -1 || !is_known()) {
        fprintf(stderr, "%s: no mount there: %s\n", path, qmctx_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc == 6 && !strcmp(argv[1], "announce")) {
        announce(argv[2]);
        open_file(argv[3]);
        rounds = (unsigned)strtoul(argv[5], NULL, 10);
        run((unsigned)strtoul(argv[4], NULL, 10), announce_thread);
        qmctx_close(contexts);
    } else if (argc == 5 && !strcmp(argv[1], "plain")) {
        open_file(argv[2]);
        rounds = (unsigned)strtoul(argv[4], NULL, 10);
        run((unsigned)strtoul(argv[3], NULL, 10), plain_thread);
    } else if (argc == 4 && !strcmp(argv[1], "forever")) {
        announce(argv[2]);
        open_file(argv[3]);
        begin(QMCTX_QUERY, 0xdead);
        for (uint64_t at = 0;; at = (at + 4096) % (size - 4096))
            read_at(at, 4096);
    } else {
        fprintf(stderr, "usage: see announcer.c\n");
        return 2;
    }
    close(file);
    return 0;
}
