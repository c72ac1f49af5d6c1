/* SPDX-License-Identifier: BSD-3-Clause */
/* shadow.c - a recording for a while, of a sample of contexts, over the control socket:
 * what quickmine advise --live asks for.
 *
 *   {"record": {"file": "/run/quickmine/x.trace", "seconds": 60, "sample": 16}}
 *   {"record": "stop"}
 *
 * The file must not exist; it is written as the server's user, mode 0600, and left to
 * the client that asked.  One in `sample` trees of contexts is recorded, whole: a
 * sample of blocks would tear apart what follows what.  Time and events are bounded by
 * the recorder itself, so that nothing is recorded for ever if that client is gone;
 * what is left then is a pointer that is looked at for each request, until the next
 * request of this kind.
 *
 * The recorder is exchanged with the write lock, when nobody holds it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "server/server.h"

#define SECONDS_MOST 3600
#define SAMPLE_MOST  65536
#define EVENTS_MOST  UINT64_C(4000000) /* some 120 MB */

static json_t *refuse(const char *format, const char *what)
{
    char text[1024];

    snprintf(text, sizeof text, format, what);
    return qms_refusal(text);
}

/* Begun by a recorder that is gone. */
static void forget_slot(void *opaque, struct qms_slot *slot)
{
    (void)opaque;
    slot->recorded = false;
}

static void record_slot(void *opaque, struct qms_slot *slot)
{
    qms_context_record_open(opaque, slot);
}

static void each_slot(struct qms_server *s,
                      void (*each)(void *opaque, struct qms_slot *slot))
{
    struct cds_list_head *at;

    qms_sessions_each_slot(&s->sessions, each, &s->contexts);
    cds_list_for_each(at, &s->connections)
        each(&s->contexts, &caa_container_of(at, struct qms_connection, list)->slot);
}

/* NULL: nothing is recorded any more. */
static void exchange(struct qms_server *s, struct qms_recorder *recorder,
                     uint64_t one_in)
{
    pthread_mutex_lock(&s->sessions.lock);
    pthread_mutex_lock(&s->lock);
    qms_rwlock_write(&s->contexts.lock);
    each_slot(s, forget_slot);
    s->contexts.shadow_one_in = one_in;
    atomic_store(&s->contexts.shadow, recorder);
    if (recorder)
        each_slot(s, record_slot);
    qms_rwlock_write_unlock(&s->contexts.lock);
    pthread_mutex_unlock(&s->lock);
    pthread_mutex_unlock(&s->sessions.lock);
}

/* Ends the recording, which there is; returns how it ended. */
static int stop(struct qms_server *s, struct qms_record_stats *stats)
{
    struct qms_recorder *recorder = s->shadow;
    int error;

    exchange(s, NULL, 1);
    s->shadow = NULL;
    error = qms_record_close_with(recorder, stats);
    qms_log(QMS_NOTE, "the recording ends with %llu events, %llu dropped",
            (unsigned long long)stats->recorded, (unsigned long long)stats->dropped);
    return error;
}

