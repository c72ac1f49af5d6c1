/* SPDX-License-Identifier: BSD-3-Clause */
/* stale.c - looks for a read that is older than what was guaranteed.
 *
 *   rowcache-stale [-s SECONDS] [-k KEYS] [-r READERS] [-w WRITERS] [-d US] [-l US]
 *                  [-x WHAT] -p DIRECTORY SOCKET
 *   rowcache-stale [-s ...] [-k ...] [-r ...] [-w ...] [-m ROWS] -c DAEMON-SOCKET
 * SOCKET
 *
 * s.pair has two rows for each k: (2k, v) and (2k+1, v).  A writer raises the v of both
 * in one transaction; one in eight is rolled back, with a version that nobody may see.
 * Readers read through the rows (rows.h), as a client's connection does, and check:
 *
 * - monotonic: no row is older than what this reader has seen of it or of its pair's
 * other row;
 * - sync: after qm_follow_wait() for a writer's GTID, a row is at least what it wrote;
 * - no version of a rolled back transaction is seen.
 *
 * With -c they are clients of the daemon at that socket instead, which may be killed
 * meanwhile: a connection's promises end with it.  -m: a reader asks for that many rows
 * by one MGET.  Each counts as a read, and none of them may be older than what was read
 * before that MGET.
 *
 * -x changed, settled, race or seen: one mechanism is switched off; then a stale read
 * has to be found.  DIRECTORY is for the store.  The last line: reads, hits, stored,
 * stale.  Exit 0: nothing is stale.
 */
#include <inttypes.h>
#include <mysql.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "rowcache/follow/follow.h"
#include "rowcache/rows.h"

static const char *socket_path, *daemon_path, *off = "";
static unsigned keys = 50, delay, lag, rows_a_read = 1;
static _Atomic bool ended;
static _Atomic uint64_t reads, hits, stale;
static struct qm_rows *rows;
static struct qm_follow *follow;
static struct qm_follow_callbacks inner;

#define KEYS_MAX 10000
enum { ROWS_MAX = 64 };
static pthread_mutex_t written_lock = PTHREAD_MUTEX_INITIALIZER;
/* What was committed with which GTID, of the last writer of k. */
static struct written {
    uint64_t version;
    struct qm_gtid_list gtid;
} written[KEYS_MAX];

static bool is_off(const char *what)
{
    return strcmp(off, what) == 0;
}

static void changed(void *opaque, uint64_t number, const char *schema,
                    const char *table, const char *key, size_t length)
{
    if (lag) /* as if the follower were slow */
        usleep(lag);
    if (!is_off("changed"))
        inner.changed(inner.opaque, number, schema, table, key, length);
}

static void applied(void *opaque, uint64_t number, const struct qm_gtid_list *position)
{
    if (is_off("settled"))
        inner.settled(inner.opaque, number);
    inner.applied(inner.opaque, number, position);
}

static void all_changed(void *opaque, uint64_t number, const char *schema,
                        const char *table)
{
    inner.all_changed(inner.opaque, number, schema, table);
}

static void gap(void *opaque, uint64_t number, const char *why)
{
    inner.gap(inner.opaque, number, why);
}

static void settled(void *opaque, uint64_t number)
{
    inner.settled(inner.opaque, number);
}

static void fresh(void *opaque, uint64_t ns)
{
    inner.fresh(inner.opaque, ns);
}

static void following(void *opaque, bool is, const char *why)
{
    inner.following(inner.opaque, is, why);
}

static void message(void *opaque, const char *text)
{
    fprintf(stderr, "%s\n", text);
}

static MYSQL *connected(void)
{
    MYSQL *mysql = mysql_init(NULL);

    while (!ended && !mysql_real_connect(mysql, NULL, "root", NULL, NULL, 0,
                                         socket_path, CLIENT_MULTI_STATEMENTS)) {
        mysql_close(mysql);
        usleep(20000);
        mysql = mysql_init(NULL);
    }
    return mysql;
}

static bool tell(MYSQL *mysql, const char *statement)
{
    return mysql_query(mysql, statement) == 0;
}

/* The first column of the only row; false: an error. *there: whether there is a row. */
static bool ask(MYSQL *mysql, const char *statement, char *text, size_t size,
                bool *there)
{
    MYSQL_RES *result =
        mysql_query(mysql, statement) ? NULL : mysql_store_result(mysql);
    MYSQL_ROW row = result ? mysql_fetch_row(result) : NULL;

    *there = row != NULL;
    snprintf(text, size, "%s", row && row[0] ? row[0] : "");
    mysql_free_result(result);
    return result != NULL;
}

