/* SPDX-License-Identifier: BSD-3-Clause */
/* app_context.h - application contexts: whose page reads are whose.
 *
 * A context is a unit of work that the storage is told of together with the reads that
 * it causes: a client's connection, within it a transaction, within it a statement,
 * within it the statements of stored programs.  libqmctx brings them to the storage.
 *
 * THD::app_context knows which ones are open, and costs next to nothing: the storage is
 * told of them when one of them reads a page from it, in the thread that reads, and not
 * before.  A statement that finds all it wants in the buffer pool is never told, nor is
 * its class computed.
 *
 * What the server calls, and where:
 *   App_context_statement   around the execution of a statement
 *   App_context_prepare     around the parsing of what is prepared
 *   app_context_digest      when a statement is parsed
 *   app_context_transaction_ends, THD::app_context.close()
 *   app_context_leave       when a thread takes leave of a THD that lives on
 *   App_context_thread      around what InnoDB does in the background
 *   app_context_read        before a page is read
 *
 * Threads: all that is in a THD is for the thread that it is current in.
 *
 * License: BSD-3-Clause, as all of QuickMine.
 */
#ifndef APP_CONTEXT_H
#define APP_CONTEXT_H

#include <my_global.h>

class THD;
struct LEX;
struct sql_digest_state;
struct st_mysql_show_var;
struct system_status_var;

enum app_context_level {
    APP_CONTEXT_OFF,
    APP_CONTEXT_CONNECTION,
    APP_CONTEXT_TRANSACTION,
    APP_CONTEXT_STATEMENT
};

/* @@qm_context: the innermost contexts that there are. */
extern ulong qm_context;

/* What is counted in a THD. */
enum app_context_counter {
    APP_CONTEXT_CONNECTIONS_BEGUN,
    APP_CONTEXT_CONNECTIONS_ENDED,
    APP_CONTEXT_TRANSACTIONS_BEGUN,
    APP_CONTEXT_TRANSACTIONS_ENDED,
    APP_CONTEXT_STATEMENTS_BEGUN,
    APP_CONTEXT_STATEMENTS_ENDED,
    APP_CONTEXT_TOLD,
    APP_CONTEXT_READS,
    APP_CONTEXT_READS_AHEAD,
    APP_CONTEXT_COUNTERS
};

/* The status variables, as SHOW_FUNC. */
int app_context_status(THD *thd, struct st_mysql_show_var *var, void *buffer,
                       struct system_status_var *status, enum enum_var_type scope);

/* The class of a prepared statement. */
struct App_context_class {
    ulonglong klass = 0; /* 0: it was prepared when there were no contexts */
    char *name = nullptr;

    App_context_class() = default;
    App_context_class(const App_context_class &) = delete;
    App_context_class &operator=(const App_context_class &) = delete;
    ~App_context_class();
};

/* What is open in a THD; a pointer, as long as there are no contexts. */
class App_context
{
  public:
    App_context() = default;
    App_context(const App_context &) = delete;
    App_context &operator=(const App_context &) = delete;
    ~App_context();
    /* The connection ends, or is to be as if it were new. */
    void close(THD *thd);
    /* NULL: memory is out. */
    class App_context_stack *get();

    class App_context_stack *stack = nullptr;
    ulonglong counts[APP_CONTEXT_COUNTERS] = {};
    sql_digest_state *preparing = nullptr; /* of an App_context_prepare */
};

/* A statement is executed in its scope. */
class App_context_statement
{
  public:
    /* One that the client sent, parsed. */
    explicit App_context_statement(THD *thd)
    {
        if (unlikely(qm_context))
            begin(thd);
    }
    /* A prepared one.  text: with its placeholders. */
    App_context_statement(THD *thd, LEX *lex, const App_context_class &what,
                          const char *text, size_t length)
    {
        if (unlikely(qm_context))
            begin(thd, lex, what, text, length);
    }
    /* One of a stored program, with this text in it. */
    App_context_statement(THD *thd, const char *text, size_t length)
    {
        if (unlikely(qm_context))
            begin(thd, text, length);
    }
    ~App_context_statement()
    {
        if (unlikely(thd != nullptr))
            end();
    }
    App_context_statement(const App_context_statement &) = delete;
    App_context_statement &operator=(const App_context_statement &) = delete;

  private:
    void begin(THD *thd);
    void begin(THD *thd, LEX *lex, const App_context_class &what, const char *text,
               size_t length);
    void begin(THD *thd, const char *text, size_t length);
    void end();

    THD *thd = nullptr; /* NULL: there were no contexts when it began */
    uint outside;       /* how many statements are */
};

/* In its scope, the next thing to be parsed gives *what its class. */
class App_context_prepare
{
  public:
    App_context_prepare(THD *thd, App_context_class *what);
    ~App_context_prepare();
    App_context_prepare(const App_context_prepare &) = delete;
    App_context_prepare &operator=(const App_context_prepare &) = delete;

  private:
    THD *thd;
    App_context_class *what;
    sql_digest_state *digest = nullptr;
};

/* In its scope, the calling thread's reads are no client's, but of this kind of work.
 */
class App_context_thread
{
  public:
    explicit App_context_thread(const char *name);
    ~App_context_thread();
    App_context_thread(const App_context_thread &) = delete;
    App_context_thread &operator=(const App_context_thread &) = delete;

  private:
    friend void app_context_tag(bool);

    bool tell();

    const char *name;
    ulonglong id = 0; /* as a THD's; 0: the storage was not told */
    App_context_thread *outside;
};

/* Where the parser is to put the digest of what it parses next; NULL: nowhere. */
sql_digest_state *app_context_digest(THD *thd, bool is_statement);

/* A THD's transaction, given by its st_transactions, was committed or rolled back. */
void app_context_transaction_ends(const void *transactions);

/* Ends all that the calling thread has told.  Who reads next begins it anew. */
void app_context_leave();

void app_context_tag(bool ahead);

/* The calling thread is about to read a page, or to submit an asynchronous read. */
static inline void app_context_read(bool ahead)
{
    if (unlikely(qm_context))
        app_context_tag(ahead);
}

#endif
