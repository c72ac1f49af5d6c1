/* SPDX-License-Identifier: BSD-3-Clause */
/* advise-live.c - a trace to advise on, from a live server: it records for a while, a
 * sample of its contexts, into a file beside its control socket (server/shadow.c).
 *
 * The file is opened and removed at once when it is complete, so nothing is left of it;
 * if this program is killed before, the server ends the recording by itself, and the
 * file stays.  If the server does not answer when it is to stop, the file is removed,
 * too; the server ends by itself then.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/advise.h"
#include "cli/cli.h"
#include "cli/server.h"

/* A server has to have served READS_LEAST reads before it is known what one costs.  A
 * cost of more than FACTOR_MOST times the assumed one is taken for that. */
#define READS_LEAST 1000
#define FACTOR_MOST 100.0

enum { TIMEOUT_S = 30 };

/* Waits, with progress, until that many seconds are over.  False: a signal came. */
static bool wait_for_end(unsigned seconds, int signals)
{
    struct pollfd fd = {.fd = signals, .events = POLLIN};
    struct cli_progress progress;
    struct timespec begun, now;
    double gone = 0;
    bool stopped = false;

    clock_gettime(CLOCK_MONOTONIC, &begun);
    cli_progress_start(&progress, "recording");
    while (gone < seconds && !stopped) {
        stopped = poll(&fd, 1, 250) > 0;
        clock_gettime(CLOCK_MONOTONIC, &now);
        gone = (double)(now.tv_sec - begun.tv_sec) +
               (double)(now.tv_nsec - begun.tv_nsec) / 1e9;
        cli_progress_show(&progress, (uint64_t)(gone * 1000), seconds * UINT64_C(1000));
    }
    cli_progress_stop(&progress);
    return !stopped;
}

static bool is_stopped(int signals)
{
    struct pollfd fd = {.fd = signals, .events = POLLIN};

    return poll(&fd, 1, 0) > 0;
}

/* Until the recording is complete; SIGINT and SIGTERM end it early.  They wait until
 * the server has answered that it begins: it may have begun before. */
static json_t *record(const struct advise_live *live, const char *file)
{
    bool begun, whole = true;
    json_t *answer, *request;
    sigset_t set, old;
    int signals;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, &old);
    signals = signalfd(-1, &set, SFD_CLOEXEC);
    request = json_pack("{s:{s:s, s:i, s:i}}", "record", "file", file, "seconds",
                        (int)live->seconds, "sample", (int)live->sample);
    answer = cli_ask_until(live->socket, request, TIMEOUT_S, signals);
    begun = answer != NULL;
    if (begun) {
        json_decref(answer);
        if (signals != -1)
            whole = wait_for_end(live->seconds, signals);
        answer = cli_ask(live->socket, json_pack("{s:s}", "record", "stop"),
                         whole ? TIMEOUT_S : CLI_STOPPED_S);
    }
    if (!whole) {
        json_decref(answer);
        answer = NULL;
    }
    /* Also if the server does not say that it is complete, or whether it has begun.  If
     * it refused, the file is another's. */
    if (!answer && (begun || is_stopped(signals)))
        unlink(file);
    if (signals != -1)
        close(signals);
    sigprocmask(SIG_SETMASK, &old, NULL); /* now the signal ends this program */
    return answer;
}

/* The memories to compare: the server's, a quarter to four times it. */
static int set_memories(const char *socket, struct advise_request *request)
{
    json_t *answer = cli_ask(socket, json_pack("{s:[s]}", "get", "cache-size"),
                             CLI_SERVER_TIMEOUT_S);
    const json_t *values = json_object_get(answer, "values");
    const char *text = json_string_value(json_object_get(values, "cache-size"));
    uint64_t size = text ? strtoull(text, NULL, 10) : 0;

    if (answer && size == 0)
        cli_fail("%s: the server %s: give --memory", socket,
                 text ? "was started with cache-blocks, and has no cache-size"
                      : "does not tell its cache-size");
    json_decref(answer);
    if (size == 0)
        return CLI_FAILED;
    for (unsigned i = 0; i < 5; i++)
        request->memories[request->memory_count++] = (size << i) / 4;
    return CLI_OK;
}

