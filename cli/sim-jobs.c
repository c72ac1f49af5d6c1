/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-jobs.c - the runs of quickmine sim, shared between processes.
 *
 * Each process is forked before any cache or rule cache is made, reads the trace by
 * itself, simulates its share, and writes results and series down a pipe when it is
 * done.  The parent collects them, and shows progress, which the processes note in
 * memory that they share.
 *
 * What a process has to say on stderr goes to a file of its own in memory: when the
 * first one fails the parent prints that, and ends the others.  If the parent dies, by
 * whatever signal, the kernel ends them.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/sim-jobs.h"

#define PROGRESS_MS 250

/* In memory that all processes share. */
struct sim_share {
    unsigned number, jobs;
    const struct sim_runs *runs;
    _Atomic uint64_t at, size; /* in the file, in bytes */
};

/* A process. */
struct job {
    pid_t pid;     /* 0: none */
    FILE *results; /* what it writes */
    int messages;  /* its stderr */
};

struct jobs {
    struct job *jobs;
    struct sim_share *shares;
    unsigned count;
};

/* Runs are dealt out so that each process gets some of every policy, which differ most
 * in what they cost: those of a policy to one process after the other, those of the
 * next policy beginning with the next process. */
bool sim_share_has(const struct sim_share *share, size_t run)
{
    size_t policies, evictions, policy, other;

    if (!share)
        return true;
    policies = share->runs->policies;
    evictions = share->runs->evictions;
    policy = run / evictions % policies;
    other = run / evictions / policies * evictions + run % evictions;
    return (policy + other) % share->jobs == share->number;
}

void sim_share_progress(struct sim_share *share, const struct qm_trace_reader *reader)
{
    uint64_t at, size;

    if (!share)
        return;
    qm_trace_position(reader, &at, &size);
    atomic_store_explicit(&share->at, at, memory_order_relaxed);
    atomic_store_explicit(&share->size, size, memory_order_relaxed);
}

/* ---- in a process */

static bool put(FILE *to, const void *data, size_t size, size_t count)
{
    return count == 0 || fwrite(data, size, count, to) == count;
}

static int write_results(const struct sim_runs *runs, const struct sim_share *share,
                         FILE *to)
{
    for (size_t i = 0; i < runs->count; i++) {
        const struct sim_run *run = &runs->runs[i];

        if (sim_share_has(share, i) &&
            (!put(to, &run->result, sizeof run->result, 1) ||
             !put(to, &run->point_count, sizeof run->point_count, 1) ||
             !put(to, run->points, sizeof run->points[0], run->point_count)))
            return cli_fail("the results cannot be handed over: %s", strerror(errno));
    }
    return fflush(to) == 0
               ? CLI_OK
               : cli_fail("the results cannot be handed over: %s", strerror(errno));
}

static int work(struct sim_runs *runs, struct sim_share *share, const char *file,
                FILE *to)
{
    struct qm_trace_reader *reader = cli_trace_open(file);
    int status = CLI_FAILED;

    if (reader)
        status = sim_simulate_share(runs, share, reader);
    if (status == CLI_OK)
        status = write_results(runs, share, to);
    qm_trace_free(reader);
    return status;
}

/* ---- in the parent */

/* Starts a process for a share.  Returns 0 or an errno value. */
static int start(struct job *job, struct sim_share *share, struct sim_runs *runs,
                 const char *file)
{
    pid_t parent = getpid();
    int ends[2], error;

    job->messages = memfd_create("messages", MFD_CLOEXEC);
    if (job->messages == -1)
        return errno;
    if (pipe(ends) == -1)
        return errno;
    fflush(NULL); /* or what is buffered would be printed twice */
    job->pid = fork();
    if (job->pid == 0) {
        FILE *to = fdopen(ends[1], "w");

        /* Dies with its parent, also if that died before it could say so. */
        if (!to || prctl(PR_SET_PDEATHSIG, SIGTERM) == -1 || getppid() != parent ||
            dup2(job->messages, STDERR_FILENO) == -1)
            _exit(CLI_FAILED);
        close(ends[0]);
        _exit(work(runs, share, file, to));
    }
    error = job->pid == -1 ? errno : 0;
    close(ends[1]);
    job->results = fdopen(ends[0], "r");
    if (!job->results) {
        close(ends[0]);
        return ENOMEM;
    }
    if (error)
        job->pid = 0;
    return error;
}

/* Prints what the process said. */
static void print_messages(const struct job *job)
{
    char text[4096];
    ssize_t n;

    lseek(job->messages, 0, SEEK_SET);
    while ((n = read(job->messages, text, sizeof text)) > 0)
        fwrite(text, 1, (size_t)n, stderr);
}

static bool get(FILE *from, void *data, size_t size, size_t count)
{
    return fread(data, size, count, from) == count;
}

