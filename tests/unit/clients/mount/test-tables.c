/* SPDX-License-Identifier: BSD-3-Clause */
/* test-tables.c - the mount's tables of contexts, without a kernel and without a
 * server.
 *
 * The server's device is replaced by one that keeps the books: which contexts are open,
 * within which, and whether each is ended once, and not while a request holds it.
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "tests/harness.h"

#include "clients/mount/peer.h"
#include "clients/mount/requester.h"
#include "clients/mount/threads.h"
#include "clients/protocol/quickmine-mount.h"

/* --- the device that keeps the books --- */

enum { BOOK = 1 << 20 };

static struct {
    atomic_bool open[BOOK];
    qmctx_id parent[BOOK];
    uint64_t klass[BOOK];
    char name[BOOK][8];
    atomic_uint next;
    atomic_uint wrong; /* ended although not open, or begun in what is not open */
    atomic_int refuse; /* an errno value for all begins */
} book;

int qm_device_begin(struct qm_device *device, qmctx_id parent, enum qmctx_kind kind,
                    uint64_t klass, const char *name, qmctx_id *id)
{
    int refuse = atomic_load(&book.refuse);

    if (refuse)
        return refuse;
    *id = atomic_fetch_add(&book.next, 1) + 1;
    assert_true(*id < BOOK);
    if (parent && !atomic_load(&book.open[parent]))
        atomic_fetch_add(&book.wrong, 1);
    book.parent[*id] = parent;
    book.klass[*id] = klass;
    strncpy(book.name[*id], name ? name : "", sizeof book.name[*id] - 1);
    atomic_store(&book.open[*id], true);
    return 0;
}

void qm_device_end(struct qm_device *device, qmctx_id id)
{
    if (!atomic_exchange(&book.open[id], false))
        atomic_fetch_add(&book.wrong, 1);
}

static unsigned open_now(void)
{
    unsigned n = 0, last = atomic_load(&book.next);

    for (unsigned i = 1; i <= last; i++)
        n += atomic_load(&book.open[i]);
    return n;
}

static int clear_book(void **state)
{
    unsigned last = atomic_load(&book.next);

    for (unsigned i = 0; i <= last; i++)
        atomic_store(&book.open[i], false);
    atomic_store(&book.next, 0);
    atomic_store(&book.wrong, 0);
    atomic_store(&book.refuse, 0);
    return 0;
}

/* What a request does with a tag: its context must be open for as long. */
static void use(struct qm_tag *tag)
{
    if (tag && !atomic_load(&book.open[qm_tag_context(tag)]))
        atomic_fetch_add(&book.wrong, 1);
    qm_tag_put(tag);
}

/* --- a clock that stands still, if wanted --- */

static _Atomic time_t stopped_at; /* seconds; 0: it goes */

int __real_clock_gettime(clockid_t clock, struct timespec *now);
/* Visible, as the linker takes a sanitizer's own reference for one to this. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t clock,
                                                                struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    time_t at = atomic_load(&stopped_at);

    if (at == 0)
        return __real_clock_gettime(clock, now);
    *now = (struct timespec){.tv_sec = at};
    return 0;
}

/* --- threads --- */

/* Numbers here are nobody's, unless they are said to be a kernel thread's. */
static _Atomic pid_t kernel_thread;
static atomic_uint looks; /* at that one */

bool __real_qm_requester_is_kernel(pid_t thread);
bool __wrap_qm_requester_is_kernel(pid_t thread);

bool __wrap_qm_requester_is_kernel(pid_t thread)
{
    bool is = thread == atomic_load(&kernel_thread);

    atomic_fetch_add(&looks, is);
    return is;
}

