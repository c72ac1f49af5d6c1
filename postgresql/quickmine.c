/* SPDX-License-Identifier: BSD-3-Clause */
/* quickmine.c - a PostgreSQL module that tells whose reads are whose.
 *
 * It begins and ends contexts (connection > transaction > query) around what a backend
 * does, in the process that does it, through libqmctx; files on an NBD device of a
 * kernel that has contexts are read with them.  See quickmine-postgresql(7).
 *
 * What PostgreSQL tells, and what it does not:
 *
 *   - No hook is called when a transaction begins: its context begins with its first
 *     query's.  Callbacks are called when it is over, also after an error.
 *   - A query is planned, started, run, finished and ended by five calls.  With the
 *     simple protocol nothing comes between them.  With the extended protocol and with
 *     cursors anything may: a portal is run in pieces, and no hook is called at a
 *     message's end.  A client's query therefore has one context from its planning
 *     until it has run; parts that are planned or run apart have contexts of the same
 *     class.  Within functions, where the outer query goes on between any two calls,
 *     each call has a context of its own.
 *   - Statements that only run or steer others (FETCH, EXECUTE, EXPLAIN, BEGIN, ...)
 *     have no context, since the others have.
 *   - A parallel worker is a process of its own, and runs the executor with the query
 *     id of the leader's statement: the hooks do the same there as in a backend.  Over
 *     the agent's transport its context is the leader's, which the leader shows while
 *     it runs a plan that has workers, or a statement that may have: VACUUM, or one
 *     that makes an index.
 *
 * An error leaves by longjmp: PG_FINALLY leaves the frames that it passes, and the
 * (sub)transaction's end sees to what is kept between them.
 */
#include <postgres.h>
#include <access/parallel.h>
#include <access/xact.h>
#include <commands/dbcommands.h>
#include <common/hashfn.h>
#include <executor/executor.h>
#include <fmgr.h>
#include <miscadmin.h>
#include <nodes/parsenodes.h>
#include <optimizer/planner.h>
#include <postmaster/bgworker.h>
#include <storage/ipc.h>
#include <tcop/cmdtag.h>
#include <tcop/utility.h>
#include <utils/guc.h>
#if PG_VERSION_NUM < 160000
#include <utils/queryjumble.h>
#else
#include <nodes/queryjumble.h>
#endif

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "clients/libqmctx/qmctx.h"
#include "clients/protocol/quickmine-agent.h"
#include "clients/protocol/quickmine-mount.h"
#include "postgresql/contexts.h"
#include "postgresql/module.h"
#include "postgresql/stat.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

#define AUTO   "auto"
#define KERNEL "kernel"

static char *transport_setting, *carrier_setting; /* the latter: its old name */
static int level_setting;

static struct qmctx *transport;  /* NULL: not opened yet, or it cannot be had */
static bool opened;              /* in this process */
static const char *found;        /* that "auto" is; NULL: not looked for yet */
static const char *no_transport; /* why it cannot be had */
static char *not_yet; /* why it did not reach anybody, until it is seen that it does */

/* A utility statement runs, whose context is shown to its workers (of an index, say).
 */
static bool utility_shown;

static planner_hook_type next_planner;
static ExecutorStart_hook_type next_start;
static ExecutorRun_hook_type next_run;
static ExecutorFinish_hook_type next_finish;
static ExecutorEnd_hook_type next_end;
static ProcessUtility_hook_type next_utility;

/* Whether an agent takes connections.  One that was killed leaves its socket. */
static bool agent_answers(void)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX,
                                        .sun_path = QM_AGENT_SOCKET};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool answers;

    if (fd == -1)
        return true; /* that is not its fault */
    answers = connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ||
              errno == EAGAIN; /* others are before us */
    close(fd);
    return answers;
}

static bool kernel_has_contexts(void)
{
    struct qmctx *kernel;

    if (qmctx_announce(KERNEL, &kernel) != 0)
        return false;
    qmctx_close(kernel);
    return true;
}

