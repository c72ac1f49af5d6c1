/* SPDX-License-Identifier: BSD-3-Clause */
/* context.h - kinds, levels, and the tree of open contexts.
 *
 * A context is one running unit of work of a client; it begins and ends, and may be
 * nested: connection > thread > transaction > query.  A read belongs to its own context
 * and to all that it is nested in; the *level* picks the one whose sequence it extends.
 *
 * A transaction's statements are sequences of their own, but each goes on where the one
 * that has ended last was, for prefetchers that can (prefetcher.h, resume()): a
 * statement's first read is known by what its transaction read last, or not at all.
 * Those of a connection do not, nor those within a statement.
 *
 * None of this locks: the caller serializes calls on contexts of one tree (a root and
 * all that is nested in it).  Different trees are independent.
 */
#ifndef QM_CONTEXT_H
#define QM_CONTEXT_H

#include <stdint.h>
#include <urcu/list.h>

enum qm_kind {
    QM_CONNECTION = 1,
    QM_THREAD = 2,
    QM_TRANSACTION = 3,
    QM_QUERY = 4,
};

enum qm_level {
    QM_LEVEL_INNERMOST = 0, /* the context that the read itself names */
    QM_LEVEL_CONNECTION = QM_CONNECTION,
    QM_LEVEL_THREAD = QM_THREAD,
    QM_LEVEL_TRANSACTION = QM_TRANSACTION,
    QM_LEVEL_QUERY = QM_QUERY,
    QM_LEVEL_NONE = 5, /* context-oblivious: everything is one sequence.  The caller
                          directs all accesses to one context of its own; here it is
                          the same as innermost. */
};

/* Names as in traces and options; NULL for a number that is none. */
const char *qm_kind_name(enum qm_kind kind);
const char *qm_level_name(enum qm_level level);
/* The number of a name, or -1. */
int qm_kind_parse(const char *name);
int qm_level_parse(const char *name);

struct qm_prefetcher;
struct qm_stream;
struct qm_work;

struct qm_context {
    struct qm_context *parent; /* NULL: a root */
    struct qm_context *target; /* qm_context_target() */
    struct cds_list_head children, siblings;
    enum qm_kind kind;
    uint32_t klass;           /* class: a number of the caller's */
    uint64_t id;              /* a number of the caller's */
    void *user;               /* a pointer of the caller's */
    struct qm_stream *stream; /* own sequence; NULL if the reads count elsewhere */
};

/* Begins a context within parent (NULL: a root).  *context is the library's until
 * qm_context_end().  Returns 0 or ENOMEM. */
int qm_context_begin(struct qm_prefetcher *prefetcher, enum qm_level level,
                     struct qm_context *parent, enum qm_kind kind, uint32_t klass,
                     uint64_t id, void *user, struct qm_context **context);

/* The sequences of root and of all that is nested in it end, and begin anew: at another
 * level, of another prefetcher, or both.  For each context that had a sequence or has
 * one now restarted() is called, with work to be learned from by `old`, or NULL; the
 * work is restarted()'s to pass on.  Without memory a context has no sequence. */
void qm_context_restart(struct qm_prefetcher *old, struct qm_prefetcher *prefetcher,
                        enum qm_level level, struct qm_context *root,
                        void (*restarted)(void *opaque, struct qm_context *context,
                                          struct qm_work *work),
                        void *opaque);

/* The context whose sequence a read of context extends at the level that was given to
 * qm_context_begin(): the innermost enclosing one (itself included) of that kind, or
 * context itself where there is none. */
struct qm_context *qm_context_target(enum qm_level level, struct qm_context *context);

/* Ends context and, before it, all that is nested in it: of siblings the one begun last
 * first, and each after what is nested in itself.  For each, ended() is called (may be
 * NULL), with work to be learned from, or NULL if there is none; the work is ended()'s
 * to pass on.  Without ended(), work is discarded. */
void qm_context_end(struct qm_prefetcher *prefetcher, struct qm_context *context,
                    void (*ended)(void *opaque, struct qm_context *context,
                                  struct qm_work *work),
                    void *opaque);

#endif
