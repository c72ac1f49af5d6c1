/* SPDX-License-Identifier: BSD-3-Clause */
/* qmctx-plugin.c - a MariaDB audit plugin that tells whose reads are whose.
 *
 * It begins and ends contexts (connection > transaction > query) around what the server
 * does, in the very thread that does it, through libqmctx; InnoDB's reads go through a
 * mount that tags them, or a kernel that does.  See qmctx-plugin(7).
 *
 * What MariaDB 10.11 tells, in the order in which it happens:
 *   LOG     before a statement is executed; several statements in one request have one
 *           in common.  Statements of procedures and functions, and what EXECUTE
 *           executes, have their own in between.
 *   RESULT  after a request that went well.  That of a prepared statement comes after
 *           its STATUS, and that of several statements before the last one's.
 *   STATUS  after each statement, with the query id of the LOG; nested ones have other
 *           ids, and an EXECUTE in a procedure has two STATUS with the same one.
 *
 * release_thd() is not called between requests.
 *
 * Only the SQL commands EXECUTE and EXECUTE IMMEDIATE fit in nowhere: they may have no
 * STATUS, no RESULT, or one too many.  So, unless in a procedure, they are passed over,
 * and what they execute is the request's statement.
 *
 * Should a nested STATUS be missing all the same, the end of the request sets it right;
 * should that be missing, the next RESULT does.
 *
 * There is no event for transactions: after each statement the session's options are
 * looked at.  A transaction that outlives its statement is remembered in the session
 * (hidden variables), so that with a thread pool the next thread to serve the
 * connection can begin it again, and the one before sees that it is over.
 *
 * Threads: `thread` belongs to one thread; all else that changes is atomic.
 */
#include <my_global.h>
#include <mysql/plugin.h>
#include <mysql/plugin_audit.h>
#include <mysqld_error.h>

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "clients/libqmctx/qmctx.h"
#include "clients/protocol/quickmine-agent.h"
#include "clients/protocol/quickmine-mount.h"
#include "clients/protocol/quickmine-protocol.h"
#include "mysql-patch/plugin/statement.h"
#include "mysql-patch/plugin/template.h"

/* Of thd_test_options(): part of the plugin interface's behaviour, but in no header. */
#define OPTION_NOT_AUTOCOMMIT (1LL << 19)
#define OPTION_BEGIN          (1LL << 20)

/* Statements within statements that have contexts; reads of those further in count to
 * the outer one. */
#define MAX_NESTED 8

enum level { LEVEL_CONNECTION, LEVEL_TRANSACTION, LEVEL_STATEMENT };

static struct qmctx *transport; /* set while the plugin is not in use; NULL: no mount */
static unsigned generation;     /* how often the plugin was initialised */

/* Each thread counts in one of these, so that statements on different processors do not
 * wait for the same cache line. */
enum count { CONNECTIONS, TRANSACTIONS, STATEMENTS, FAILED, COUNTS };
#define SHARES 32
static struct {
    _Alignas(128) _Atomic unsigned long long counts[COUNTS];
} shares[SHARES];

static char *mount_path;
static my_bool enabled;
static my_bool names;
static unsigned long level;

/* What the calling thread has announced. */
static __thread struct {
    unsigned generation;            /* that this is of; else it is void */
    unsigned share;                 /* where it counts */
    bool serving;                   /* a connection's context is open ... */
    unsigned long connection;       /* ... of this one ... */
    unsigned long level;            /* ... and this was the level when it began */
    unsigned long long transaction; /* whose context is open; 0: none ... */
    unsigned long long transaction_class;
    bool unknown;             /* ... and the session does not know of it yet */
    bool in_request;          /* between a request's first LOG and its end */
    bool several;             /* the request has, or may have, several statements */
    bool commits;             /* its statement ends a transaction in any case */
    unsigned long long query; /* the id of its (first) statement ... */
    unsigned long long last;  /* ... and of the nested one that ended last */
    unsigned nested;          /* statements within it that are open */
    unsigned outside_transaction, outside_statement; /* depths to return to */
    unsigned outside_nested[MAX_NESTED];
} thread;

