/* SPDX-License-Identifier: BSD-3-Clause */
/* watch.c - follows servers, for tests: a line a callback.
 *
 *   rowcache-watch [-u USER] [-l MAX_LAG_MS] [-t TIMEOUT_MS] SOCKET-OR-HOST:PORT...
 *
 * Reads from standard input: "wait GTID MS" answers "reached" or "not reached"; "info";
 * the end of it stops the follower.  Values of keys are printed as they are in the
 * key's text.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rowcache/follow/follow.h"

static bool quiet; /* no fresh and settled */

static void changed(void *opaque, uint64_t number, const char *schema,
                    const char *table, const char *key, size_t length)
{
    printf("row %" PRIu64 " %s.%s:%.*s\n", number, schema, table, (int)length, key);
}

static void all_changed(void *opaque, uint64_t number, const char *schema,
                        const char *table)
{
    printf("all %" PRIu64 " %s.%s\n", number, schema ? schema : "*",
           table ? table : "*");
}

static void gap(void *opaque, uint64_t number, const char *why)
{
    printf("gap %" PRIu64 " %s\n", number, why);
}

static void applied(void *opaque, uint64_t number, const struct qm_gtid_list *position)
{
    char text[QM_GTID_TEXT];

    printf("applied %" PRIu64 " %s\n", number, qm_gtid_print(position, text));
}

static void settled(void *opaque, uint64_t number)
{
    if (!quiet)
        printf("settled %" PRIu64 "\n", number);
}

static void fresh(void *opaque, uint64_t ns)
{
    if (!quiet)
        printf("fresh %" PRIu64 "\n", ns);
}

static void following(void *opaque, bool is, const char *why)
{
    printf("following %s %s\n", is ? "yes" : "no", why);
}

static void message(void *opaque, const char *text)
{
    printf("message %s\n", text);
}

static void answer(struct qm_follow *follow, char *line)
{
    struct qm_follow_info info;
    struct qm_gtid_list position;
    char text[256];
    unsigned ms;

    if (sscanf(line, "wait %255s %u", text, &ms) == 2 &&
        qm_gtid_parse(&position, text, strlen(text))) {
        puts(qm_follow_wait(follow, &position, ms) ? "reached" : "not reached");
    } else if (strncmp(line, "info", 4) == 0) {
        qm_follow_info(follow, &info);
        printf("info server=%u gaps=%" PRIu64 " connects=%" PRIu64 " rows=%" PRIu64
               "\n",
               info.server, info.gaps, info.connects, info.rows);
    }
}

int main(int argc, char **argv)
{
    struct qm_follow_callbacks calls = {
        .changed = changed,
        .all_changed = all_changed,
        .gap = gap,
        .applied = applied,
        .settled = settled,
        .fresh = fresh,
        .following = following,
        .message = message,
    };
    struct qm_follow_settings settings = {.user = "root", .max_lag_ms = 500};
    struct qm_follow_server servers[8] = {0};
    struct qm_follow *follow;
    char line[512];
    int option;

    while ((option = getopt(argc, argv, "u:p:l:t:q")) != -1) {
        switch (option) {
        case 'u':
            settings.user = optarg;
            break;
        case 'p':
            settings.password = optarg;
            break;
        case 'l':
            settings.max_lag_ms = (unsigned)atoi(optarg);
            break;
        case 't':
            settings.timeout_ms = (unsigned)atoi(optarg);
            break;
        case 'q':
            quiet = true;
            break;
        default:
            return 2;
        }
    }
    for (; optind < argc && settings.servers_count < 8; optind++) {
        struct qm_follow_server *server = servers + settings.servers_count++;
        char *colon = strchr(argv[optind], ':');

        if (argv[optind][0] == '/') {
            server->unix_socket = argv[optind];
        } else {
            if (colon) {
                *colon = '\0';
                server->port = (unsigned)atoi(colon + 1);
            }
            server->host = argv[optind];
        }
    }
    settings.servers = servers;
    setvbuf(stdout, NULL, _IOLBF, 0);
    follow = qm_follow_start(&settings, &calls);
    if (!follow) {
        perror("qm_follow_start");
        return 1;
    }
    while (fgets(line, sizeof line, stdin) && strncmp(line, "quit", 4) != 0)
        answer(follow, line);
    qm_follow_stop(follow);
    puts("stopped");
    return 0;
}