/* What "auto" is: the agent, if there is one; also if it was there and only the kernel,
 * which has no contexts, is left: the agent may come back, and is looked for.  Each
 * backend decides once, so that those that start after the agent have it. */
static const char *automatic(void)
{
    struct stat st;

    if (found)
        return found;
    found = stat(QM_AGENT_SOCKET, &st) == 0 && S_ISSOCK(st.st_mode) &&
                    (agent_answers() || !kernel_has_contexts())
                ? "agent"
                : KERNEL;
    return found;
}

/* What contexts are announced to: as quickmine.transport says, or, where that is left
 * at its default, its old name. */
static const char *where(void)
{
    if (strcmp(transport_setting, AUTO) != 0)
        return transport_setting;
    return carrier_setting && *carrier_setting ? carrier_setting : automatic();
}

static bool is_agent(const char *path)
{
    return strcmp(path, "agent") == 0 || strncmp(path, "agent:", 6) == 0;
}

/* The transport, or NULL and a sentence in qmctx_error(). */
static struct qmctx *open_transport(void)
{
    const char *path = where();
    size_t len = strlen(path), suffix = strlen(QM_MOUNT_SUFFIX);
    bool is_file = strcmp(path, KERNEL) != 0 && !is_agent(path) &&
                   (len < suffix || strcmp(path + len - suffix, QM_MOUNT_SUFFIX) != 0);
    char socket[MAXPGPATH];
    struct qmctx *result = NULL;

    snprintf(socket, sizeof socket, "%s%s", path, is_file ? QM_MOUNT_SUFFIX : "");
    qmctx_announce(socket, &result);
    return result;
}

/* Why the transport that was just opened cannot be had, or reaches nobody. */
static const char *reason(void)
{
    static char text[512];

    if (where() != found || is_agent(found))
        return qmctx_error();
    snprintf(text, sizeof text, "no agent listens at %s, and %s", QM_AGENT_SOCKET,
             qmctx_error());
    return text;
}

static void stop(int code, Datum unused)
{
    qm_stat_show(0);
    qm_contexts_stop();
}

/* This process is about to do its first work that has contexts. */
static void start(void)
{
    struct {
        Oid database, user;
    } client = {MyDatabaseId, InvalidOid};
    enum qmctx_kind kind = QMCTX_CONNECTION;
    const char *name = NULL;
    uint64_t klass, since;

    if (is_agent(where()) && !qm_stat_may_look(&since)) {
        no_transport = "the agent did not answer others";
        return; /* it is looked for later */
    }
    opened = true;
    no_transport = NULL;
    transport = open_transport();
    if (is_agent(where()))
        qm_stat_looked(since, transport && qmctx_connected(transport));
    if (!transport) {
        no_transport = strdup(reason());
        return;
    }
    if (!qmctx_connected(transport))
        not_yet = strdup(reason());
    if (MyBackendType == B_BACKEND || MyBackendType == B_WAL_SENDER ||
        InitializingParallelWorker || IsParallelWorker()) {
        client.user = GetAuthenticatedUserId();
        klass = hash_bytes_extended((const unsigned char *)&client, sizeof client, 0);
    } else {
        kind = QMCTX_THREAD;
        name = MyBackendType == B_BG_WORKER ? MyBgworkerEntry->bgw_type
                                            : GetBackendTypeDesc(MyBackendType);
        klass = hash_bytes_extended((const unsigned char *)name, (int)strlen(name), 0);
    }
    qm_contexts_start(transport, kind, klass, name, qm_stat_of_backend());
    if (is_agent(where()) && (InitializingParallelWorker || IsParallelWorker())) {
        int process = 0;
        uint64_t id = qm_stat_of_leader(&process);

        if (id != 0)
            qm_contexts_help(process, id);
    }
    before_shmem_exit(stop, 0);
}

