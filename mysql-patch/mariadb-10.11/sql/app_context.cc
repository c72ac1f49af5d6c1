/* SPDX-License-Identifier: BSD-3-Clause */
/* app_context.cc - see app_context.h: what the server calls.  The rest is in
 * app_context_stack.cc.
 */
#include "mariadb.h"
#include "sql_class.h"
#include "sql_lex.h"

#include "app_context_transport.h"
#include "app_context_stack.h"

App_context::~App_context()
{
    delete stack;
}

App_context_stack *App_context::get()
{
    if (!stack)
        stack = new (std::nothrow) App_context_stack;
    return stack;
}

void App_context::close(THD *thd)
{
    if (stack)
        stack->close(thd);
    delete stack;
    stack = nullptr;
    for (uint i = 0; i < APP_CONTEXT_COUNTERS; i++) {
        app_context_totals.counts[i] += counts[i];
        counts[i] = 0;
    }
}

App_context_class::~App_context_class()
{
    my_free(name);
}

/* What all statements have. */
static App_context_stack::Frame frame_of(const LEX *lex)
{
    App_context_stack::Frame what = {};

    what.command = lex->sql_command;
    what.uses_tables = lex->query_tables || lex->uses_stored_routines();
    return what;
}

static bool begin_statement(THD *thd, const App_context_stack::Frame &what,
                            uint *outside)
{
    App_context_stack *stack = thd->app_context.get();

    return stack && stack->begin(thd, what, outside);
}

void App_context_statement::begin(THD *its_thd)
{
    App_context_stack::Frame what = frame_of(its_thd->lex);

    what.digest = &its_thd->m_digest_state.m_digest_storage;
    if (begin_statement(its_thd, what, &outside))
        thd = its_thd;
}

void App_context_statement::begin(THD *its_thd, LEX *lex,
                                  const App_context_class &prepared, const char *text,
                                  size_t length)
{
    App_context_stack::Frame what = frame_of(lex);

    what.klass = prepared.klass;
    what.text = prepared.klass ? prepared.name : text;
    what.length = !prepared.klass ? length : prepared.name ? strlen(prepared.name) : 0;
    if (begin_statement(its_thd, what, &outside))
        thd = its_thd;
}

void App_context_statement::begin(THD *its_thd, const char *text, size_t length)
{
    App_context_stack::Frame what = frame_of(its_thd->lex);

    what.text = text;
    what.length = length;
    if (begin_statement(its_thd, what, &outside))
        thd = its_thd;
}

void App_context_statement::end()
{
    /* Without one, the connection was closed or changed meanwhile. */
    if (thd->app_context.stack)
        thd->app_context.stack->end(thd, outside);
}

void app_context_transaction_ends(const void *transactions)
{
    THD *thd = current_thd;

    /* The server's own transactions within a client's do not count. */
    if (thd && thd->app_context.stack && transactions == &thd->default_transaction)
        thd->app_context.stack->transaction_ends(thd);
}

sql_digest_state *app_context_digest(THD *thd, bool is_statement)
{
    sql_digest_state *digest = nullptr;

    if (qm_context >= APP_CONTEXT_TRANSACTION) {
        digest = is_statement ? thd->m_digest : thd->app_context.preparing;
        if (digest)
            digest->m_digest_storage.m_charset_number = thd->charset()->number;
    }
    thd->app_context.preparing = nullptr;
    return digest;
}

/* The tokens follow the digest. */
App_context_prepare::App_context_prepare(THD *prepare_thd, App_context_class *prepared)
    : thd(prepare_thd), what(prepared)
{
    if (qm_context < APP_CONTEXT_TRANSACTION || !max_digest_length)
        return;
    digest = static_cast<sql_digest_state *>(my_malloc(
        PSI_NOT_INSTRUMENTED, sizeof *digest + max_digest_length, MYF(MY_WME)));
    if (digest)
        digest->reset(reinterpret_cast<uchar *>(digest + 1), max_digest_length);
    thd->app_context.preparing = digest;
}

App_context_prepare::~App_context_prepare()
{
    thd->app_context.preparing = nullptr;
    if (digest && !digest->is_empty()) {
        what->klass = app_context_class_of(&digest->m_digest_storage);
        if (qm_context_names) {
            StringBuffer<1024> text;

            compute_digest_text(&digest->m_digest_storage, &text);
            my_free(what->name);
            what->name = my_strndup(PSI_NOT_INSTRUMENTED, text.ptr(), text.length(),
                                    MYF(MY_WME));
        }
    }
    my_free(digest);
}
