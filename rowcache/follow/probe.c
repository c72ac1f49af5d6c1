/* SPDX-License-Identifier: BSD-3-Clause */
/* probe.c - the thread that asks how far the server's log is, and its engines are.
 *
 * The server's answer to @@gtid_binlog_pos is not older than the question.  When all of
 * it is applied, what is kept is as fresh as the question.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "rowcache/follow/internal.h"

#define QUESTIONS    8
#define UNSETTLED_MS 5 /* between questions while something is not settled */

struct question {
    uint64_t asked; /* ns */
    struct qm_gtid_list position;
};

struct probe {
    struct qm_follow *follow;
    uint64_t generation;
    struct qm_gtid_list position; /* of the last question in this generation */
    struct qm_place place;        /* its engines' */
    unsigned count;
    struct question question[QUESTIONS]; /* the oldest first */
};

/* How far the engines have committed. */
static bool committed(struct qm_connection *connection, struct qm_place *place,
                      char *why)
{
    MYSQL_RES *result =
        qm_connection_ask(connection, "SHOW STATUS LIKE 'Binlog\\_snapshot\\_%'", why);
    char file[512] = "";
    uint64_t position = 0;
    MYSQL_ROW row;

    if (!result)
        return false;
    while ((row = mysql_fetch_row(result))) {
        if (strcasecmp(row[0], "Binlog_snapshot_file") == 0)
            snprintf(file, sizeof file, "%s", row[1]);
        else if (strcasecmp(row[0], "Binlog_snapshot_position") == 0)
            position = strtoull(row[1], NULL, 10);
    }
    mysql_free_result(result);
    *place = qm_place_of(file, position);
    if (place->file == UINT64_MAX)
        *place = (struct qm_place){0, 0};
    return true;
}

/* With the lock held: what has been applied meanwhile. */
static void tell_fresh(struct probe *probe)
{
    struct qm_follow *follow = probe->follow;
    unsigned done = 0;

    while (done < probe->count &&
           qm_gtid_covers(&follow->info.applied, &probe->question[done].position))
        done++;
    if (done == 0)
        return;
    follow->calls.fresh(follow->calls.opaque, probe->question[done - 1].asked);
    probe->count -= done;
    memmove(probe->question, probe->question + done,
            probe->count * sizeof probe->question[0]);
}

/* The log is read anew, as it does not say what has changed.  The lock is held. */
static void begin_anew(struct qm_follow *follow, const char *why)
{
    follow->anew = why;
    follow->anew_of = follow->life.server;
    if (follow->dump.socket != -1)
        shutdown(follow->dump.socket, SHUT_RDWR);
}

/* Whether the answer is one of the log that is followed.  A server that resets its log
 * while it is read may go on without a word of that.  The lock is held. */
static bool is_of_log(struct probe *probe, const struct qm_gtid_list *position,
                      struct qm_place place)
{
    struct qm_follow *follow = probe->follow;

    if (qm_gtid_went_back(&probe->position, position) ||
        (place.file != 0 && !qm_place_reaches(place, probe->place))) {
        begin_anew(follow, "the server's log was reset");
        return false;
    }
    probe->position = *position;
    probe->place = place;
    if (qm_place_reaches(place, follow->seen))
        follow->seen = place;
    return true;
}

static bool ask(struct probe *probe, char *why)
{
    struct qm_follow *follow = probe->follow;
    struct question question = {.asked = qm_monotonic()};
    struct qm_place place;
    bool logged;

    if (!qm_connection_position(&follow->asker, &question.position, &logged, why) ||
        !committed(&follow->asker, &place, why))
        return false;
    pthread_mutex_lock(&follow->lock);
    if (follow->generation == probe->generation && !logged)
        begin_anew(follow, "the server has become a replica that does not log what it"
                           " applies");
    else if (follow->generation == probe->generation &&
             is_of_log(probe, &question.position, place)) {
        if (probe->count < QUESTIONS)
            probe->question[probe->count++] = question;
        qm_pending_settle(follow, place);
    }
    pthread_mutex_unlock(&follow->lock);
    return true;
}

/* Asks until the follower's connection is another. */
static bool ask_on(struct probe *probe, char *why)
{
    struct qm_follow *follow = probe->follow;
    uint64_t asked = 0;
    bool good = true, same = true;

    while (good && same) {
        uint64_t since;

        good = ask(probe, why);
        asked = qm_monotonic();
        pthread_mutex_lock(&follow->lock);
        do {
            unsigned wait = follow->settings.max_lag_ms / 5 + 1;

            if (follow->pending_count > 0 && wait > UNSETTLED_MS)
                wait = UNSETTLED_MS;

            tell_fresh(probe);
            since = (qm_monotonic() - asked) / 1000000;
            same = follow->generation == probe->generation && !follow->stop;
            if (!good || !same || since >= wait)
                break;
            qm_pause(follow, wait - (unsigned)since);
        } while (true);
        pthread_mutex_unlock(&follow->lock);
    }
    return good;
}

/* What another server says proves nothing: then the log is read anew, from where the
 * name leads now. */
static bool is_followed(struct probe *probe, uint32_t id, char *why)
{
    struct qm_follow *follow = probe->follow;

    if (qm_connection_is_of(&follow->asker, id, why))
        return true;
    pthread_mutex_lock(&follow->lock);
    if (follow->generation == probe->generation && follow->dump.socket != -1 &&
        follow->asker.mysql && mysql_errno(follow->asker.mysql) == 0)
        shutdown(follow->dump.socket, SHUT_RDWR);
    pthread_mutex_unlock(&follow->lock);
    return false;
}

void *qm_probe_thread(void *opaque)
{
    struct qm_follow *follow = opaque;
    struct probe *probe = calloc(1, sizeof *probe);
    struct qm_saying said = {0};
    char why[QM_WHY];
    bool stop = !probe;

    mysql_thread_init();
    while (!stop) {
        unsigned server;
        uint32_t id;

        pthread_mutex_lock(&follow->lock);
        while (!follow->stop && follow->generation == 0)
            qm_pause(follow, 1000);
        stop = follow->stop;
        server = follow->info.server;
        id = follow->life.server;
        probe->follow = follow;
        if (probe->generation != follow->generation) {
            probe->position.count = 0;
            probe->place = (struct qm_place){0, 0};
        }
        probe->generation = follow->generation;
        probe->count = 0;
        pthread_mutex_unlock(&follow->lock);
        if (stop)
            break;
        if (!qm_connection_open(&follow->asker, &follow->settings,
                                follow->settings.servers + server,
                                follow->settings.timeout_ms, why) ||
            !is_followed(probe, id, why) || !ask_on(probe, why)) {
            pthread_mutex_lock(&follow->lock);
            if (!follow->stop) {
                if (qm_is_news(&said, why))
                    follow->calls.message(follow->calls.opaque, why);
                qm_pause(follow, 100);
            }
            pthread_mutex_unlock(&follow->lock);
        }
        qm_connection_close(&follow->asker);
    }
    free(probe);
    mysql_thread_end();
    return NULL;
}