/* The texts of the calling thread's last statements. */
static __thread struct qm_statements statements;

/* The transaction that the session is in: its number, 0 if none has begun, and class.
 */
static MYSQL_THDVAR_ULONGLONG(transaction, PLUGIN_VAR_NOSYSVAR | PLUGIN_VAR_NOCMDOPT,
                              "The number of the session's transaction", NULL, NULL, 0,
                              0, ULONGLONG_MAX, 0);
static MYSQL_THDVAR_ULONGLONG(transaction_class,
                              PLUGIN_VAR_NOSYSVAR | PLUGIN_VAR_NOCMDOPT,
                              "The class of the session's transaction", NULL, NULL, 0,
                              0, ULONGLONG_MAX, 0);

/* Each thread takes a block of transaction numbers at a time. */
#define NUMBERS 4096
static _Atomic unsigned long long last_numbers;
static __thread unsigned long long last_transaction;

static unsigned long long next_transaction(void)
{
    if (last_transaction % NUMBERS == 0)
        last_transaction =
            NUMBERS * atomic_fetch_add_explicit(&last_numbers, 1, memory_order_relaxed);
    return ++last_transaction;
}

/* Begins a context; says at which depth it was begun. */
static void begin(enum qmctx_kind kind, uint64_t klass, const char *name,
                  enum count count, unsigned *outside)
{
    *outside = qmctx_depth(transport);
    if (qmctx_begin(transport, kind, klass, name) != 0)
        count = FAILED;
    atomic_fetch_add_explicit(&shares[thread.share].counts[count], 1,
                              memory_order_relaxed);
}

static bool in_transaction(MYSQL_THD thd)
{
    return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) != 0;
}

/* Ends all that the calling thread has announced. */
static void leave(void)
{
    static _Atomic unsigned threads;
    unsigned share = thread.generation ? thread.share : threads++ % SHARES;

    if (thread.generation == generation)
        qmctx_end_to(transport, 0);
    memset(&thread, 0, sizeof thread);
    thread.generation = generation;
    thread.share = share;
}

static void end_transaction(MYSQL_THD thd)
{
    if (thread.transaction)
        qmctx_end_to(transport, thread.outside_transaction);
    if (!thread.unknown)
        THDVAR(thd, transaction) = 0;
    thread.transaction = 0;
    thread.unknown = false;
}

/* The transaction outlives its statement. */
static void keep_transaction(MYSQL_THD thd)
{
    if (!thread.unknown)
        return;
    THDVAR(thd, transaction) = thread.transaction;
    THDVAR(thd, transaction_class) = thread.transaction_class;
    thread.unknown = false;
}

/* Begins or ends the transaction's context as the statement that begins wants it. */
static void enter_transaction(MYSQL_THD thd, const struct qm_statement *s,
                              const char *name)
{
    uint64_t klass = s->klass;

    /* It may have ended in another thread, or unseen (a reset of the connection). */
    if (thread.transaction && thread.transaction != THDVAR(thd, transaction)) {
        qmctx_end_to(transport, thread.outside_transaction);
        thread.transaction = 0;
        thread.unknown = false;
    }
    if ((s->flags & QM_STATEMENT_STARTS) || !in_transaction(thd))
        end_transaction(thd);
    if (thread.transaction)
        return;
    thread.transaction = THDVAR(thd, transaction);
    if (thread.transaction) { /* it was begun in another thread */
        klass = THDVAR(thd, transaction_class);
        name = NULL;
    } else if (s->flags & QM_STATEMENT_CONTROLS) {
        return;
    } else {
        thread.transaction = next_transaction();
        thread.transaction_class = klass;
        thread.unknown = true;
    }
    begin(QMCTX_TRANSACTION, klass, name, TRANSACTIONS, &thread.outside_transaction);
}

static void end_request(MYSQL_THD thd)
{
    bool ends = thread.commits || !in_transaction(thd);

    thread.in_request = false;
    thread.nested = 0;
    if (thread.level == LEVEL_STATEMENT && !(ends && thread.transaction))
        qmctx_end_to(transport, thread.outside_statement);
    if (ends)
        end_transaction(thd); /* and the statement within it */
    else
        keep_transaction(thd);
}