const char *qm_module_transport(void)
{
    if (is_agent(where()))
        return "agent";
    return strcmp(where(), KERNEL) == 0 ? KERNEL : "mount";
}

bool qm_module_connected(const char **message)
{
    bool connected = transport && qmctx_connected(transport);

    if (connected) {
        free(not_yet);
        not_yet = NULL;
    }
    *message = no_transport;
    if (transport && !connected)
        *message = not_yet             ? not_yet
                   : is_agent(where()) ? "the agent is not there"
                                       : "the mount is not there";
    return connected;
}

/* Whether there are contexts, for work that is about to begin. */
static bool tracking(void)
{
    if (!opened)
        start();
    if (!transport)
        return false;
    qm_contexts_level((enum qm_level)level_setting);
    return level_setting != QM_LEVEL_OFF;
}

/* Other classes than query ids are hashes of names. */
static uint64_t class_of_name(const char *name)
{
    return hash_bytes_extended((const unsigned char *)name, (int)strlen(name), 0);
}

/* Without an id (compute_query_id is off, or it is the query of a cursor or of CREATE
 * TABLE AS, which has none before PostgreSQL 18), queries are told apart by what kind
 * of command they are, and by their tables. */
static uint64_t class_of_plan(const PlannedStmt *plan)
{
    static const char *const names[] = {"unknown", "select", "update", "insert",
                                        "delete",  "merge",  "utility"};
    size_t command = (size_t)plan->commandType;
    uint64_t klass;
    ListCell *cell;

    if (plan->queryId)
        return plan->queryId;
    klass = class_of_name(names[command < lengthof(names) ? command : 0]);
    foreach (cell, plan->relationOids)
        klass = hash_combine64(klass, lfirst_oid(cell));
    return klass;
}

/* A hash of such a text would let who has it try passwords.  Code and commands of a
 * shell may have any. */
static bool may_name_password(const Node *node)
{
    switch (nodeTag(node)) {
    case T_CopyStmt:
        return ((const CopyStmt *)node)->is_program;
    case T_DoStmt:
    case T_CreateFunctionStmt:
    case T_CreateRoleStmt:
    case T_AlterRoleStmt:
    case T_AlterRoleSetStmt:
    case T_AlterDatabaseSetStmt:
    case T_CreateUserMappingStmt:
    case T_AlterUserMappingStmt:
    case T_CreateForeignServerStmt:
    case T_AlterForeignServerStmt:
    case T_CreateSubscriptionStmt:
    case T_AlterSubscriptionStmt:
    case T_AlterSystemStmt:
        return true;
    default:
        return false;
    }
}

/* The id of a statement that is not planned is a hash of its text: a procedure would
 * have one for each set of arguments. */
static uint64_t class_of_utility(const PlannedStmt *plan)
{
    const Node *node = plan->utilityStmt;
    const CallStmt *call = (const CallStmt *)node;

    if (IsA(node, CallStmt) && call->funcexpr)
        return hash_combine64(class_of_name("CALL"), call->funcexpr->funcid);
    return plan->queryId && !may_name_password(node)
               ? plan->queryId
               : class_of_name(CreateCommandName((Node *)node));
}

/* Statements that read nothing themselves, or run others. */
static bool is_transparent(const Node *node)
{
    switch (nodeTag(node)) {
    case T_TransactionStmt:
    case T_ConstraintsSetStmt:
    case T_DeclareCursorStmt:
    case T_FetchStmt:
    case T_ClosePortalStmt:
    case T_PrepareStmt:
    case T_ExecuteStmt:
    case T_DeallocateStmt:
    case T_ExplainStmt:
    case T_VariableSetStmt:
    case T_VariableShowStmt:
    case T_DiscardStmt:
    case T_LockStmt:
    case T_ListenStmt:
    case T_UnlistenStmt:
    case T_NotifyStmt:
    case T_LoadStmt:
    case T_CheckPointStmt:
        return true;
    default:
        return false;
    }
}