/* Who waits for a request: not the kernel's thread that has made it. */
TEST(test_requester)
{
    char name[32] = "";
    FILE *comm = fopen("/proc/2/comm", "r");

    if (comm) {
        (void)!fgets(name, sizeof name, comm);
        fclose(comm);
    }
    if (strcmp(name, "kthreadd\n") == 0) {
        assert_true(__real_qm_requester_is_kernel(2));
        assert_int_equal(qm_requester_process(2), QM_REQUESTER_KERNEL);
    }
    assert_false(qm_requester_process_gone(QM_REQUESTER_KERNEL));
    assert_false(__real_qm_requester_is_kernel(gettid()));
    assert_int_equal(qm_requester_process(gettid()), getpid());
    assert_false(qm_requester_process_gone(getpid()));
    assert_false(__real_qm_requester_is_kernel(INT_MAX));
    assert_int_equal(qm_requester_process(INT_MAX), 0);
    assert_true(qm_requester_process_gone(INT_MAX));
}

/* It has no context, and is not asked for each time. */
TEST_WITH(test_kernel_thread, clear_book, NULL)
{
    struct qm_threads *threads = qm_threads_new(NULL);

    atomic_store(&looks, 0);
    atomic_store(&kernel_thread, 7);
    atomic_store(&stopped_at, 1000);
    assert_null(qm_threads_tag(threads, 7));
    assert_null(qm_threads_tag(threads, 7));
    qm_tag_put(qm_threads_tag(threads, 8));
    assert_int_equal(open_now(), 1);
    assert_int_equal(atomic_load(&looks), 1);
    atomic_store(&stopped_at, 1000 + QM_THREADS_IDLE + 1);
    qm_threads_sweep(threads); /* both go */
    assert_int_equal(open_now(), 0);
    assert_null(qm_threads_tag(threads, 7));
    assert_int_equal(atomic_load(&looks), 2);
    atomic_store(&stopped_at, 0);
    atomic_store(&kernel_thread, 0);
    qm_threads_free(threads);
    assert_int_equal(atomic_load(&book.wrong), 0);
}

TEST_WITH(test_thread_has_one_context, clear_book, NULL)
{
    struct qm_threads *threads = qm_threads_new(NULL);
    struct qm_tag *a, *again, *other;

    pthread_setname_np(pthread_self(), "reader");
    a = qm_threads_tag(threads, gettid());
    again = qm_threads_tag(threads, gettid());
    other = qm_threads_tag(threads, 1);
    assert_non_null(a);
    assert_ptr_equal(a, again);
    assert_ptr_not_equal(a, other);
    assert_string_equal(book.name[qm_tag_context(a)], "reader");
    qm_tag_put(a);
    qm_tag_put(again);
    qm_tag_put(other);
    assert_int_equal(open_now(), 2);
    qm_threads_sweep(threads); /* nobody is idle for that long */
    assert_int_equal(open_now(), 2);
    qm_threads_free(threads);
    assert_int_equal(open_now(), 0);
    assert_int_equal(atomic_load(&book.wrong), 0);
}

TEST_WITH(test_the_longest_idle_thread_goes, clear_book, NULL)
{
    struct qm_threads *threads = qm_threads_new(NULL);
    struct qm_tag *held = qm_threads_tag(threads, 1), *tag;
    qmctx_id second;

    tag = qm_threads_tag(threads, 2);
    second = qm_tag_context(tag);
    qm_tag_put(tag);
    for (pid_t tid = 3; tid < 3 + QM_THREADS_MAX - 2; tid++)
        qm_tag_put(qm_threads_tag(threads, tid));
    assert_int_equal(open_now(), QM_THREADS_MAX);

    qm_tag_put(qm_threads_tag(threads, 5000)); /* 1 goes, but a request holds it */
    assert_true(atomic_load(&book.open[qm_tag_context(held)]));
    assert_int_equal(open_now(), QM_THREADS_MAX + 1);
    qm_tag_put(held);
    assert_int_equal(open_now(), QM_THREADS_MAX);

    tag = qm_threads_tag(threads, 2); /* is now the youngest */
    assert_int_equal(qm_tag_context(tag), second);
    qm_tag_put(tag);
    qm_tag_put(qm_threads_tag(threads, 5001));
    assert_true(atomic_load(&book.open[second]));
    qm_threads_free(threads);
    assert_int_equal(open_now(), 0);
    assert_int_equal(atomic_load(&book.wrong), 0);
}

