/* SPDX-License-Identifier: BSD-3-Clause */
/* stat.c - counters of all backends, and the function quickmine_stat().
 *
 * Each backend has a slot, by its backend id, and is its only writer: counting costs no
 * more than in memory of its own.  A slot goes on from where the backend that had it
 * before left off, so their sum is what has happened since the server was started.
 */
#include <postgres.h>
#include <fmgr.h>
#include <funcapi.h>
#include <miscadmin.h>
#include <storage/ipc.h>
#include <storage/lwlock.h>
#include <storage/proc.h>
#include <storage/shmem.h>
#include <utils/builtins.h>

#include <stdatomic.h>
#include <time.h>

#include "postgresql/module.h"
#include "postgresql/stat.h"

#if PG_VERSION_NUM < 170000 /* from 1, 0: there is none */
#include <storage/backendid.h>
#define BACKEND          (MyBackendId - 1)
#define BACKEND_OF(proc) ((proc)->backendId - 1)
#else
#include <storage/procnumber.h>
#define BACKEND          MyProcNumber
#define BACKEND_OF(proc) GetNumberFromPGProc(proc)
#endif

struct slot {
    _Alignas(64) struct qm_counts counts;
    _Atomic uint64_t shown;
};

#define SILENCE_MS 10000
#define IN_VAIN_MS 500 /* an agent that is not there, or refuses, takes less */

struct shared {
    _Atomic uint64_t silent; /* until when nobody looks for the agent, in ms; 0 */
    struct slot slots[];     /* MaxBackends */
};

static _Atomic uint64_t *silent; /* as slots */
static struct slot *slots;       /* NULL: there is no shared memory of ours */
static struct qm_counts own;

static shmem_request_hook_type next_request;
static shmem_startup_hook_type next_startup;

static Size bytes(void)
{
    return sizeof(struct shared) + (Size)MaxBackends * sizeof(struct slot) +
           _Alignof(struct shared);
}

static void request(void)
{
    if (next_request)
        next_request();
    RequestAddinShmemSpace(bytes());
}

static void startup(void)
{
    bool found;
    void *memory;
    struct shared *shared;

    if (next_startup)
        next_startup();
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    memory = ShmemInitStruct("quickmine", bytes(), &found);
    if (!found)
        memset(memory, 0, bytes());
    shared = (struct shared *)TYPEALIGN(_Alignof(struct shared), memory);
    slots = shared->slots;
    silent = &shared->silent;
    LWLockRelease(AddinShmemInitLock);
}

void qm_stat_reserve(void)
{
    next_request = shmem_request_hook;
    shmem_request_hook = request;
    next_startup = shmem_startup_hook;
    shmem_startup_hook = startup;
}

struct qm_counts *qm_stat_of_backend(void)
{
    if (slots && BACKEND >= 0 && BACKEND < MaxBackends)
        return &slots[BACKEND].counts;
    return &own;
}

uint64_t qm_stat_show(uint64_t number)
{
    if (!slots || BACKEND < 0 || BACKEND >= MaxBackends)
        return 0;
    return atomic_exchange_explicit(&slots[BACKEND].shown, number,
                                    memory_order_relaxed);
}

uint64_t qm_stat_of_leader(int *process)
{
    const PGPROC *leader = MyProc->lockGroupLeader;
    int backend;

    /* A leader is in its own group, and a worker that has joined one in its leader's.
     */
    if (!slots || !leader || leader == MyProc)
        return 0;
    *process = leader->pid;
    backend = BACKEND_OF(leader);
    return backend >= 0 && backend < MaxBackends
               ? atomic_load_explicit(&slots[backend].shown, memory_order_relaxed)
               : 0;
}

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

bool qm_stat_may_look(uint64_t *since)
{
    uint64_t until = silent ? atomic_load(silent) : 0;

    *since = now_ms();
    return until == 0 || (*since >= until && atomic_compare_exchange_strong(
                                                 silent, &until, *since + SILENCE_MS));
}

void qm_stat_looked(uint64_t since, bool connected)
{
    uint64_t now = now_ms();

    if (silent)
        atomic_store(silent,
                     connected || now - since < IN_VAIN_MS ? 0 : now + SILENCE_MS);
}

static uint64_t load(_Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

PGDLLEXPORT Datum quickmine_stat(PG_FUNCTION_ARGS);
PG_FUNCTION_INFO_V1(quickmine_stat);
Datum quickmine_stat(PG_FUNCTION_ARGS)
{
    enum { TRANSPORT, CONNECTED, MESSAGE, CONNECTIONS, COLUMNS = 9 };
    Datum values[COLUMNS] = {0};
    bool nulls[COLUMNS] = {0};
    uint64_t sums[COLUMNS - CONNECTIONS] = {0};
    TupleDesc row;
    const char *message;

    if (!slots)
        ereport(ERROR, errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
                errmsg("quickmine must be loaded by shared_preload_libraries"));
    if (get_call_result_type(fcinfo, NULL, &row) != TYPEFUNC_COMPOSITE ||
        row->natts != COLUMNS)
        elog(ERROR, "quickmine_stat is not declared as this library wants it");

    for (int i = 0; i < MaxBackends; i++) {
        struct qm_counts *c = &slots[i].counts;
        /* In the order of the columns. */
        _Atomic uint64_t *const all[] = {&c->begun[QMCTX_CONNECTION],
                                         &c->begun[QMCTX_THREAD],
                                         &c->begun[QMCTX_TRANSACTION],
                                         &c->begun[QMCTX_QUERY],
                                         &c->ended,
                                         &c->failed};

        StaticAssertStmt(lengthof(all) == COLUMNS - CONNECTIONS, "a column each");
        for (size_t j = 0; j < lengthof(all); j++)
            sums[j] += load(all[j]);
    }
    values[TRANSPORT] = CStringGetTextDatum(qm_module_transport());
    values[CONNECTED] = BoolGetDatum(qm_module_connected(&message));
    if (message)
        values[MESSAGE] = CStringGetTextDatum(message);
    else
        nulls[MESSAGE] = true;
    for (int j = 0; j < COLUMNS - CONNECTIONS; j++)
        values[CONNECTIONS + j] = Int64GetDatum((int64)sums[j]);
    PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(row, values, nulls)));
}