/* Whether the executor is called again for what a plan changes, by triggers. */
static bool modifies(const QueryDesc *query)
{
    return query->operation != CMD_SELECT || query->plannedstmt->hasModifyingCTE;
}

static PlannedStmt *on_plan(Query *parse, const char *text, int options,
                            ParamListInfo params)
{
    planner_hook_type next = next_planner ? next_planner : standard_planner;
    PlannedStmt *plan;
    volatile bool planned = false;
    int frame;

    if (!tracking() || !parse->queryId)
        return next(parse, text, options, params);
    frame = qm_frame_enter(parse->queryId);
    PG_TRY();
    {
        plan = next(parse, text, options, params);
        planned = true;
    }
    PG_FINALLY();
    {
        qm_frame_leave(frame, planned);
    }
    PG_END_TRY();
    return plan;
}

static void on_start(QueryDesc *query, int flags)
{
    ExecutorStart_hook_type next = next_start ? next_start : standard_ExecutorStart;
    volatile bool started = false;
    int frame;

    if (!tracking()) {
        next(query, flags);
        return;
    }
    frame = qm_frame_enter(class_of_plan(query->plannedstmt));
    PG_TRY();
    {
        next(query, flags);
        started = true;
    }
    PG_FINALLY();
    {
        qm_frame_leave(frame, started);
    }
    PG_END_TRY();
}

static void on_run(QueryDesc *query, ScanDirection direction, uint64 count, bool once)
{
    ExecutorRun_hook_type next = next_run ? next_run : standard_ExecutorRun;
    bool shows = query->plannedstmt->parallelModeNeeded && !IsParallelWorker();
    volatile uint64_t shown = 0;
    volatile bool keep = false;
    int frame;

    if (!tracking()) {
        next(query, direction, count, once);
        return;
    }
    frame = qm_frame_enter(class_of_plan(query->plannedstmt));
    if (shows)
        shown = qm_stat_show(qmctx_shared_id(transport));
    PG_TRY();
    {
        next(query, direction, count, once);
        keep = modifies(query);
    }
    PG_FINALLY();
    {
        if (shows)
            qm_stat_show(shown);
        qm_frame_leave(frame, keep);
    }
    PG_END_TRY();
}

static void on_finish(QueryDesc *query)
{
    ExecutorFinish_hook_type next = next_finish ? next_finish : standard_ExecutorFinish;
    int frame;

    if (!tracking() || !modifies(query)) {
        next(query);
        return;
    }
    frame = qm_frame_enter(class_of_plan(query->plannedstmt));
    PG_TRY();
    {
        next(query);
    }
    PG_FINALLY();
    {
        qm_frame_leave(frame, false);
    }
    PG_END_TRY();
}

static void on_end(QueryDesc *query)
{
    ExecutorEnd_hook_type next = next_end ? next_end : standard_ExecutorEnd;

    next(query);
    qm_kept_end();
}

static void on_utility(PlannedStmt *plan, const char *text, bool read_only,
                       ProcessUtilityContext context, ParamListInfo params,
                       QueryEnvironment *environment, DestReceiver *destination,
                       QueryCompletion *completion)
{
    ProcessUtility_hook_type next =
        next_utility ? next_utility : standard_ProcessUtility;
    bool within = utility_shown;
    uint64_t shown;
    int frame;

    if (!tracking() || context == PROCESS_UTILITY_SUBCOMMAND ||
        is_transparent(plan->utilityStmt)) {
        next(plan, text, read_only, context, params, environment, destination,
             completion);
        qm_kept_end();
        return;
    }
    frame = qm_frame_enter(class_of_utility(plan));
    shown = qm_stat_show(qmctx_shared_id(transport));
    utility_shown = true;
    PG_TRY();
    {
        next(plan, text, read_only, context, params, environment, destination,
             completion);
    }
    PG_FINALLY();
    {
        qm_frame_leave(frame, false);
        /* What the one around showed may have ended with a transaction since. */
        utility_shown = within;
        qm_stat_show(within ? qmctx_shared_id(transport) : shown);
    }
    PG_END_TRY();
}