/* What counts is when a thread has read last, not when it was first seen. */
TEST_WITH(test_idle_threads_go, clear_book, NULL)
{
    struct qm_threads *threads = qm_threads_new(NULL);
    struct qm_tag *held;
    qmctx_id busy;

    atomic_store(&stopped_at, 1000);
    held = qm_threads_tag(threads, 1);
    busy = qm_tag_context(held);
    qm_tag_put(held);
    held = qm_threads_tag(threads, 2);
    qm_tag_put(qm_threads_tag(threads, 3));
    atomic_store(&stopped_at, 1000 + QM_THREADS_IDLE);
    qm_tag_put(qm_threads_tag(threads, 1));
    qm_threads_sweep(threads);
    assert_int_equal(open_now(), 3);
    atomic_store(&stopped_at, 1000 + QM_THREADS_IDLE + 1);
    qm_threads_sweep(threads);
    /* 3 has gone, and 2 goes with the request that holds it. */
    assert_int_equal(open_now(), 2);
    qm_tag_put(held);
    assert_int_equal(open_now(), 1);
    assert_true(atomic_load(&book.open[busy]));
    atomic_store(&stopped_at, 1000 + 2 * QM_THREADS_IDLE + 1);
    qm_threads_sweep(threads);
    assert_int_equal(open_now(), 0);
    atomic_store(&stopped_at, 0);
    qm_threads_free(threads);
    assert_int_equal(atomic_load(&book.wrong), 0);
}

TEST_WITH(test_refused_thread_is_tried_again, clear_book, NULL)
{
    struct qm_threads *threads = qm_threads_new(NULL);

    atomic_store(&book.refuse, EIO);
    assert_null(qm_threads_tag(threads, 1));
    atomic_store(&book.refuse, 0);
    qm_tag_put(qm_threads_tag(threads, 1));
    assert_int_equal(open_now(), 1);
    qm_threads_free(threads);
}

struct crowd {
    struct qm_threads *threads;
    unsigned seed;
};

static void *crowd_reads(void *arg)
{
    struct crowd *c = arg;

    for (unsigned i = 0; i < 4000; i++)
        use(qm_threads_tag(c->threads, 1 + rand_r(&c->seed) % 2000));
    return NULL;
}

TEST_WITH(test_many_threads_read, clear_book, NULL)
{
    enum { N = 4 };
    struct qm_threads *threads = qm_threads_new(NULL);
    struct crowd crowd[N];
    pthread_t reader[N];

    for (unsigned i = 0; i < N; i++) {
        crowd[i] = (struct crowd){threads, i};
        assert_int_equal(pthread_create(&reader[i], NULL, crowd_reads, &crowd[i]), 0);
    }
    for (unsigned i = 0; i < N; i++)
        pthread_join(reader[i], NULL);
    assert_int_equal(open_now(), QM_THREADS_MAX);
    qm_threads_free(threads);
    assert_int_equal(open_now(), 0);
    assert_int_equal(atomic_load(&book.wrong), 0);
}

/* --- peers --- */

struct program {
    struct qm_peer *peer;
    int memory;
    struct qm_mount_entry *entries; /* the program's own mapping */
};

enum { NUMBER = 7, BYTES = QM_PEER_ENTRIES * sizeof(struct qm_mount_entry) };

static void attach(struct program *p)
{
    p->peer = qm_peer_new(NULL);
    assert_non_null(p->peer);
    assert_int_equal(qm_peer_attach(p->peer, NUMBER, &p->memory), 0);
    p->entries = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->memory, 0);
    assert_ptr_not_equal(p->entries, MAP_FAILED);
}

static void detach(struct program *p)
{
    qm_peer_detach(p->peer);
    assert_int_equal(open_now(), 0);
    assert_int_equal(atomic_load(&book.wrong), 0);
    assert_null(qm_peer_tag(p->peer, NUMBER, 0));
    qm_peer_free(p->peer);
    munmap(p->entries, BYTES);
    close(p->memory);
}