/* The calling thread serves this connection.  user is "name[name] @ host [ip]", of
 * which the name makes the class. */
static void serve(unsigned long connection, const char *user, size_t len)
{
    char name[129] = "";
    unsigned outside;

    leave();
    for (size_t i = 0; i < len && i < sizeof name - 1 && user[i] != '['; i++)
        name[i] = user[i];
    thread.serving = true;
    thread.connection = connection;
    thread.level = __atomic_load_n(&level, __ATOMIC_RELAXED);
    begin(QMCTX_CONNECTION, XXH64(name, strlen(name), 0),
          __atomic_load_n(&names, __ATOMIC_RELAXED) && *name ? name : NULL, CONNECTIONS,
          &outside);
}

/* What an event's statement is.  Its name is put into the buffer, if it is to have one:
 * names are not kept. */
static struct qm_statement look_at(const struct mysql_event_general *event,
                                   char buffer[QM_WIRE_NAME_MAX + 1], const char **name)
{
    struct qm_template t;

    if (!__atomic_load_n(&names, __ATOMIC_RELAXED))
        return qm_statement_of(&statements, event->general_query,
                               event->general_query_length);
    qm_template_make(event->general_query, event->general_query_length, &t);
    qm_template_name(&t, buffer, QM_WIRE_NAME_MAX);
    *name = buffer;
    return qm_statement_of_template(&t);
}

/* The first statement of a request. */
static void begin_request(MYSQL_THD thd, const struct mysql_event_general *event)
{
    if (!thread.serving || thread.connection != event->general_thread_id ||
        (thread.level != __atomic_load_n(&level, __ATOMIC_RELAXED) &&
         !thread.transaction))
        serve(event->general_thread_id, event->general_user,
              event->general_user_length);

    if (thread.level == LEVEL_CONNECTION)
        return;

    struct qm_statement s;
    char buffer[QM_WIRE_NAME_MAX + 1];
    const char *name = NULL;
    s = look_at(event, buffer, &name);
    if (s.flags & QM_STATEMENT_EXECUTE)
        return;
    thread.in_request = true;
    thread.nested = 0;
    thread.query = thread.last = event->query_id;
    thread.several = s.flags & QM_STATEMENT_SEVERAL;
    thread.commits = s.flags & QM_STATEMENT_COMMITS;

    enter_transaction(thd, &s, name);
    if (thread.level == LEVEL_STATEMENT)
        begin(QMCTX_QUERY, s.klass, name, STATEMENTS, &thread.outside_statement);
}

/* A statement within the request's. */
static void begin_nested(const struct mysql_event_general *event)
{
    if (thread.level != LEVEL_STATEMENT)
        return;
    if (thread.nested < MAX_NESTED) {
        char buffer[QM_WIRE_NAME_MAX + 1];
        const char *name = NULL;
        struct qm_statement s = look_at(event, buffer, &name);

        begin(QMCTX_QUERY, s.klass, name, STATEMENTS,
              &thread.outside_nested[thread.nested]);
    }
    thread.nested++;
}

/* A statement of the request has ended. */
static void on_status(MYSQL_THD thd, const struct mysql_event_general *event)
{
    if (event->query_id == thread.query) {
        if (!thread.several || event->general_error_code)
            end_request(thd);
        return;
    }
    if (event->query_id == thread.last)
        return;
    thread.last = event->query_id;
    if (thread.nested) {
        if (--thread.nested < MAX_NESTED)
            qmctx_end_to(transport, thread.outside_nested[thread.nested]);
    } else if (thread.several && event->general_error_code) {
        end_request(thd); /* the statements after it are not executed */
    }
}

static bool is_command(const struct mysql_event_general *event, const char *command)
{
    return event->general_command_length == strlen(command) &&
           !memcmp(event->general_command, command, event->general_command_length);
}

