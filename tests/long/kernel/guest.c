/* SPDX-License-Identifier: BSD-3-Clause */
/* guest.c - reads and writes for contexts, and says which: see guest.h. */
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/long/kernel/guest.h"

void die(const char *what, const char *file, int line)
{
    fprintf(stderr, "GUEST FAILED: %s:%d: %s: %s\n", file, line, what, strerror(errno));
    _exit(1);
}

void say(const char *format, ...)
{
    char line[512];
    va_list ap;
    int n;

    va_start(ap, format);
    n = vsnprintf(line, sizeof line, format, ap);
    va_end(ap);
    if (write(STDOUT_FILENO, line, n) != n)
        _exit(1);
}

void *aligned_buffer(size_t size)
{
    void *p = aligned_alloc(BLOCK, size);

    CHECK(p);
    memset(p, 0, size);
    return p;
}

int open_device(int flags)
{
    int fd = open(DEVICE, flags | O_CLOEXEC);

    CHECK(fd >= 0);
    return fd;
}

uint64_t class_id(const char *klass)
{
    uint64_t hash = 5381;

    for (const char *p = klass; *p; p++)
        hash = hash * 33 + (unsigned char)*p;
    return hash;
}

void say_begin(unsigned kind, const char *parent_class, const char *klass)
{
    static const char *const kinds[] = {"", "connection", "thread", "transaction",
                                        "query"};

    say("@begin %s %s %s\n", klass, kinds[kind], parent_class);
}

int64_t begin(unsigned kind, int64_t parent, const char *parent_class,
              const char *klass)
{
    int64_t ctx = ctx_begin(kind, parent, class_id(klass), klass, strlen(klass));

    CHECK(ctx > 0);
    say_begin(kind, parent_class, klass);
    return ctx;
}

void end(int64_t ctx, const char *klass)
{
    CHECK(ctx_end(ctx) == 0);
    say("@end %s\n", klass);
}

/* The server gets to hear of ends a little later: reads of no context, for some time,
 * so that the last ones come after them. */
void marker(void)
{
    struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    void *buffer = aligned_buffer(BLOCK);
    int fd = open_device(O_RDONLY | O_DIRECT);

    for (int i = 0; i < 50; i++) {
        CHECK(pread(fd, buffer, BLOCK, 2 * RAW - BLOCK) == BLOCK);
        nanosleep(&pause, NULL);
    }
    close(fd);
    free(buffer);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (!strcmp(what, "direct"))
        direct(argc > 2 ? argv[2] : "direct");
    else if (!strcmp(what, "buffered"))
        buffered();
    else if (!strcmp(what, "library"))
        library();
    else if (!strcmp(what, "library-files"))
        library_files();
    else if (!strcmp(what, "library-refused"))
        library_refused();
    else if (!strcmp(what, "uring"))
        uring();
    else if (!strcmp(what, "threads"))
        threads();
    else if (!strcmp(what, "processes"))
        processes();
    else if (!strcmp(what, "after-exec"))
        after_exec();
    else if (!strcmp(what, "refusals"))
        refusals();
    else if (!strcmp(what, "merges"))
        merges();
    else if (!strcmp(what, "plain"))
        plain();
    else if (!strcmp(what, "breaks"))
        breaks();
    else if (!strcmp(what, "small-segments"))
        small_segments();
    else if (!strcmp(what, "signals"))
        signals();
    else if (!strcmp(what, "speed"))
        speed();
    else if (!strcmp(what, "speed-live"))
        speed_live();
    else if (!strcmp(what, "marker"))
        marker();
    else
        die("unknown scenario", what, 0);
    return 0;
}