/* A thread of the program enters a context; parent: index + 1, or 0. */
static uint64_t enter(struct program *p, uint32_t index, uint32_t parent,
                      uint64_t parent_version, uint64_t klass)
{
    struct qm_mount_entry *e = &p->entries[index];
    uint64_t version = atomic_load(&e->version);

    atomic_store(&e->version, version + 1);
    e->kind = QMCTX_QUERY;
    e->parent = parent;
    e->parent_version = parent_version;
    e->klass = klass;
    e->name_len = 3;
    memcpy(e->name, "abcdef", 6);
    atomic_store(&e->version, version + 2);
    return version + 2;
}

static void leave(struct program *p, uint32_t index)
{
    struct qm_mount_entry *e = &p->entries[index];

    atomic_fetch_add(&e->version, 1);
    e->kind = 0;
    atomic_fetch_add(&e->version, 1);
}

static qmctx_id context_of(struct program *p, uint32_t index)
{
    struct qm_tag *tag = qm_peer_tag(p->peer, NUMBER, index);
    qmctx_id id = qm_tag_context(tag);

    qm_tag_put(tag);
    return id;
}

TEST_WITH(test_contexts_begin_when_used, clear_book, NULL)
{
    struct program p;
    uint64_t outer, inner;
    qmctx_id id;

    attach(&p);
    outer = enter(&p, 5, 0, 0, 50);
    inner = enter(&p, 6, 5 + 1, outer, 60);
    assert_int_equal(open_now(), 0);

    id = context_of(&p, 6);
    assert_int_not_equal(id, 0);
    assert_int_equal(open_now(), 2);
    assert_int_equal(book.klass[id], 60);
    assert_string_equal(book.name[id], "abc");
    assert_int_equal(book.klass[book.parent[id]], 50);
    assert_int_equal(atomic_load(&p.entries[5].seen), outer);
    assert_int_equal(atomic_load(&p.entries[6].seen), inner);
    assert_int_equal(context_of(&p, 6), id);
    assert_int_equal(context_of(&p, 5), book.parent[id]);
    assert_int_equal(open_now(), 2);

    /* Another inner one in the same entry: the old one is over. */
    enter(&p, 6, 5 + 1, outer, 61);
    assert_int_not_equal(context_of(&p, 6), id);
    assert_false(atomic_load(&book.open[id]));
    assert_int_equal(open_now(), 2);
    detach(&p);
}

TEST_WITH(test_ends, clear_book, NULL)
{
    struct program p;
    uint64_t version;
    struct qm_tag *tag;

    attach(&p);
    version = enter(&p, 1, 0, 0, 1);
    tag = qm_peer_tag(p.peer, NUMBER, 1);
    leave(&p, 1);
    qm_peer_ended(p.peer, 1, version);
    assert_int_equal(open_now(), 1); /* a request is still on its way */
    qm_tag_put(tag);
    assert_int_equal(open_now(), 0);
    assert_int_equal(context_of(&p, 1), 0);

    /* Without a word. */
    enter(&p, 1, 0, 0, 1);
    assert_int_not_equal(context_of(&p, 1), 0);
    qm_peer_sweep(p.peer);
    assert_int_equal(open_now(), 1);
    leave(&p, 1);
    qm_peer_sweep(p.peer);
    assert_int_equal(open_now(), 0);

    /* A word that comes late is about another context. */
    enter(&p, 1, 0, 0, 1);
    assert_int_not_equal(context_of(&p, 1), 0);
    qm_peer_ended(p.peer, 1, version);
    qm_peer_ended(p.peer, QM_PEER_ENTRIES, version);
    assert_int_equal(open_now(), 1);

    /* The program goes while a request is on its way. */
    tag = qm_peer_tag(p.peer, NUMBER, 1);
    qm_peer_detach(p.peer);
    assert_int_equal(open_now(), 1);
    qm_tag_put(tag);
    assert_int_equal(open_now(), 0);
    assert_null(qm_peer_tag(p.peer, NUMBER, 1));

    /* Its place is another's now: the old number does not lead there. */
    close(p.memory);
    assert_int_equal(qm_peer_attach(p.peer, NUMBER + 1, &p.memory), 0);
    munmap(p.entries, BYTES);
    p.entries = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p.memory, 0);
    enter(&p, 1, 0, 0, 1);
    assert_null(qm_peer_tag(p.peer, NUMBER, 1));
    qm_tag_put(qm_peer_tag(p.peer, NUMBER + 1, 1));
    assert_int_equal(open_now(), 1);
    detach(&p);
}

