/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-redis.c - what a Redis that keeps rows may answer, however wrong it is.
 *
 * The input is steps of the daemon and of Redis; Redis's own are any bytes, or what it
 * should answer.
 *
 * Promised: all that was asked is answered once, at the latest at the end; a row is
 * found only by an answer with the connection's name. */
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fuzz.h"
#include "rowcache/redis/internal.h"

enum { ASKED = 64 };

struct lookup {
    struct qm_redis_lookup redis; /* first */
    unsigned answers;
};

struct query {
    struct qm_redis_query redis; /* first */
    unsigned answers;
};

static struct event_base *base;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static int listener = -1;

struct run {
    struct qm_redis *redis;
    struct qm_rows_place place;
    int peer; /* Redis's end; -1: it has hung up */
    struct lookup lookup[ASKED];
    struct query query[ASKED];
    unsigned lookups, queries;
    unsigned digits; /* that were sent last, one behind the other */
};

static unsigned named; /* answers that Redis gave with the name */

static void found(struct qm_redis_lookup *lookup, enum qm_rows_kind kind,
                  const char *text, size_t length)
{
    ((struct lookup *)lookup)->answers++;
    promise(kind == QM_ROWS_NONE ||
            (named > 0 && text && (kind == QM_ROWS_ROW) == (length > 0)));
}

static void answered(struct qm_redis_query *query, const struct redisReply *reply)
{
    ((struct query *)query)->answers++;
}

static void said(void *opaque, const char *text)
{
}

static void end(void)
{
    unlink(address.sun_path);
    event_base_free(base);
}

static void begin(void)
{
    const char *where = getenv("TMPDIR");

    if (base)
        return;
    snprintf(address.sun_path, sizeof address.sun_path, "%s/fuzz-redis.%ld",
             where ? where : "/tmp", (long)getpid());
    base = event_base_new();
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    promise(base && listener != -1 &&
            bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
            listen(listener, 4) == 0);
    atexit(end);
}

/* Until nothing more happens. */
static void settle(struct run *run)
{
    static char bytes[65536];

    for (int i = 0; i < 4; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
    while (run->peer != -1 && recv(run->peer, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

static void answer(struct run *run, const void *bytes, size_t length)
{
    if (run->peer != -1)
        (void)!send(run->peer, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Without long numbers: hiredis allocates as many elements as are announced. */
static void answer_anything(struct run *run, char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        run->digits = bytes[i] >= '0' && bytes[i] <= '9' ? run->digits + 1 : 0;
        if (run->digits > 3)
            bytes[i] = 'x';
    }
    answer(run, bytes, length);
}

/* What it should answer to AUTH, SELECT, two SCRIPT LOADs and EVAL. */
static void answer_begin(struct run *run)
{
    static const char good[] =
        "+OK\r\n$40\r\n0123456789012345678901234567890123456789\r\n"
        "$40\r\n0123456789012345678901234567890123456789\r\n:1\r\n";

    answer(run, good, sizeof good - 1);
}

static void answer_lookup(struct run *run, const char *row, size_t length)
{
    char text[600];
    int n = snprintf(text, sizeof text, "*2\r\n$%d\r\n%s\r\n$%zu\r\n%.*s\r\n",
                     REDIS_NAME, run->redis->name, length, (int)length, row);

    named++;
    answer(run, text, (size_t)n);
}

static void step(struct run *run, struct food *f)
{
    static const char *const scan[] = {"SCAN", "0"};
    char bytes[256];
    size_t length;
    struct lookup *l = &run->lookup[run->lookups];
    struct query *q = &run->query[run->queries];

    switch (eat_number(f, 1) % 12) {
    case 0:
        l->redis.found = found;
        if (run->lookups < ASKED && qm_redis_get(run->redis, &l->redis, "s.t:1", 5))
            run->lookups++;
        break;
    case 1:
        q->redis.answered = answered;
        if (run->queries < ASKED &&
            qm_redis_ask(run->redis, &q->redis, 2, (const char **)scan,
                         (const size_t[]){4, 1}))
            run->queries++;
        break;
    case 2:
        run->place.put(run->redis, "s.t:1", 5, "{}", eat_number(f, 1) % 3, 0);
        break;
    case 3:
        run->place.remove(run->redis, "s.t:1", 5);
        break;
    case 4:
        run->place.clear(run->redis);
        break;
    case 5:
        qm_redis_fresh(run->redis, "0-1-1", 100);
        break;
    case 6:
        answer_begin(run);
        break;
    case 7:
        answer_lookup(run, "{}", eat_number(f, 1) % 3);
        break;
    case 8:
        if (run->peer != -1)
            close(run->peer);
        run->peer = -1;
        break;
    case 9:
        answer(run, ":1\r\n", 4);
        break;
    default:
        length = eat_number(f, 1);
        if (length > f->left)
            length = f->left;
        memset(bytes, 0, sizeof bytes);
        eat(f, bytes, length);
        answer_anything(run, bytes, length);
    }
    /* Or several steps are seen at once. */
    if (eat_number(f, 1) % 4 != 0)
        settle(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct food f = {data, size};
    struct run run = {.peer = -1};
    struct qm_redis_settings settings = {.unix_socket = address.sun_path,
                                         .timeout_ms = 60000};

    begin();
    named = 0;
    run.redis = qm_redis_start(&settings, base, said, NULL);
    promise(run.redis);
    run.place = qm_redis_place(run.redis);
    run.peer = accept(listener, NULL, NULL);
    promise(run.peer != -1);
    if (eat_number(&f, 1) % 4 != 0)
        answer_begin(&run);
    settle(&run);
    while (f.left > 0)
        step(&run, &f);
    settle(&run);
    qm_redis_stop(run.redis);
    settle(&run);
    for (unsigned i = 0; i < run.lookups; i++)
        promise(run.lookup[i].answers == 1);
    for (unsigned i = 0; i < run.queries; i++)
        promise(run.query[i].answers == 1);
    if (run.peer != -1)
        close(run.peer);
    return 0;
}