static int set_backend(struct advise_live *live, const json_t *answer,
                       struct advise_request *request)
{
    const json_t *backend = json_object_get(answer, "backend");
    double begin_ns = cli_real(backend, "begin_ns");
    double byte_ns = cli_real(backend, "byte_ns");

    if (request->backend)
        return CLI_OK;
    if (!backend || begin_ns + byte_ns <= 0)
        return cli_fail(
            "%s: the server has read its backend too rarely to know how fast it "
            "is: give --device or --latency",
            live->socket);
    request->device = (struct qm_device_config){
        .stations = ADVISE_PARALLEL,
        .read = {begin_ns, ADVISE_SIGMA},
        .ns_per_byte = byte_ns,
        .scale = 1,
    };
    snprintf(live->backend, sizeof live->backend,
             "%.3g ms a read and %.3g us a KiB, as the server measured; %d at a time",
             begin_ns / 1e6, byte_ns * 1024 / 1e3, ADVISE_PARALLEL);
    request->backend = live->backend;
    return CLI_OK;
}

/* The assumed times of the server, as a multiple at which they come to what it has
 * computed; the clients' stay.  It also learns and writes the recording. */
static void set_processor(struct advise_live *live, const json_t *answer,
                          struct advise_request *request)
{
    const json_t *processor = json_object_get(answer, "processor");
    struct qm_virtual_processor *p = &request->processor;
    double reads = (double)cli_count(processor, "reads");
    double all = reads * (double)(ADVISE_SERVER_NS + ADVISE_BLOCK_NS) +
                 (double)cli_count(processor, "device_reads") * (double)ADVISE_READ_NS;
    uint64_t count = cli_count(processor, "count");
    double factor;

    if (request->processor_from)
        return;
    if (reads < READS_LEAST) {
        advise_processor(p, "an assumption: it has served too few reads",
                         live->processor);
    } else {
        factor = fmin((double)cli_count(processor, "ns") / all, FACTOR_MOST);
        p->request_ns = ADVISE_REQUEST_NS - ADVISE_SERVER_NS +
                        (uint64_t)(factor * (double)ADVISE_SERVER_NS);
        p->read_ns = (uint64_t)(factor * (double)ADVISE_READ_NS);
        p->block_ns = (uint64_t)(factor * (double)ADVISE_BLOCK_NS);
        p->count =
            (unsigned)(count < QM_VIRTUAL_PROCESSORS_MAX ? count
                                                         : QM_VIRTUAL_PROCESSORS_MAX);
        advise_processor(p, "as the server measured", live->processor);
    }
    request->processor_from = live->processor;
}

/* What the server says that it has written: its directory may be that of others, so
 * nothing is believed of what is there by this name.  -1 with errno. */
static int open_trace(const char *file)
{
    int fd = open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;

    if (fd != -1 && (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode))) {
        close(fd);
        errno = EINVAL;
        fd = -1;
    }
    return fd;
}

int advise_live_record(struct advise_live *live, struct advise_request *request)
{
    char *file, *full;
    json_t *answer;
    int status;

    live->fd = -1;
    full = realpath(live->socket, NULL);
    if (!full)
        return cli_fail("%s: %s", live->socket, strerror(errno));
    status = asprintf(&file, "%s.%ld.trace", full, (long)getpid()) == -1
                 ? cli_fail("out of memory")
                 : CLI_OK;
    free(full);
    if (status != CLI_OK)
        return status;
    if (request->memory_count == 0)
        status = set_memories(live->socket, request);
    answer = status == CLI_OK ? record(live, file) : NULL;
    if (answer) {
        live->fd = open_trace(file);
        if (live->fd == -1)
            status = cli_fail("%s: %s", file, strerror(errno));
        unlink(file);
        if (status == CLI_OK)
            status = set_backend(live, answer, request);
        set_processor(live, answer, request);
        if (cli_count(answer, "dropped") > 0)
            fprintf(stderr, "quickmine advise: %llu events could not be recorded\n",
                    (unsigned long long)cli_count(answer, "dropped"));
    } else {
        status = CLI_FAILED;
    }
    json_decref(answer);
    free(file);
    snprintf(live->path, sizeof live->path, "/proc/self/fd/%d", live->fd);
    request->file = live->path;
    request->name = live->socket;
    request->sample = live->sample;
    return status;
}
