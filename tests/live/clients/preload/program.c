/* SPDX-License-Identifier: BSD-3-Clause */
/* program.c - the tests' program: see program.h.
 *
 *   preload-program SECTION FILE OTHER
 *
 *   preload-program contexts FILE
 *       reads in contexts, synchronously and by liburing and libaio, and prints what
 *       the server should record
 *   preload-program loss FILE
 *       reads and writes a line's worth for each line of input, and prints what came of
 *       it
 *   preload-program children FILE OTHER STALL
 *       see test-children.c
 *   preload-program restarts FILE OTHER WHAT LATE
 *       see test-restarts.c
 *   preload-program descriptors FILE HOW
 *   preload-program submits FILE
 *   preload-program stderr FILE
 *       see test-record.c
 */
#include <fcntl.h>
#include <unistd.h>

#include "program.h"

const char *routed, *other;
off_t size;

int must_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);

    CHECK(fd != -1, "%s", path);
    return fd;
}

void check_same(off_t offset, size_t count)
{
    int fd[2] = {must_open(routed, O_RDONLY), must_open(other, O_RDONLY)};
    char *buf[2] = {malloc(count), malloc(count)};
    ssize_t n[2];

    for (int i = 0; i < 2; i++) {
        n[i] = pread(fd[i], buf[i], count, offset);
        close(fd[i]);
    }
    CHECK(n[0] == n[1], "%zd and %zd bytes", n[0], n[1]);
    CHECK(n[0] <= 0 || memcmp(buf[0], buf[1], (size_t)n[0]) == 0, "at %lld",
          (long long)offset);
    free(buf[0]);
    free(buf[1]);
}

uint64_t dice(unsigned *seed, uint64_t bound)
{
    uint64_t r = (uint64_t)rand_r(seed) << 31;

    return (r | (uint64_t)rand_r(seed)) % bound;
}

static void set_files(char **argv)
{
    routed = argv[2];
    other = argv[3];
    size = lseek(must_open(other, O_RDONLY), 0, SEEK_END);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } sections[] = {
        {"files", test_files},     {"fds", test_fds}, {"fork", test_fork},
        {"threads", test_threads}, {"aio", test_aio}, {"uring", test_uring},
    };

    if (argc == 3 && strcmp(argv[1], "contexts") == 0)
        return run_contexts(argv[2]);
    if (argc == 3 && strcmp(argv[1], "loss") == 0)
        return run_loss(argv[2]);
    if (argc == 5 && strcmp(argv[1], "children") == 0) {
        set_files(argv);
        return run_children(argv[4]);
    }
    if (argc == 4 && strcmp(argv[1], "descriptors") == 0)
        return run_descriptors(argv[2], argv[3]);
    if (argc == 3 && strcmp(argv[1], "submits") == 0)
        return run_submits(argv[2]);
    if (argc == 3 && strcmp(argv[1], "stderr") == 0)
        return run_stderr(argv[2]);
    if (argc == 6 && strcmp(argv[1], "restarts") == 0) {
        set_files(argv);
        return run_restarts(argv[4], argv[5]);
    }
    for (size_t i = 0; argc == 4 && i < sizeof sections / sizeof sections[0]; i++) {
        if (strcmp(argv[1], sections[i].name) == 0) {
            set_files(argv);
            sections[i].run();
            return 0;
        }
    }
    fprintf(stderr, "usage: see program.c\n");
    return 2;
}
