/* SPDX-License-Identifier: BSD-3-Clause */
/* rowcache-load.c - the clients of bench/rowcache: an application that reads rows by
 * their keys, from MariaDB alone, from Redis as a look-aside cache, or from
 * qm-rowcache.
 *
 *   rowcache-load WAY WORKLOAD DATABASE-SOCKET CACHE-SOCKET CLIENTS SECONDS THINK-US
 *                 READS-PERCENT SCALE SEED ACCESSES RATE
 *
 * WAY is none, redis or rowcache.  Each client is a thread with a connection to each of
 * the two, and does one thing after the other.  What it does depends on the seed alone;
 * it ends when SECONDS have passed, or, if it is not 0, after ACCESSES.  RATE, if it is
 * not 0, is of all clients together, and takes the place of THINK-US.
 * A row that is not in Redis is read from MariaDB, and set there for LIFE seconds; one
 * that was written is deleted there.
 *
 * Prints one line: reads, share of hits, mean and 95 % of the reads' times (us), rows'
 * SELECTs, writes, mean and median of the writes' times (us), errors, seconds. */
#include "rowcache-load.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { LIFE = 180, TIMES = 4000000 };

unsigned scale, reads_percent;
static const char *way, *database, *cache;
static const struct workload *workload;
static unsigned clients, seconds, think_us;
static bool paced; /* a pause ends think_us after the last one should have */
static uint64_t seed, end_ns, most; /* accesses of a client; 0: any number */

static void die(const char *what, const char *why)
{
    fprintf(stderr, "rowcache-load: %s: %s\n", what, why);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* When an access begins: the first one after a pause of --rate, when the pause was to
 * end, so that it has waited for an earlier one that took longer. */
static uint64_t begin(struct client *c)
{
    uint64_t at = c->since ? c->since : now_ns();

    c->since = 0;
    return at;
}

/* splitmix64 */
uint64_t draw(struct client *c, uint64_t n)
{
    uint64_t z = c->random += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % n;
}

/* --- the cache's protocol --- */

static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (fd == -1 ||
        connect(fd, (struct sockaddr *)&address, (socklen_t)sizeof address) == -1)
        die(path, strerror(errno));
    return fd;
}

/* Sends a command of n words and takes its reply into in: 1: a value; 0: nil; -1: an
 * error. */
static int command(struct client *c, int n, const char *const *words)
{
    char out[8192];
    size_t length = (size_t)snprintf(out, sizeof out, "*%d\r\n", n), got = 0, want;
    char *eol;
    long value;

    for (int i = 0; i < n && length < sizeof out; i++)
        length += (size_t)snprintf(out + length, sizeof out - length, "$%zu\r\n%s\r\n",
                                   strlen(words[i]), words[i]);
    if (length >= sizeof out || write(c->fd, out, length) != (ssize_t)length)
        die(cache, "cannot be written to");
    for (want = 0; want == 0 || got < want;) {
        ssize_t r = read(c->fd, c->in + got, sizeof c->in - 1 - got);

        if (r <= 0)
            die(cache, r == 0 ? "has hung up" : strerror(errno));
        got += (size_t)r;
        c->in[got] = '\0';
        eol = strstr(c->in, "\r\n");
        if (want != 0 || !eol)
            continue;
        want = (size_t)(eol + 2 - c->in);
        value = c->in[0] == '$' ? strtol(c->in + 1, NULL, 10) : -1;
        if (c->in[0] != '$')
            continue;
        if (value < 0)
            return 0;
        if (want + (size_t)value + 2 > sizeof c->in - 1)
            die(cache, "has too long a reply");
        memmove(c->in, c->in + want, got - want);
        got -= want;
        want = c->length = (size_t)value;
        want += 2;
    }
    if (c->in[0] == '-' && c->length == 0)
        return -1;
    return 1;
}

static int ask(struct client *c, int n, const char *const *words)
{
    c->length = 0;
    return command(c, n, words);
}

/* --- reads and writes --- */

/* The row's columns, with a zero byte behind each, as the application would put
 * together what it keeps. */