TEST_WITH(test_parents_that_are_none, clear_book, NULL)
{
    struct program p;
    uint64_t outer;
    qmctx_id id;

    attach(&p);
    outer = enter(&p, 1, 0, 0, 1);
    enter(&p, 1, 0, 0, 2); /* the outer one has ended */
    enter(&p, 2, 1 + 1, outer, 3);
    id = context_of(&p, 2);
    assert_int_not_equal(id, 0);
    assert_int_equal(book.parent[id], 0);

    enter(&p, 3, QM_PEER_ENTRIES + 1, 0, 3); /* there is no such entry */
    id = context_of(&p, 3);
    assert_int_not_equal(id, 0);
    assert_int_equal(book.parent[id], 0);

    enter(&p, 4, UINT32_MAX, 0, 3);
    assert_int_not_equal(context_of(&p, 4), 0);

    /* They enclose each other; and one itself. */
    enter(&p, 5, 6 + 1, 2, 3);
    enter(&p, 6, 5 + 1, 2, 3);
    assert_int_not_equal(context_of(&p, 5), 0);
    assert_int_not_equal(context_of(&p, 6), 0);
    enter(&p, 7, 7 + 1, 2, 3);
    assert_int_not_equal(context_of(&p, 7), 0);

    /* Deeper than anybody nests. */
    for (unsigned i = 100; i < 200; i++)
        enter(&p, i, i == 100 ? 0 : i, 2, i);
    id = context_of(&p, 199);
    assert_int_equal(book.klass[id], 199);
    assert_int_equal(book.klass[book.parent[id]], 198);
    detach(&p);
}

