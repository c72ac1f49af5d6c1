/* SPDX-License-Identifier: BSD-3-Clause */
/* app_context_stack.h - what is open in a THD, and what of it the storage was told. For
 * app_context's own files only.
 *
 * Two stacks.  A THD has one of frames: what is open, a few stores each, whether or not
 * anybody will ever hear of it.  Outside of its first frame there is always one context
 * more: the connection's, or that of the server's thread that the THD is of.  libqmctx
 * has one of contexts for each thread.  A thread knows how much of which THD's stack is
 * on it
 * (`here`); to tell is to make the second what the first is.  Only the thread that told
 * can end what it told, so it does that before another one takes up the THD.
 *
 * Where a transaction begins: outside of the first statement that uses a table, if that
 * is no CALL or compound statement, whose statements are, with autocommit, transactions
 * of their own.  It is over (in_transaction is false) when the server says so, which is
 * in the middle of the statement that commits.  If that is its first and only one, its
 * frame ends after that statement's.  Else, with COMMIT and what commits implicitly,
 * the statement is taken out of it.
 */
#ifndef APP_CONTEXT_STACK_H
#define APP_CONTEXT_STACK_H

#include "app_context.h"

struct sql_digest_storage;

/* The first 16 digits of the MD5 sum: of a statement, those of its DIGEST in the
 * performance schema.  Never 0. */
ulonglong app_context_class_of(const char *text, size_t length);
ulonglong app_context_class_of(const sql_digest_storage *digest);

class App_context_stack
{
  public:
    /* A transaction or statement, and what its class is made of: it is computed when
     * the storage is to be told. */
    struct Frame {
        bool is_transaction;
        bool fresh; /* of a transaction: its first statement has not ended */
        bool uses_tables;
        uint nesting;    /* how many statements were open when it began */
        ulonglong klass; /* 0: to be computed, of: */
        const sql_digest_storage *digest; /* the statement's, or NULL */
        const char *text; /* its name; without a digest, what is hashed, too */
        size_t length;
        uint command; /* if there is nothing else to go by */
    };

    App_context_stack();

    /* A statement begins: what, but for its first two members and nesting.  Returns
     * false if it has no context; else end() is to be called, with *outside. */
    bool begin(THD *thd, const Frame &what, uint *outside);
    void end(THD *thd, uint outside);

    void transaction_ends(THD *thd);
    void close(THD *thd);

    /* Tells the storage of all that is open.  Returns false if it cannot. */
    bool tell(THD *thd);

  private:
    /* Statements in statements in ...; what is further in counts to what is outside. */
    static constexpr uint MAX_FRAMES = 16;
    /* As libqmctx cuts names that go to a mount. */
    static constexpr uint NAME_SIZE = 199 + 1;

    void open_connection(THD *thd);
    void begin_rows(THD *thd);
    void push(THD *thd, const Frame &what, bool is_transaction);
    void pop_to(THD *thd, uint new_depth);
    bool is_told(uint frame) const;
    void classify(Frame *frame, char *buffer);

    const ulonglong id;          /* that no other one ever has */
    bool open = false;           /* there is a connection's context */
    bool in_transaction = false; /* the innermost transaction frame is still going on */
    uint depth = 0;
    uint nesting = 0; /* of statements */
    Frame frames[MAX_FRAMES];
    char transaction_name[NAME_SIZE]; /* what a transaction's text may point to */
};

#endif