static void *writer(void *opaque)
{
    unsigned seed = (unsigned)(uintptr_t)opaque;
    MYSQL *mysql = connected();

    while (!ended) {
        unsigned k = (unsigned)rand_r(&seed) % keys, abort = rand_r(&seed) % 8 == 0;
        char statement[256], text[QM_GTID_TEXT];
        uint64_t version;
        bool there, good;

        snprintf(statement, sizeof statement,
                 "UPDATE s.pair SET v = v + %d WHERE id IN (%u, %u)",
                 abort ? 1000000000 : 1, 2 * k, 2 * k + 1);
        good = tell(mysql, "BEGIN") && tell(mysql, statement);
        snprintf(statement, sizeof statement, "SELECT v FROM s.pair WHERE id = %u",
                 2 * k);
        good = good && ask(mysql, statement, text, sizeof text, &there);
        version = strtoull(text, NULL, 10);
        good = good && tell(mysql, abort ? "ROLLBACK" : "COMMIT");
        if (good && !abort &&
            ask(mysql, "SELECT @@last_gtid", text, sizeof text, &there)) {
            pthread_mutex_lock(&written_lock);
            if (version > written[k].version &&
                qm_gtid_parse(&written[k].gtid, text, strlen(text)))
                written[k].version = version;
            pthread_mutex_unlock(&written_lock);
        }
        if (!good) {
            mysql_close(mysql);
            mysql = connected();
        }
    }
    mysql_close(mysql);
    return NULL;
}

struct client {
    struct qm_reader reader;
    MYSQL *mysql;
    FILE *daemon; /* NULL: not connected */
    uint64_t seen[KEYS_MAX];
};

/* Reads one row as a connection of the daemon does.  False: the database did not
 * answer. */
static bool read_row(struct client *client, unsigned id, uint64_t *version, bool *hit)
{
    char key[64], statement[128], text[QM_GTID_TEXT], value[64];
    const char *found;
    struct qm_gtid_list position;
    struct qm_rows_token token;
    size_t length;
    void *kept;
    bool there;

    snprintf(key, sizeof key, "s.pair:%u", id);
    *hit = qm_rows_get(rows, &client->reader, qm_rows_now(), key, strlen(key), &kept,
                       &found, &length) == QM_ROWS_ROW;
    if (*hit) {
        snprintf(value, sizeof value, "%.*s", (int)length, found);
        free(kept);
        *version = strtoull(value, NULL, 10);
        return true;
    }
    token = qm_rows_begin(rows, "s.pair", 6, key, strlen(key));
    snprintf(statement, sizeof statement, "SELECT v FROM s.pair WHERE id = %u", id);
    if (!ask(client->mysql, statement, value, sizeof value, &there) || !there ||
        !ask(client->mysql, "SELECT @@gtid_binlog_pos", text, sizeof text, &there) ||
        !qm_gtid_parse(&position, text, strlen(text)))
        return false;
    if (delay)
        usleep(delay);
    if (is_off("race")) /* as if nothing had come between */
        token = qm_rows_begin(rows, "s.pair", 6, key, strlen(key));
    qm_rows_put(rows, &token, key, strlen(key), QM_ROWS_ROW, value, strlen(value),
                &position);
    if (!is_off("seen"))
        qm_reader_saw(&client->reader, &position);
    *version = strtoull(value, NULL, 10);
    return true;
}

static void lose_daemon(struct client *client)
{
    if (client->daemon)
        fclose(client->daemon);
    client->daemon = NULL;
    memset(client->seen, 0, sizeof client->seen);
}

static bool connect_daemon(struct client *client)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", daemon_path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        client->daemon = fdopen(fd, "r+");
    if (!client->daemon) {
        close(fd);
        usleep(10000);
    }
    return client->daemon;
}

/* One request, in a line; the answer's first line, or the text of a bulk string. */
static bool ask_daemon(struct client *client, const char *request, char *answer,
                       size_t size)
{
    char line[512];

    if (!client->daemon && !connect_daemon(client))
        return false;
    if (send(fileno(client->daemon), request, strlen(request), MSG_NOSIGNAL) !=
            (ssize_t)strlen(request) ||
        !fgets(line, sizeof line, client->daemon) ||
        (line[0] == '$' && line[1] != '-' &&
         !fgets(line, sizeof line, client->daemon))) {
        lose_daemon(client);
        return false;
    }
    snprintf(answer, size, "%s", line);
    return true;
}