/* Whether the path leads to that file, and by no link. */
static bool is_still(int fd, const char *path)
{
    struct stat here, there;

    return fstat(fd, &here) == 0 && lstat(path, &there) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* What the process has computed, its plugin and all threads that were included. */
static uint64_t computed(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* What was computed since the recording began, and for how many reads.  NULL: nobody
 * knows, as the counters were reset meanwhile; or memory is out. */
static json_t *processor(const struct qms_server *s)
{
    uint64_t reads = qms_stats_get(s->stats, QMS_READS);
    uint64_t device_reads = qms_stats_get(s->stats, QMS_DEVICE_READS);
    long count = sysconf(_SC_NPROCESSORS_ONLN);

    if (reads < s->shadow_since.reads || device_reads < s->shadow_since.device_reads)
        return NULL;
    return json_pack("{s:I, s:I, s:I, s:I}", "count", (json_int_t)count, "ns",
                     (json_int_t)(computed() - s->shadow_since.ns), "reads",
                     (json_int_t)(reads - s->shadow_since.reads), "device_reads",
                     (json_int_t)(device_reads - s->shadow_since.device_reads));
}

static json_t *start(struct qms_server *s, const char *file, json_int_t seconds,
                     json_int_t sample, uid_t user)
{
    char err[600];
    int error, made;

    if (s->recorder)
        return refuse("the server records already (record=%s): use that file",
                      s->config.record);
    if (file[0] != '/')
        return refuse("the file must be an absolute path, not \"%s\"", file);
    if (seconds < 1 || seconds > SECONDS_MOST)
        return refuse("seconds must be from 1 to %s", "3600");
    if (sample < 1 || sample > SAMPLE_MOST)
        return refuse("sample must be from 1 to %s", "65536");
    if (s->shadow && !qms_record_over(s->shadow))
        return refuse("%s", "a recording is being made; one at a time");
    if (s->shadow) {
        struct qms_record_stats stats;

        (void)stop(s, &stats);
    }
    /* Others may write in the directory: a link of theirs is not followed. */
    made = open(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (made == -1) {
        snprintf(err, sizeof err, "%.400s %s%s", file,
                 errno == EEXIST ? "exists" : "cannot be created: ",
                 errno == EEXIST ? "" : strerror(errno));
        return refuse("%s", err);
    }
    s->shadow = qms_record_open(file, s->config.block_size, err, sizeof err);
    if (s->shadow && !is_still(made, file)) {
        (void)qms_record_close(s->shadow);
        s->shadow = NULL;
        snprintf(err, sizeof err, "%s has become another file", file);
    }
    close(made);
    if (!s->shadow)
        return refuse("%s", err);
    qms_record_limit(s->shadow, (unsigned)seconds, EVENTS_MOST);
    error = qms_record_start(s->shadow);
    if (error != 0) {
        (void)qms_record_close(s->shadow);
        s->shadow = NULL;
        return refuse("cannot start the recording thread: %s", strerror(error));
    }
    exchange(s, s->shadow, (uint64_t)sample);
    s->shadow_since.ns = computed();
    s->shadow_since.reads = qms_stats_get(s->stats, QMS_READS);
    s->shadow_since.device_reads = qms_stats_get(s->stats, QMS_DEVICE_READS);
    qms_log(QMS_NOTE, "user %u records one in %lld contexts for %lld s: %s",
            (unsigned)user, (long long)sample, (long long)seconds, file);
    return json_object();
}

static json_t *end(struct qms_server *s)
{
    struct qms_record_stats stats;
    double begin_ns, byte_ns;
    json_t *o, *cost;
    int error;

    if (!s->shadow)
        return refuse("%s", "no recording is being made");
    cost = processor(s);
    error = stop(s, &stats);
    if (error != 0) {
        json_decref(cost);
        return refuse("the recording ended too early: %s", strerror(error));
    }
    o = json_pack("{s:I, s:I}", "recorded", (json_int_t)stats.recorded, "dropped",
                  (json_int_t)stats.dropped);
    if (o && qm_latency_get(&s->latency, QM_PLACE_BACKEND, &begin_ns, &byte_ns))
        json_object_set_new(
            o, "backend",
            json_pack("{s:f, s:f}", "begin_ns", begin_ns, "byte_ns", byte_ns));
    if (o && cost)
        json_object_set_new(o, "processor", cost);
    else
        json_decref(cost);
    return o;
}

json_t *qms_shadow_answer(struct qms_server *s, json_t *wanted, uid_t user)
{
    const char *file = json_string_value(json_object_get(wanted, "file"));
    json_t *seconds = json_object_get(wanted, "seconds");
    json_t *sample = json_object_get(wanted, "sample");

    if (json_is_string(wanted) && strcmp(json_string_value(wanted), "stop") == 0)
        return end(s);
    if (json_object_size(wanted) != 3 || !file || !json_is_integer(seconds) ||
        !json_is_integer(sample))
        return refuse("%s",
                      "record is \"stop\", or an object of file, seconds and sample");
    return start(s, file, json_integer_value(seconds), json_integer_value(sample),
                 user);
}
