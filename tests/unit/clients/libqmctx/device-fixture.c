/* SPDX-License-Identifier: BSD-3-Clause */
/* device-fixture.c - see device-fixture.h. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "device-fixture.h"

enum { PATIENCE = 60 }; /* seconds */

struct mock_server mock;
struct qm_device *device;
struct qm_device_options options;
_Atomic unsigned seen;

struct task {
    struct job job;
    pthread_t thread;
    int result;
    char read;
    _Atomic bool over;
    _Atomic int tid;
    struct task *next;
};
static struct task *tasks; /* not finished; of the test's thread */

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];

static void on_log(void *opaque, int priority, const char *sentence)
{
    size_t len;

    pthread_mutex_lock(&log_lock);
    len = strlen(log_text);
    snprintf(log_text + len, sizeof log_text - len, "%s\n", sentence);
    pthread_mutex_unlock(&log_lock);
}

unsigned said(const char *text)
{
    unsigned n = 0;

    pthread_mutex_lock(&log_lock);
    for (const char *p = log_text; (p = strstr(p, text)); p++)
        n++;
    pthread_mutex_unlock(&log_lock);
    return n;
}

bool has_been_said(void *text)
{
    return said(text) > 0;
}

int set_up(void **state)
{
    mock_init(&mock);
    device = NULL;
    options = (struct qm_device_options){
        .connections = 4,
        .wait = QM_DEVICE_FOREVER,
        .reconnect = QM_DEVICE_FOREVER,
        .log = on_log,
    };
    atomic_store(&seen, 0);
    log_text[0] = '\0';
    return 0;
}

/* A test that has failed leaves its jobs; the device cannot be closed under them. */
static void end_tasks(void)
{
    time_t until = time(NULL) + PATIENCE;

    for (unsigned i = 0; tasks && i < MOCK_TYPES; i++)
        mock_hold(&mock, i, false);
    if (tasks && !mock.running)
        mock_start(&mock);
    while (tasks) {
        struct task *task = tasks;

        if (time(NULL) > until)
            _exit(1); /* without cmocka's report, but not held up by what hangs */
        if (atomic_load(&task->over)) {
            pthread_join(task->thread, NULL);
            tasks = task->next;
            free(task);
        } else {
            usleep(2000);
        }
    }
}

int tear_down(void **state)
{
    end_tasks();
    qm_device_close(device);
    device = NULL;
    mock_destroy(&mock);
    return 0;
}

void open_device(void)
{
    mock_start(&mock);
    if (qm_device_open(mock.uri, &options, &device))
        fail_msg("%s", qmctx_error());
    atomic_store(&seen, qm_device_losses(device));
}

int set_up_open(void **state)
{
    set_up(state);
    open_device();
    return 0;
}

struct qm_device_stat stat_now(void)
{
    struct qm_device_stat stat;

    qm_device_stat(device, &stat);
    return stat;
}

void await(bool (*holds)(void *), void *opaque)
{
    time_t until = time(NULL) + PATIENCE;

    while (!holds(opaque)) {
        if (time(NULL) > until)
            fail_msg("waited in vain; the device said: %s", log_text);
        usleep(2000);
    }
}

static bool is_up(void *opaque)
{
    return qm_device_is_up(device);
}

static bool is_lost(void *opaque)
{
    return !qm_device_is_up(device);
}

void await_up(void)
{
    await(is_up, NULL);
}

void await_lost(void)
{
    await(is_lost, NULL);
}

static bool has_reconnected(void *times)
{
    return stat_now().reconnections >= *(unsigned *)times && qm_device_is_up(device);
}

void await_reconnections(unsigned times)
{
    await(has_reconnected, &times);
}

int try_put_page(unsigned page, char letter, bool fua)
{
    char buf[PAGE];

    memset(buf, letter, sizeof buf);
    return qm_device_write(device, NULL, 0, buf, sizeof buf, (uint64_t)page * PAGE,
                           fua);
}

void put_page(unsigned page, char letter, bool fua)
{
    assert_int_equal(try_put_page(page, letter, fua), 0);
}

char get_page(unsigned page)
{
    char buf[PAGE];

    assert_int_equal(
        qm_device_read(device, NULL, 0, buf, sizeof buf, (uint64_t)page * PAGE), 0);
    for (unsigned i = 1; i < sizeof buf; i++)
        assert_int_equal(buf[i], buf[0]);
    return buf[0];
}

int flush(void)
{
    return qm_device_flush(device, NULL, &seen);
}

static void *run(void *opaque)
{
    struct task *task = opaque;
    const struct job *job = &task->job;
    size_t count = (job->pages ? job->pages : 1) * (size_t)PAGE;
    uint64_t offset = (uint64_t)job->page * PAGE;
    char *buf = malloc(count);

    atomic_store(&task->tid, (int)gettid());
    memset(buf, job->letter, count);
    switch (job->what) {
    case JOB_WRITE:
        task->result =
            qm_device_write(device, job->requester, 0, buf, count, offset, job->fua);
        break;
    case JOB_READ:
        task->result = qm_device_read(device, job->requester, 0, buf, count, offset);
        task->read = buf[0];
        break;
    case JOB_ZERO:
        task->result = qm_device_zero(device, job->requester, count, offset);
        break;
    case JOB_STOP_RETAINING:
        task->result = qm_device_stop_retaining(device);
        break;
    default:
        task->result = qm_device_flush(device, job->requester, &seen);
    }
    free(buf);
    atomic_store(&task->over, true);
    return NULL;
}

void start_job(struct job *job)
{
    struct task *task = calloc(1, sizeof *task);

    assert_non_null(task);
    task->job = *job;
    job->task = task;
    assert_int_equal(pthread_create(&task->thread, NULL, run, task), 0);
    task->next = tasks;
    tasks = task;
}

int finish_job(struct job *job)
{
    struct task *task = job->task, **at = &tasks;
    int result;

    pthread_join(task->thread, NULL);
    if (job->what == JOB_READ)
        job->letter = task->read;
    result = task->result;
    while (*at != task)
        at = &(*at)->next;
    *at = task->next;
    free(task);
    job->task = NULL;
    return result;
}

bool job_is_over(void *job)
{
    return atomic_load(&((struct job *)job)->task->over);
}

static bool is_asleep(void *opaque)
{
    struct task *task = opaque;
    char path[64], text[256] = "", *state;
    FILE *file;

    if (atomic_load(&task->over))
        return true;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&task->tid));
    file = fopen(path, "r");
    if (!file)
        return false;
    state = fgets(text, sizeof text, file) ? strrchr(text, ')') : NULL;
    fclose(file);
    return state && state[1] == ' ' && state[2] == 'S';
}

void await_asleep(struct job *job)
{
    await(is_asleep, job->task);
}