static bool sync_daemon(struct client *client, const struct qm_gtid_list *position)
{
    char text[QM_GTID_TEXT], request[QM_GTID_TEXT + 16], answer[512];

    if (position->count == 0)
        return true;
    snprintf(request, sizeof request, "WAITGTID %s\r\n", qm_gtid_print(position, text));
    return ask_daemon(client, request, answer, sizeof answer) && answer[0] == '+';
}

/* The rows of one MGET.  False: the database or the daemon is away. */
static bool read_daemon(struct client *client, const unsigned *ids, uint64_t *versions,
                        unsigned count)
{
    char request[32 + ROWS_MAX * 24] = "MGET", answer[512];
    size_t at = 4;

    for (unsigned i = 0; i < count; i++)
        at += (size_t)snprintf(request + at, sizeof request - at, " s.pair:%u", ids[i]);
    snprintf(request + at, sizeof request - at, "\r\n");
    if (!ask_daemon(client, request, answer, sizeof answer))
        return false;
    if (answer[0] != '*') { /* it cannot answer now */
        usleep(1000);
        return false;
    }
    for (unsigned i = 0; i < count; i++) {
        const char *v;

        if (!fgets(answer, sizeof answer, client->daemon) || answer[0] != '$' ||
            !fgets(answer, sizeof answer, client->daemon) ||
            !(v = strstr(answer, "\"v\":"))) {
            lose_daemon(client);
            return false;
        }
        versions[i] = strtoull(v + 4, NULL, 10);
    }
    return true;
}

static void found_stale(const char *what, unsigned id, uint64_t version, uint64_t least,
                        bool hit)
{
    if (stale++ < 5)
        fprintf(stderr,
                "stale: %s: row %u is %" PRIu64 ", not %" PRIu64 " or more (%s)\n",
                what, id, version, least,
                daemon_path ? "by the daemon"
                : hit       ? "kept"
                            : "from the database");
}

static void check_read(struct client *client, unsigned id, uint64_t version,
                       uint64_t seen, const struct written *least, bool hit)
{
    unsigned k = id / 2;

    reads++;
    hits += hit;
    if (version < seen)
        found_stale("monotonic", id, version, seen, hit);
    if (version < least->version)
        found_stale("sync", id, version, least->version, hit);
    if (version >= 1000000000)
        found_stale("rolled back", id, version, 0, hit);
    if (version > client->seen[k])
        client->seen[k] = version;
}

/* The rows that a reader asks for at once; what is at least to be seen of the first. */
static void read_some(struct client *client, unsigned *seed,
                      const struct written *least, unsigned first)
{
    static const struct written nothing;
    unsigned ids[ROWS_MAX] = {first};
    uint64_t versions[ROWS_MAX], seen[ROWS_MAX];
    bool hit = false;

    for (unsigned i = 1; i < rows_a_read; i++)
        ids[i] = (unsigned)rand_r(seed) % (2 * keys);
    if (daemon_path) {
        if (!read_daemon(client, ids, versions, rows_a_read))
            return;
    } else if (!read_row(client, ids[0], &versions[0], &hit)) {
        mysql_close(client->mysql);
        client->mysql = connected();
        return;
    }
    for (unsigned i = 0; i < rows_a_read; i++)
        seen[i] = client->seen[ids[i] / 2];
    for (unsigned i = 0; i < rows_a_read; i++)
        check_read(client, ids[i], versions[i], seen[i], i == 0 ? least : &nothing,
                   hit);
}

static void *reader(void *opaque)
{
    unsigned seed = 77 + (unsigned)(uintptr_t)opaque;
    struct client *client = calloc(1, sizeof *client);

    client->mysql = connected();
    while (!ended) {
        unsigned id = (unsigned)rand_r(&seed) % (2 * keys);
        struct written least = {0};

        if (rand_r(&seed) % 16 == 0) {
            pthread_mutex_lock(&written_lock);
            least = written[id / 2];
            pthread_mutex_unlock(&written_lock);
            if (daemon_path ? !sync_daemon(client, &least.gtid)
                            : !qm_follow_wait(follow, &least.gtid, 2000))
                continue;
        }
        read_some(client, &seed, &least, id);
    }
    mysql_close(client->mysql);
    lose_daemon(client);
    free(client->reader.seen);
    free(client);
    return NULL;
}