static void on_general(MYSQL_THD thd, const struct mysql_event_general *event)
{
    bool in_request =
        thread.in_request && thread.connection == event->general_thread_id;

    switch (event->event_subclass) {
    case MYSQL_AUDIT_GENERAL_LOG:
        /* Preparing reads no data; other commands have no statement. */
        if (!event->general_query ||
            !(is_command(event, "Query") || is_command(event, "Execute")))
            return;
        if (in_request)
            begin_nested(event);
        else
            begin_request(thd, event);
        return;
    case MYSQL_AUDIT_GENERAL_RESULT:
        if (in_request)
            end_request(thd);
        return;
    case MYSQL_AUDIT_GENERAL_STATUS:
        if (in_request)
            on_status(thd, event);
        return;
    }
}

static void on_event(MYSQL_THD thd, unsigned int class, const void *event)
{
    if (!transport || !thd)
        return;
    if (thread.generation != generation)
        leave();
    if (!__atomic_load_n(&enabled, __ATOMIC_RELAXED)) {
        if (thread.serving)
            leave();
        return;
    }
    if (class == MYSQL_AUDIT_GENERAL_CLASS) {
        on_general(thd, event);
    } else if (class == MYSQL_AUDIT_CONNECTION_CLASS) {
        const struct mysql_event_connection *c = event;
        if (c->event_subclass != MYSQL_AUDIT_CONNECTION_CONNECT && thread.serving &&
            thread.connection == c->thread_id)
            leave();
    }
}

/* What qmctx_announce() takes for what was given: the socket beside the mount's file,
 * the socket itself, the kernel, or an agent.  Returns false if it is too long. */
static bool socket_path(const char *path, char *socket, size_t size)
{
    size_t len = strlen(path), suffix = strlen(QM_MOUNT_SUFFIX);
    bool is_file = strcmp(path, "kernel") && strcmp(path, "agent") &&
                   strncmp(path, "agent:", 6) &&
                   (len <= suffix || strcmp(path + len - suffix, QM_MOUNT_SUFFIX));
    int n = snprintf(socket, size, "%s%s", path, is_file ? QM_MOUNT_SUFFIX : "");

    return n >= 0 && (size_t)n < size;
}

/* Where contexts are announced: as qmctx_mount says, or to the agent of this machine,
 * if there is one; or NULL. */
static const char *where(void)
{
    struct stat st;

    if (mount_path && *mount_path)
        return mount_path;
    return stat(QM_AGENT_SOCKET, &st) == 0 && S_ISSOCK(st.st_mode) ? "agent" : NULL;
}

static int start(void *plugin)
{
    const char *path = where();
    char socket[4096];

    generation++;
    if (!path) {
        my_printf_error(ER_UNKNOWN_ERROR,
                        "qmctx: qmctx_mount is not set, and there is no agent at "
                        "%s, so no contexts are announced",
                        MYF(ME_ERROR_LOG_ONLY | ME_WARNING), QM_AGENT_SOCKET);
        return 0;
    }
    if (!socket_path(path, socket, sizeof socket)) {
        my_printf_error(ER_UNKNOWN_ERROR, "qmctx: qmctx_mount is too long a path",
                        MYF(ME_ERROR_LOG));
        return 1;
    }
    if (qmctx_announce(socket, &transport)) {
        if (errno == ENOSYS) { /* a kernel without; the server is none the worse */
            my_printf_error(ER_UNKNOWN_ERROR, "qmctx: no contexts are announced: %s",
                            MYF(ME_ERROR_LOG_ONLY | ME_WARNING), qmctx_error());
            return 0;
        }
        my_printf_error(ER_UNKNOWN_ERROR, "qmctx: cannot announce contexts to %s: %s",
                        MYF(ME_ERROR_LOG), socket, qmctx_error());
        transport = NULL;
        return 1;
    }
    if (!qmctx_connected(transport))
        my_printf_error(ER_UNKNOWN_ERROR,
                        "qmctx: no contexts are announced for now: %s",
                        MYF(ME_ERROR_LOG_ONLY | ME_WARNING), qmctx_error());
    return 0;
}

static int stop(void *plugin)
{
    if (transport)
        qmctx_close(transport);
    transport = NULL;
    return 0;
}

