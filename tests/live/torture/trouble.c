/* SPDX-License-Identifier: BSD-3-Clause */
/* trouble.c - see trouble.h. */
#include "trouble.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "disk.h"

#define END_SECONDS 100 /* a server that takes longer to end will never */

static void pause_us(unsigned us)
{
    nanosleep(
        &(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000},
        NULL);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The server's process, or 0: it is not there just now. */
static pid_t server_pid(const struct trouble *t)
{
    FILE *f = fopen(t->pidfile, "re");
    intmax_t pid = 0;

    if (f && fscanf(f, "%" SCNdMAX, &pid) != 1)
        pid = 0;
    if (f)
        fclose(f);
    return (pid_t)pid;
}

static void give_up(const struct trouble *t, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", t->program, what, strerror(errno));
    _exit(1);
}

/* Sends the server a signal, and waits until it is gone. */
static void end_server(struct trouble *t, pid_t pid, int signal)
{
    uint64_t begin = now_ms(), took;

    history_loss_begin(t->history);
    if (kill(pid, signal) == -1)
        give_up(t, "the server is gone before it was told to end");
    while (kill(pid, 0) == 0) {
        if (now_ms() - begin > END_SECONDS * 1000)
            give_up(t, "the server does not end");
        pause_us(500);
    }
    history_loss_end(t->history);
    took = now_ms() - begin;
    if (signal != SIGTERM)
        return;
    if (took > t->longest_end_ms)
        t->longest_end_ms = (unsigned)took;
    if (took > 2000)
        t->over_2_s++;
}

void *trouble_thread(void *opaque)
{
    struct trouble *t = opaque;
    unsigned kills = t->kills, ends = t->ends, cuts = t->cuts;
    unsigned all = kills + ends + cuts;
    pid_t last = 0, pid;

    while (kills + ends + cuts > 0) {
        uint64_t at = atomic_load(t->progress) + 1 +
                      draw_from(&t->random, t->requests * 2 / (all + 1) + 1);
        unsigned which = draw_from(&t->random, kills + ends + cuts);

        /* A server is there, and not one that has been told to end. */
        while (atomic_load(t->progress) < at || (pid = server_pid(t)) == 0 ||
               pid == last) {
            if (atomic_load(&t->stop))
                return NULL;
            pause_us(1000);
        }
        pause_us(draw_from(&t->random, 3000));
        if (which < cuts) {
            relay_cut(t->relay);
            cuts--;
        } else {
            bool polite = which < cuts + ends;

            end_server(t, pid, polite ? SIGTERM : SIGKILL);
            last = pid;
            *(polite ? &ends : &kills) -= 1;
        }
    }
    atomic_store(&t->over, true);
    return NULL;
}
