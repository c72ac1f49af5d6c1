/* SPDX-License-Identifier: BSD-3-Clause */
/* app_context_stack.cc - see app_context_stack.h. */
#include "mariadb.h"
#include "sql_class.h"
#include "my_md5.h"

#include "app_context_stack.h"
#include "app_context_transport.h"

static std::atomic<ulonglong> last_id;

/* What the calling thread has told: of whom (an App_context's or App_context_thread's
 * id; 0: nothing), and how many contexts; and what it does in the background. */
static thread_local struct {
    ulonglong owner;
    uint told;
    App_context_thread *background;
} here;

static void count(THD *thd, app_context_counter counter)
{
    thd->app_context.counts[counter]++;
}

static void count(std::atomic<ulonglong> *counter)
{
    counter->fetch_add(1, std::memory_order_relaxed);
}

static bool tell_one(qmctx_kind kind, ulonglong klass, const char *name)
{
    if (app_context_transport.begin(app_context_transport.ctx, kind, klass,
                                  qm_context_names ? name : nullptr)) {
        count(&app_context_totals.errors);
        return false;
    }
    here.told++;
    return true;
}

/* Ends what the calling thread has told, but for the outermost n. */
static void tell_end(uint n)
{
    if (here.told > n) {
        app_context_transport.end_to(app_context_transport.ctx, n);
        here.told = n;
    }
    if (n == 0)
        here.owner = 0;
}

void app_context_leave()
{
    tell_end(0);
}

static ulonglong class_of_md5(const uchar *md5)
{
    ulonglong klass = mi_uint8korr(md5);

    return klass ? klass : 1;
}

ulonglong app_context_class_of(const char *text, size_t length)
{
    uchar md5[16];

    compute_md5_hash(md5, text, length);
    return class_of_md5(md5);
}

ulonglong app_context_class_of(const sql_digest_storage *digest)
{
    uchar md5[16];

    compute_digest_md5(digest, md5);
    return class_of_md5(md5);
}

App_context_stack::App_context_stack()
    : id(1 + last_id.fetch_add(1, std::memory_order_relaxed))
{
}

bool App_context_stack::is_told(uint frame) const
{
    return here.owner == id && here.told > frame + 1;
}

/* A connection, or what the server does on its own account. */
void App_context_stack::open_connection(THD *thd)
{
    if (open)
        return;
    open = true;
    if (thd->system_thread == NON_SYSTEM_THREAD)
        count(thd, APP_CONTEXT_CONNECTIONS_BEGUN);
    else
        count(&app_context_totals.threads_begun);
}

void App_context_stack::close(THD *thd)
{
    pop_to(thd, 0);
    nesting = 0;
    if (here.owner == id)
        tell_end(0);
    if (!open)
        return;
    open = false;
    if (thd->system_thread == NON_SYSTEM_THREAD)
        count(thd, APP_CONTEXT_CONNECTIONS_ENDED);
    else
        count(&app_context_totals.threads_ended);
}

void App_context_stack::push(THD *thd, const Frame &what, bool is_transaction)
{
    Frame *frame = &frames[depth++];

    *frame = what;
    frame->is_transaction = frame->fresh = is_transaction;
    frame->nesting = nesting;
    if (is_transaction)
        in_transaction = true;
    count(thd, is_transaction ? APP_CONTEXT_TRANSACTIONS_BEGUN
                              : APP_CONTEXT_STATEMENTS_BEGUN);
}

void App_context_stack::pop_to(THD *thd, uint new_depth)
{
    if (depth <= new_depth)
        return;
    while (depth > new_depth) {
        bool is_transaction = frames[--depth].is_transaction;

        if (is_transaction)
            in_transaction = false;
        count(thd, is_transaction ? APP_CONTEXT_TRANSACTIONS_ENDED
                                  : APP_CONTEXT_STATEMENTS_ENDED);
    }
    if (here.owner == id)
        tell_end(1 + depth);
}

bool App_context_stack::begin(THD *thd, const Frame &what, uint *outside)
{
    bool statements = qm_context >= APP_CONTEXT_STATEMENT;
    bool in_parts = what.command == SQLCOM_CALL || what.command == SQLCOM_COMPOUND;

    open_connection(thd);
    /* What they execute is the statement. */
    if (qm_context < APP_CONTEXT_TRANSACTION || what.command == SQLCOM_EXECUTE ||
        what.command == SQLCOM_EXECUTE_IMMEDIATE)
        return false;
    if (depth + 2 > MAX_FRAMES)
        return false;
    if (!in_transaction && !thd->in_sub_stmt &&
        (in_parts ? thd->in_multi_stmt_transaction_mode() : what.uses_tables))
        push(thd, what, true);
    *outside = nesting++;
    if (statements)
        push(thd, what, false);
    return true;
}

/* A transaction of the replication log whose rows are applied without a statement. */
void App_context_stack::begin_rows(THD *thd)
{
    Frame what = {};

    what.text = "replicated rows";
    what.length = strlen(what.text);
    push(thd, what, true);
    frames[0].fresh = false;
}