static MYSQL_SYSVAR_STR(
    mount, mount_path, PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG,
    "The file of `quickmine mount` that the tablespace is on, or the "
    "socket beside it, \"kernel\", or \"agent\"; the agent if it is not set, and "
    "there is one",
    NULL, NULL, "");
static MYSQL_SYSVAR_BOOL(enabled, enabled, PLUGIN_VAR_OPCMDARG,
                         "Whether contexts are announced", NULL, NULL, 1);
static MYSQL_SYSVAR_BOOL(
    names, names, PLUGIN_VAR_OPCMDARG,
    "Whether the storage server gets readable names of classes: user "
    "names and statements without literals",
    NULL, NULL, 0);

static const char *level_names[] = {"connection", "transaction", "statement", NullS};
static TYPELIB level_lib = {.count = 3, .name = "", .type_names = level_names};
static MYSQL_SYSVAR_ENUM(level, level, PLUGIN_VAR_RQCMDARG,
                         "The innermost contexts that are announced: connection, "
                         "transaction or statement",
                         NULL, NULL, LEVEL_STATEMENT, &level_lib);

static struct st_mysql_sys_var *system_variables[] = {MYSQL_SYSVAR(mount),
                                                      MYSQL_SYSVAR(enabled),
                                                      MYSQL_SYSVAR(names),
                                                      MYSQL_SYSVAR(level),
                                                      MYSQL_SYSVAR(transaction),
                                                      MYSQL_SYSVAR(transaction_class),
                                                      NULL};

static int show_connected(MYSQL_THD thd, struct st_mysql_show_var *var, void *buffer,
                          struct system_status_var *unused, enum enum_var_type scope)
{
    var->type = SHOW_CHAR;
    var->value = transport && qmctx_connected(transport) ? "ON" : "OFF";
    return 0;
}

static int show_count(struct st_mysql_show_var *var, ulonglong *buffer,
                      enum count count)
{
    *buffer = 0;
    for (unsigned i = 0; i < SHARES; i++)
        *buffer += atomic_load_explicit(&shares[i].counts[count], memory_order_relaxed);
    var->type = SHOW_ULONGLONG;
    var->value = buffer;
    return 0;
}

#define SHOW(name, count)                                                              \
    static int name(MYSQL_THD thd, struct st_mysql_show_var *var, void *buffer,        \
                    struct system_status_var *unused, enum enum_var_type scope)        \
    {                                                                                  \
        return show_count(var, buffer, count);                                         \
    }
SHOW(show_connections, CONNECTIONS)
SHOW(show_transactions, TRANSACTIONS)
SHOW(show_statements, STATEMENTS)
SHOW(show_failed, FAILED)

static struct st_mysql_show_var status_variables[] = {
    {"Qmctx_connected", (void *)show_connected, SHOW_SIMPLE_FUNC},
    {"Qmctx_connections", (void *)show_connections, SHOW_SIMPLE_FUNC},
    {"Qmctx_transactions", (void *)show_transactions, SHOW_SIMPLE_FUNC},
    {"Qmctx_statements", (void *)show_statements, SHOW_SIMPLE_FUNC},
    {"Qmctx_failed", (void *)show_failed, SHOW_SIMPLE_FUNC},
    {NULL, NULL, SHOW_UNDEF}};

static struct st_mysql_audit audit = {
    MYSQL_AUDIT_INTERFACE_VERSION,
    NULL,
    on_event,
    {MYSQL_AUDIT_GENERAL_CLASSMASK | MYSQL_AUDIT_CONNECTION_CLASSMASK}};

maria_declare_plugin(qmctx){
    MYSQL_AUDIT_PLUGIN,
    &audit,
    "QMCTX",
    "QuickMine",
    "Tells a QuickMine storage server which connection, transaction and statement "
    "causes a read",
    PLUGIN_LICENSE_BSD,
    start,
    stop,
    0x0100,
    status_variables,
    system_variables,
    "1.0",
    MariaDB_PLUGIN_MATURITY_STABLE,
} maria_declare_plugin_end;