static bool fill_table(void)
{
    MYSQL *mysql = connected();
    char statement[128];
    bool good =
        tell(mysql, "CREATE DATABASE IF NOT EXISTS s") &&
        tell(mysql, "CREATE OR REPLACE TABLE s.pair (id INT PRIMARY KEY, v BIGINT)") &&
        tell(mysql, "BEGIN");

    for (unsigned i = 0; good && i < 2 * keys; i++) {
        snprintf(statement, sizeof statement, "INSERT INTO s.pair VALUES (%u, 1)", i);
        good = tell(mysql, statement);
    }
    good = good && tell(mysql, "COMMIT");
    if (!good)
        fprintf(stderr, "%s\n", mysql_error(mysql));
    mysql_close(mysql);
    return good;
}

/* The rows and the follower, without the daemon. */
static bool start_rows(struct qmstore **store, const char *path,
                       const struct qm_follow_settings *settings)
{
    struct qm_follow_callbacks calls = {.changed = changed,
                                        .all_changed = all_changed,
                                        .gap = gap,
                                        .applied = applied,
                                        .settled = settled,
                                        .fresh = fresh,
                                        .following = following,
                                        .message = message};
    struct qmstore_config config;
    char err[256];

    qmstore_config_init(&config);
    config.path = path;
    config.memory = 32 << 20;
    config.durability = QMSTORE_NONE;
    config.disk = "files";
    if (qmstore_open(&config, store, err, sizeof err) != 0) {
        fprintf(stderr, "the store: %s\n", err);
        return false;
    }
    rows = qm_rows_new(*store, settings->max_lag_ms);
    if (!rows)
        return false;
    qm_rows_callbacks(rows, &inner);
    follow = qm_follow_start(settings, &calls);
    while (follow && !qm_rows_is_following(rows))
        usleep(1000);
    return follow;
}

int main(int argc, char **argv)
{
    struct qm_follow_server server = {0};
    struct qm_follow_settings settings = {
        .servers = &server, .servers_count = 1, .user = "root", .max_lag_ms = 1000};
    unsigned seconds = 5, readers = 3, writers = 2;
    const char *path = NULL;
    struct qm_rows_stats stats = {0};
    struct qmstore *store;
    pthread_t thread[64];
    int option;

    while ((option = getopt(argc, argv, "s:k:r:w:x:d:l:p:c:m:")) != -1) {
        unsigned value = option == 'x' || option == 'p' || option == '?'
                             ? 0
                             : (unsigned)atoi(optarg);

        if (option == 's')
            seconds = value;
        else if (option == 'k')
            keys = value;
        else if (option == 'r')
            readers = value;
        else if (option == 'w')
            writers = value;
        else if (option == 'd')
            delay = value;
        else if (option == 'l')
            lag = value;
        else if (option == 'm')
            rows_a_read = value;
        else if (option == 'c')
            daemon_path = optarg;
        else if (option == 'p')
            path = optarg;
        else if (option == 'x')
            off = optarg;
        else
            return 2;
    }
    if (optind + 1 != argc || !path == !daemon_path || keys < 1 ||
        2 * keys > KEYS_MAX || readers + writers > 64 || rows_a_read < 1 ||
        rows_a_read > ROWS_MAX || (rows_a_read > 1 && path))
        return 2;
    server.unix_socket = socket_path = argv[optind];
    mysql_library_init(0, NULL, NULL);
    if (!fill_table() || (path && !start_rows(&store, path, &settings)))
        return 2;
    for (unsigned i = 0; i < readers + writers; i++)
        pthread_create(&thread[i], NULL, i < readers ? reader : writer,
                       (void *)(uintptr_t)(i + 1));
    for (unsigned i = 0; i < 50 * seconds && !(off[0] && stale > 0); i++)
        usleep(20000);
    ended = true;
    for (unsigned i = 0; i < readers + writers; i++)
        pthread_join(thread[i], NULL);
    if (path) {
        qm_rows_get_stats(rows, &stats);
        qm_follow_stop(follow);
        qm_rows_free(rows);
        qmstore_close(store);
    }
    printf("reads=%" PRIu64 " hits=%" PRIu64 " stored=%" PRIu64 " raced=%" PRIu64
           " unsettled=%" PRIu64 " invalidations=%" PRIu64 " gaps=%" PRIu64
           " stale=%" PRIu64 "\n",
           reads, hits, stats.stored, stats.raced, stats.unsettled, stats.invalidations,
           stats.gaps, stale);
    return stale ? 1 : 0;
}