void App_context_stack::end(THD *thd, uint outside)
{
    uint rest = depth;

    while (rest > 0 && frames[rest - 1].nesting > outside)
        rest--;
    pop_to(thd, rest);
    nesting = outside;
    while (depth > 0 && frames[depth - 1].is_transaction) {
        Frame *frame = &frames[depth - 1];

        if (in_transaction &&
            (thd->in_sub_stmt || thd->in_multi_stmt_transaction_mode())) {
            /* What its class is made of goes with the statement. */
            if (frame->fresh)
                classify(frame, transaction_name);
            frame->fresh = false;
            return;
        }
        pop_to(thd, depth - 1);
    }
}

void App_context_stack::transaction_ends(THD *thd)
{
    uint i = depth;

    if (!in_transaction)
        return;
    in_transaction = false;
    while (!frames[--i].is_transaction)
        ;
    if (i == depth - 1) {
        pop_to(thd, i);
    } else if (i == depth - 2 && !frames[i].fresh && !is_told(i + 1)) {
        Frame statement = frames[i + 1];

        if (here.owner == id)
            tell_end(1 + i);
        count(thd, APP_CONTEXT_TRANSACTIONS_ENDED);
        depth = i;
        if (statement.uses_tables) {
            nesting--;
            push(thd, statement, true);
            nesting++;
        }
        frames[depth++] = statement;
    }
}

/* Computes a frame's class, and into buffer its name, if there are to be names. */
void App_context_stack::classify(Frame *frame, char *buffer)
{
    bool has_digest = frame->digest && frame->digest->m_byte_count;

    if (frame->text == buffer)
        return;
    if (!frame->klass)
        frame->klass = has_digest    ? app_context_class_of(frame->digest)
                       : frame->text ? app_context_class_of(frame->text, frame->length)
                                     : 1 + frame->command;
    *buffer = '\0';
    if (qm_context_names && frame->text) {
        strmake(buffer, frame->text, MY_MIN(frame->length, (size_t)NAME_SIZE - 1));
    } else if (qm_context_names && has_digest) {
        StringBuffer<1024> text;

        compute_digest_text(frame->digest, &text);
        strmake(buffer, text.ptr(), MY_MIN(text.length(), NAME_SIZE - 1));
    }
    frame->digest = nullptr;
    frame->text = *buffer ? buffer : nullptr;
    frame->length = strlen(buffer);
}

static const char *system_thread_name(const THD *thd)
{
    switch (thd->system_thread) {
    case SYSTEM_THREAD_SLAVE_SQL:
        return "replication applier";
    case SYSTEM_THREAD_EVENT_WORKER:
        return "event";
    default:
        return "server thread";
    }
}

bool App_context_stack::tell(THD *thd)
{
    open_connection(thd);
    if (depth == 0 && thd->slave_thread && qm_context >= APP_CONTEXT_TRANSACTION &&
        thd->in_multi_stmt_transaction_mode())
        begin_rows(thd);
    if (here.owner != id) {
        tell_end(0);
        here.owner = id;
    }
    if (here.told == 0) {
        bool client = thd->system_thread == NON_SYSTEM_THREAD;
        const char *name =
            client ? thd->main_security_ctx.user : system_thread_name(thd);

        if (!name)
            name = "";
        if (!tell_one(client ? QMCTX_CONNECTION : QMCTX_THREAD,
                      app_context_class_of(name, strlen(name)), name))
            return false;
        count(thd, APP_CONTEXT_TOLD);
    }
    while (here.told < 1 + depth) {
        Frame *frame = &frames[here.told - 1];
        char buffer[NAME_SIZE], *name = buffer;

        if (frame->is_transaction)
            name = transaction_name;
        classify(frame, name);
        if (!tell_one(frame->is_transaction ? QMCTX_TRANSACTION : QMCTX_QUERY,
                      frame->klass, name))
            return false;
        /* It lives on without the buffer. */
        if (!frame->is_transaction)
            frame->text = nullptr;
        count(thd, APP_CONTEXT_TOLD);
    }
    return true;
}

App_context_thread::App_context_thread(const char *work)
    : name(work), outside(here.background)
{
    here.background = this;
}

App_context_thread::~App_context_thread()
{
    here.background = outside;
    if (!id)
        return;
    if (here.owner == id)
        tell_end(0);
    count(&app_context_totals.threads_ended);
}

bool App_context_thread::tell()
{
    if (!id) {
        id = 1 + last_id.fetch_add(1, std::memory_order_relaxed);
        count(&app_context_totals.threads_begun);
    }
    if (here.owner == id)
        return true;
    tell_end(0);
    if (!tell_one(QMCTX_THREAD, app_context_class_of(name, strlen(name)), name))
        return false;
    here.owner = id;
    return true;
}

void app_context_tag(bool ahead)
{
    THD *thd = current_thd;
    bool told = false;

    if (!app_context_have_transport()) {
        count(&app_context_totals.reads_untagged);
        return;
    }
    if (here.background) {
        told = here.background->tell();
    } else if (thd && thd->system_thread != SYSTEM_THREAD_GENERIC) {
        App_context_stack *stack = thd->app_context.get();

        told = stack && stack->tell(thd);
        if (told) {
            count(thd, ahead ? APP_CONTEXT_READS_AHEAD : APP_CONTEXT_READS);
            return;
        }
    }
    count(told ? &app_context_totals.reads_threads
               : &app_context_totals.reads_untagged);
}