static bool read_results(struct sim_runs *runs, const struct sim_share *share,
                         FILE *from)
{
    for (size_t i = 0; i < runs->count; i++) {
        struct sim_run *run = &runs->runs[i];

        if (!sim_share_has(share, i))
            continue;
        if (!get(from, &run->result, sizeof run->result, 1) ||
            !get(from, &run->point_count, sizeof run->point_count, 1))
            return false;
        if (run->point_count == 0)
            continue;
        run->points = calloc(run->point_count, sizeof run->points[0]);
        if (!run->points ||
            !get(from, run->points, sizeof run->points[0], run->point_count))
            return false;
    }
    return true;
}

/* Takes the results of a process that begins to write them, or ends without. */
static int collect(struct sim_runs *runs, const struct sim_share *share,
                   struct job *job)
{
    bool complete = read_results(runs, share, job->results);
    int how;

    fclose(job->results);
    job->results = NULL;
    while (waitpid(job->pid, &how, 0) == -1 && errno == EINTR)
        ;
    job->pid = 0;
    print_messages(job);
    if (WIFSIGNALED(how))
        return cli_fail("a process that simulated was ended by signal %d (%s)",
                        WTERMSIG(how), strsignal(WTERMSIG(how)));
    if (WEXITSTATUS(how) != CLI_OK) /* it has said why */
        return CLI_FAILED;
    return complete ? CLI_OK : cli_fail("a process did not hand over its results");
}

static void show_progress(const struct jobs *jobs, struct cli_progress *progress)
{
    uint64_t at = 0, size = 0;

    for (unsigned i = 0; i < jobs->count; i++) {
        at += atomic_load_explicit(&jobs->shares[i].at, memory_order_relaxed);
        size += atomic_load_explicit(&jobs->shares[i].size, memory_order_relaxed);
    }
    cli_progress_show(progress, at, size);
}

/* Until all processes are done, or one has failed. */
static int collect_all(struct sim_runs *runs, struct jobs *jobs, struct pollfd *fds)
{
    struct cli_progress progress;
    unsigned running = jobs->count;
    int status = CLI_OK;

    cli_progress_start(&progress, "simulating");
    while (running > 0 && status == CLI_OK) {
        for (unsigned i = 0; i < jobs->count; i++) {
            FILE *results = jobs->jobs[i].results;

            fds[i] =
                (struct pollfd){.fd = results ? fileno(results) : -1, .events = POLLIN};
        }
        if (poll(fds, jobs->count, PROGRESS_MS) <= 0) {
            show_progress(jobs, &progress);
            continue;
        }
        cli_progress_stop(&progress);
        for (unsigned i = 0; i < jobs->count && status == CLI_OK; i++) {
            if (fds[i].fd == -1 || fds[i].revents == 0)
                continue;
            status = collect(runs, &jobs->shares[i], &jobs->jobs[i]);
            running--;
        }
    }
    cli_progress_stop(&progress);
    return status;
}

static int start_all(struct sim_runs *runs, struct jobs *jobs, const char *file)
{
    for (unsigned i = 0; i < jobs->count; i++) {
        int error;

        jobs->shares[i].number = i;
        jobs->shares[i].jobs = jobs->count;
        jobs->shares[i].runs = runs;
        error = start(&jobs->jobs[i], &jobs->shares[i], runs, file);
        if (error)
            return cli_fail(
                "no process can be started for the simulation: %s (--jobs 1 "
                "needs none)",
                strerror(error));
    }
    return CLI_OK;
}

/* Ends what is still running. */
static void end_all(struct jobs *jobs)
{
    for (unsigned i = 0; i < jobs->count; i++)
        if (jobs->jobs[i].pid > 0)
            kill(jobs->jobs[i].pid, SIGTERM);
    for (unsigned i = 0; i < jobs->count; i++) {
        struct job *job = &jobs->jobs[i];

        while (job->pid > 0 && waitpid(job->pid, NULL, 0) == -1 && errno == EINTR)
            ;
        if (job->results)
            fclose(job->results);
        if (job->messages > STDERR_FILENO)
            close(job->messages);
    }
}

int sim_simulate_jobs(struct sim_runs *runs, const char *file)
{
    struct jobs jobs = {.count = runs->jobs < runs->count ? runs->jobs
                                                          : (unsigned)runs->count};
    struct pollfd *fds = calloc(jobs.count, sizeof *fds);
    size_t size = jobs.count * sizeof(struct sim_share);
    int status = CLI_FAILED;

    jobs.jobs = calloc(jobs.count, sizeof *jobs.jobs);
    jobs.shares =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!fds || !jobs.jobs || jobs.shares == MAP_FAILED) {
        cli_fail("out of memory");
    } else {
        status = start_all(runs, &jobs, file);
        if (status == CLI_OK)
            status = collect_all(runs, &jobs, fds);
        end_all(&jobs);
    }
    if (jobs.shares != MAP_FAILED)
        munmap(jobs.shares, size);
    free(jobs.jobs);
    free(fds);
    return status;
}