static void on_transaction(XactEvent event, void *unused)
{
    switch (event) {
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
    case XACT_EVENT_PARALLEL_COMMIT:
    case XACT_EVENT_PARALLEL_ABORT:
        qm_transaction_over();
        /* A process's first transaction is one that finds its database and user. */
        if (!proc_exit_inprogress && tracking()) {
            qm_connection_enter();
            if (utility_shown)
                qm_stat_show(qmctx_shared_id(transport));
        }
        break;
    default:
        break;
    }
}

static void on_subtransaction(SubXactEvent event, SubTransactionId id,
                              SubTransactionId parent, void *unused)
{
    if (event == SUBXACT_EVENT_ABORT_SUB)
        qm_kept_end();
}

/* A word that is none of ours is not taken for a mount in the data directory. */
static bool check_where(char **value, void **extra, GucSource source)
{
    const char *path = *value;

    if (is_agent(path)
            ? strcmp(path, "agent:") != 0
            : strcmp(path, AUTO) == 0 || strcmp(path, KERNEL) == 0 || strchr(path, '/'))
        return true;
    GUC_check_errhint("Available values: auto, kernel, agent, agent:PATH, or the path "
                      "of a quickmine mount.");
    return false;
}

static void define_settings(void)
{
    static const struct config_enum_entry levels[] = {
        {"off", QM_LEVEL_OFF, false},
        {"connection", QM_LEVEL_CONNECTION, false},
        {"transaction", QM_LEVEL_TRANSACTION, false},
        {"query", QM_LEVEL_QUERY, false},
        {NULL, 0, false}};

    DefineCustomEnumVariable(
        "quickmine.level", "The innermost contexts that are announced.", NULL,
        &level_setting, QM_LEVEL_QUERY, levels, PGC_USERSET, 0, NULL, NULL, NULL);
    DefineCustomStringVariable("quickmine.transport",
                               "What contexts are announced to: \"auto\", \"kernel\", "
                               "\"agent\", or the file of "
                               "a quickmine mount.",
                               NULL, &transport_setting, AUTO, PGC_POSTMASTER, 0,
                               check_where, NULL, NULL);
    DefineCustomStringVariable(
        "quickmine.carrier", "The old name of quickmine.transport.", NULL,
        &carrier_setting, "", PGC_POSTMASTER, GUC_NO_SHOW_ALL, NULL, NULL, NULL);
    MarkGUCPrefixReserved("quickmine");
}

/* Says in the log, once, that there will be no contexts. */
static void check_transport(void)
{
    struct qmctx *probe = open_transport();

    if (carrier_setting && *carrier_setting)
        ereport(WARNING, errmsg("quickmine.carrier is the old name of "
                                "quickmine.transport, and will go"));
    if (!probe || !qmctx_connected(probe))
        ereport(WARNING,
                errmsg("quickmine: no contexts are announced for now: %s", reason()));
    qmctx_close(probe);
    found = NULL;
}

void _PG_init(void)
{
    /* The SQL function says what is wrong. */
    if (!process_shared_preload_libraries_in_progress)
        return;
    EnableQueryId();
    define_settings();
    check_transport();
    qm_stat_reserve();

    next_planner = planner_hook;
    planner_hook = on_plan;
    next_start = ExecutorStart_hook;
    ExecutorStart_hook = on_start;
    next_run = ExecutorRun_hook;
    ExecutorRun_hook = on_run;
    next_finish = ExecutorFinish_hook;
    ExecutorFinish_hook = on_finish;
    next_end = ExecutorEnd_hook;
    ExecutorEnd_hook = on_end;
    next_utility = ProcessUtility_hook;
    ProcessUtility_hook = on_utility;
    RegisterXactCallback(on_transaction, NULL);
    RegisterSubXactCallback(on_subtransaction, NULL);
}