TEST_WITH(test_entries_that_are_none, clear_book, NULL)
{
    struct program p;
    uint64_t version;

    attach(&p);
    assert_int_equal(context_of(&p, 0), 0);

    enter(&p, 1, 0, 0, 1);
    p.entries[1].kind = 5;
    assert_int_equal(context_of(&p, 1), 0);
    p.entries[1].kind = QMCTX_QUERY;
    p.entries[1].name_len = QM_MOUNT_NAME_MAX + 1;
    assert_int_equal(context_of(&p, 1), 0);
    p.entries[1].name_len = QM_MOUNT_NAME_MAX;
    memset(p.entries[1].name, 'x', sizeof p.entries[1].name);
    assert_int_not_equal(context_of(&p, 1), 0);

    version = enter(&p, 2, 0, 0, 1);
    atomic_store(&p.entries[2].version, version + 1); /* being changed */
    assert_int_equal(context_of(&p, 2), 0);

    assert_int_equal(ftruncate(p.memory, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(ftruncate(p.memory, 2L * BYTES), -1);
    detach(&p);
}

TEST_WITH(test_what_the_server_refuses, clear_book, NULL)
{
    struct program p;

    attach(&p);
    enter(&p, 1, 0, 0, 1);
    atomic_store(&book.refuse, EIO); /* it is away: later */
    assert_int_equal(context_of(&p, 1), 0);
    atomic_store(&book.refuse, EINVAL); /* it will not have it: never */
    assert_int_equal(context_of(&p, 1), 0);
    atomic_store(&book.refuse, 0);
    assert_int_equal(context_of(&p, 1), 0);
    enter(&p, 1, 0, 0, 1);
    atomic_store(&book.refuse, EIO);
    assert_int_equal(context_of(&p, 1), 0);
    atomic_store(&book.refuse, 0);
    assert_int_not_equal(context_of(&p, 1), 0);
    detach(&p);
}

/* --- a hostile program, and threads that read in what it announces --- */

struct fight {
    struct program program;
    atomic_bool over;
};

struct reader {
    struct fight *fight;
    unsigned seed;
};

enum { FIGHT_ENTRIES = 16 };

static void *scribble(void *arg)
{
    struct fight *f = arg;
    unsigned seed = 1;

    while (!atomic_load(&f->over)) {
        struct qm_mount_entry *e = &f->program.entries[rand_r(&seed) % FIGHT_ENTRIES];
        uint64_t small = (uint64_t)rand_r(&seed) % 8;

        switch (rand_r(&seed) % 8) {
        case 0:
            atomic_store(&e->version, small);
            break;
        case 1:
            atomic_store(&e->seen, small);
            break;
        case 2:
            __atomic_store_n(&e->kind, (uint32_t)small, __ATOMIC_RELAXED);
            break;
        case 3:
            __atomic_store_n(&e->parent, (uint32_t)rand_r(&seed) % (FIGHT_ENTRIES + 2),
                             __ATOMIC_RELAXED);
            break;
        case 4:
            __atomic_store_n(&e->parent_version, small, __ATOMIC_RELAXED);
            break;
        case 5:
            __atomic_store_n(&e->name_len, (uint32_t)rand_r(&seed) % 300,
                             __ATOMIC_RELAXED);
            break;
        case 6:
            qm_peer_ended(f->program.peer, (uint32_t)rand_r(&seed) % FIGHT_ENTRIES,
                          small);
            break;
        default:
            qm_peer_sweep(f->program.peer);
        }
    }
    return NULL;
}

#define FIGHT_MAX 50000000

static void *fight_reads(void *arg)
{
    struct reader *r = arg;

    /* Also until the scribbler, who may get no CPU for long, has hit on something. */
    for (unsigned i = 0; i < 20000 || (i < FIGHT_MAX && atomic_load(&book.next) == 0);
         i++)
        use(qm_peer_tag(r->fight->program.peer, NUMBER,
                        (uint32_t)rand_r(&r->seed) % FIGHT_ENTRIES));
    return NULL;
}

TEST_WITH(test_hostile_memory, clear_book, NULL)
{
    enum { N = 3 };
    struct fight f = {0};
    struct reader readers[N];
    pthread_t scribbler, thread[N];

    attach(&f.program);
    assert_int_equal(pthread_create(&scribbler, NULL, scribble, &f), 0);
    for (unsigned i = 0; i < N; i++) {
        readers[i] = (struct reader){&f, i + 10};
        assert_int_equal(pthread_create(&thread[i], NULL, fight_reads, &readers[i]), 0);
    }
    for (unsigned i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&f.over, true);
    pthread_join(scribbler, NULL);
    assert_true(atomic_load(&book.next) > 0);
    detach(&f.program);
}

/* A program goes while others still name its contexts. */
TEST_WITH(test_detach_while_read, clear_book, NULL)
{
    enum { N = 2 };
    struct fight f = {0};
    struct reader readers[N];
    pthread_t thread[N];

    attach(&f.program);
    for (unsigned i = 0; i < FIGHT_ENTRIES; i++)
        enter(&f.program, i, i, 2, i);
    for (unsigned i = 0; i < N; i++) {
        readers[i] = (struct reader){&f, i + 10};
        assert_int_equal(pthread_create(&thread[i], NULL, fight_reads, &readers[i]), 0);
    }
    for (unsigned i = 0; i < 20; i++) {
        int memory;

        qm_peer_detach(f.program.peer);
        assert_int_equal(qm_peer_attach(f.program.peer, NUMBER, &memory), 0);
        munmap(f.program.entries, BYTES);
        close(f.program.memory);
        f.program.memory = memory;
        f.program.entries =
            mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
        for (unsigned j = 0; j < FIGHT_ENTRIES; j++)
            atomic_store(&f.program.entries[j].version, 0);
    }
    for (unsigned i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    detach(&f.program);
}