static bool select_row(struct client *c, const char *table, uint64_t id, char *text,
                       size_t size)
{
    char query[128];
    MYSQL_RES *result = NULL;
    MYSQL_ROW row;
    size_t at = 0;
    bool there = false;

    snprintf(query, sizeof query, "SELECT * FROM %s WHERE id = %" PRIu64, table, id);
    c->selects++;
    if (mysql_query(c->mysql, query) == 0)
        result = mysql_store_result(c->mysql);
    if (!result)
        die("MariaDB", mysql_error(c->mysql));
    row = mysql_fetch_row(result);
    for (unsigned i = 0; row && i < mysql_num_fields(result) && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s|", row[i] ? row[i] : "");
    there = row;
    mysql_free_result(result);
    return there;
}

void read_row(struct client *c, const char *table, uint64_t id)
{
    char key[64], text[2048], life[12];
    uint64_t began = begin(c), took;
    int r;

    snprintf(key, sizeof key, "%s:%" PRIu64, table, id);
    if (strcmp(way, "none") == 0) {
        c->errors += !select_row(c, table, id, text, sizeof text);
    } else {
        r = ask(c, 2, (const char *[]){"GET", key});
        if (strcmp(way, "redis") == 0) {
            c->hits += r == 1;
            if (r != 1) {
                c->errors += !select_row(c, table, id, text, sizeof text);
                snprintf(life, sizeof life, "%d", LIFE);
                c->errors +=
                    ask(c, 5, (const char *[]){"SET", key, text, "EX", life}) == -1;
            }
        } else {
            c->errors += r != 1;
        }
    }
    took = now_ns() - began;
    if (c->reads < TIMES)
        c->us[c->reads] = (float)took / 1000;
    c->reads++;
}

void write_row(struct client *c, const char *table, uint64_t id)
{
    char query[128], key[64];
    uint64_t began = begin(c), took;

    snprintf(query, sizeof query, "UPDATE %s SET v = v + 1 WHERE id = %" PRIu64, table,
             id);
    if (mysql_query(c->mysql, query) != 0)
        die("MariaDB", mysql_error(c->mysql));
    if (strcmp(way, "redis") == 0) {
        snprintf(key, sizeof key, "%s:%" PRIu64, table, id);
        ask(c, 2, (const char *[]){"DEL", key});
    }
    took = now_ns() - began;
    if (c->writes < TIMES)
        c->write_us[c->writes] = (float)took / 1000;
    c->writes++;
}

bool is_over(const struct client *c)
{
    return now_ns() >= end_ns || (most && c->reads + c->writes >= most);
}

/* Exponentially distributed. */
void think(struct client *c)
{
    double u = ((double)draw(c, UINT64_C(1) << 32) + 1) / 4294967297.0;
    uint64_t ns = (uint64_t)(-log(u) * think_us * 1000);
    struct timespec t;

    if (paced)
        ns += c->due ? c->due : now_ns();
    t = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    if (paced) {
        c->due = c->since = ns;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
    } else if (think_us > 0) {
        nanosleep(&t, NULL);
    }
}

static void *run(void *opaque)
{
    struct client *c = opaque;

    mysql_thread_init();
    while (!is_over(c))
        workload->act(c);
    mysql_thread_end();
    return NULL;
}

/* --- what is printed --- */

static uint64_t info(struct client *c, const char *name)
{
    char line[64], *at;

    if (ask(c, 1, (const char *[]){"INFO"}) != 1)
        die(cache, "says no INFO");
    c->in[c->length] = '\0';
    snprintf(line, sizeof line, "\n%s:", name);
    at = strstr(c->in, line);
    if (!at)
        die(name, "is not in INFO");
    return strtoull(at + strlen(line), NULL, 10);
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Of all clients, sorted; *n of them.  The caller frees them. */
static float *times(const struct client *all, bool written, uint64_t *n, double *mean)
{
    float *us, *to;
    double sum = 0;

    *n = 0;
    for (unsigned i = 0; i < clients; i++)
        *n += written ? all[i].writes : all[i].reads;
    us = to = malloc((*n + 1) * sizeof *us);
    if (!us)
        die("times", "out of memory");
    for (unsigned i = 0; i < clients; i++) {
        uint64_t of = written ? all[i].writes : all[i].reads;
        const float *from = written ? all[i].write_us : all[i].us;

        for (uint64_t j = 0; j < of && j < TIMES; j++)
            sum += *to++ = from[j];
    }
    *n = (uint64_t)(to - us);
    *mean = *n ? sum / (double)*n : 0;
    qsort(us, *n, sizeof *us, by_size);
    return us;
}

static void print(const struct client *all, uint64_t hits, uint64_t selects,
                  double took)
{
    uint64_t reads = 0, writes = 0, errors = 0, n, written;
    double mean, write_mean;
    float *us = times(all, false, &n, &mean),
          *write_us = times(all, true, &written, &write_mean);

    for (unsigned i = 0; i < clients; i++) {
        hits += all[i].hits;
        selects += all[i].selects;
        reads += all[i].reads;
        writes += all[i].writes;
        errors += all[i].errors;
    }
    if (n == 0)
        die("reads", "there are none");
    printf("%" PRIu64 " %.4f %.0f %.0f %" PRIu64 " %" PRIu64 " %.0f %.0f %" PRIu64
           " %.2f\n",
           reads, (double)hits / (double)reads, mean, (double)us[n * 95 / 100], selects,
           writes, write_mean, written ? (double)write_us[written / 2] : 0, errors,
           took);
    free(us);
    free(write_us);
}

static unsigned number(const char *text)
{
    return (unsigned)strtoul(text, NULL, 10);
}

int main(int argc, char **argv)
{
    struct client *all;
    uint64_t hits = 0, selects = 0, began, ended;
    bool daemon;

    if (argc != 13)
        die("usage", "see rowcache-load.c");
    way = argv[1];
    for (workload = workloads; workload->name && strcmp(workload->name, argv[2]) != 0;)
        workload++;
    if (!workload->name)
        die(argv[2], "is no workload");
    database = argv[3];
    cache = argv[4];
    clients = number(argv[5]);
    seconds = number(argv[6]);
    think_us = number(argv[7]);
    reads_percent = number(argv[8]);
    scale = number(argv[9]);
    seed = number(argv[10]);
    most = number(argv[11]);
    paced = number(argv[12]) > 0;
    if (paced)
        think_us = (unsigned)(clients * UINT64_C(1000000) / number(argv[12]));
    daemon = strcmp(way, "rowcache") == 0;
    all = calloc(clients, sizeof *all);
    if (!all || mysql_library_init(0, NULL, NULL) != 0)
        die("start", "out of memory");
    for (unsigned i = 0; i < clients; i++) {
        struct client *c = &all[i];

        c->random = seed << 32 | i;
        c->us = malloc(TIMES * sizeof *c->us);
        c->write_us = malloc(TIMES * sizeof *c->write_us);
        c->mysql = mysql_init(NULL);
        c->fd = strcmp(way, "none") == 0 ? -1 : dial(cache);
        if (!c->us || !c->write_us || !c->mysql ||
            !mysql_real_connect(c->mysql, NULL, "root", NULL, "shop", 0, database, 0))
            die(database, c->mysql ? mysql_error(c->mysql) : "out of memory");
    }
    if (daemon) {
        hits = info(&all[0], "keyspace_hits");
        selects = info(&all[0], "database_queries");
    }
    began = now_ns();
    end_ns = began + seconds * UINT64_C(1000000000);
    for (unsigned i = 0; i < clients; i++)
        if (pthread_create(&all[i].thread, NULL, run, &all[i]) != 0)
            die("thread", strerror(errno));
    for (unsigned i = 0; i < clients; i++)
        pthread_join(all[i].thread, NULL);
    ended = now_ns();
    if (daemon) {
        hits = info(&all[0], "keyspace_hits") - hits;
        selects = info(&all[0], "database_queries") - selects;
    }
    print(all, hits, selects, (double)(ended - began) / 1e9);
    for (unsigned i = 0; i < clients; i++) {
        mysql_close(all[i].mysql);
        if (all[i].fd != -1)
            close(all[i].fd);
        free(all[i].us);
        free(all[i].write_us);
    }
    free(all);
    mysql_library_end();
    return 0;
}
