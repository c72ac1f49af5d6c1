/* server-link.h - the mount's way to its server, which may go away and come back.
 *
 * A link is up or down.  While it is down a thread of its own tries to connect again:
 * once a second at first, then every five, for as long as the user allowed.  After
 * that, or if what comes back is of another size, it stays down.
 *
 * Requests wait for it to come up again, as long as the user allowed, and those that
 * were under way when it went down are sent once more: who asked has not been told that
 * they were carried out, so it makes no difference if they were.  Writes that were
 * answered but not flushed yet may be lost with a server: an unsafe loss, after which
 * the next flush of everybody who had the file open fails.
 *
 * Any thread may call anything here but qm_link_close(), which is the last.
 */
#ifndef QM_MOUNT_SERVER_LINK_H
#define QM_MOUNT_SERVER_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client-patches/libqmctx/qmctx.h"

struct qm_link;

/* Connects.  connections: 0 to 64, as qmctx_connect() takes them.  reconnect: for how
 * many seconds to try after a loss; 0: not at all.  wait: for how many seconds a
 * request waits meanwhile; 0: not at all.  *link is the caller's, to be freed with
 * qm_link_close().  Returns 0, or -1 with one sentence in err. */
int qm_link_open(const char *uri, unsigned connections, unsigned reconnect,
                 unsigned wait, struct qm_link **link, char *err, size_t len);
/* Starts the thread that watches the connection and makes it again.  Returns 0 or an
 * errno value. */
int qm_link_start(struct qm_link *link);
/* No request may be on its way.  link may be NULL. */
void qm_link_close(struct qm_link *link);

/* What the device is; constant.  Size and block size in bytes. */
uint64_t qm_link_size(const struct qm_link *link);
uint32_t qm_link_block_size(const struct qm_link *link);
bool qm_link_read_only(const struct qm_link *link);

bool qm_link_is_up(const struct qm_link *link);

/* Who asks.  A request that waits looks now and then whether its answer is still
 * wanted; one that nobody wants any more is not carried out later. */
struct qm_asker {
    bool (*gone)(void *opaque);
    void *opaque;
};

/* Requests; offset + count must lie within the device.  context 0: none.  Each returns
 * 0 or an errno value: the server's, or EIO if there is no server in time, or, of a
 * flush, if what was written may be lost. */
int qm_link_read(struct qm_link *link, const struct qm_asker *asker, qmctx_id context,
                 void *buf, size_t count, uint64_t offset);
int qm_link_write(struct qm_link *link, const struct qm_asker *asker, qmctx_id context,
                  const void *buf, size_t count, uint64_t offset, bool fua);
/* *seen: how many unsafe losses the one who flushes knows of; updated. */
int qm_link_flush(struct qm_link *link, const struct qm_asker *asker,
                  atomic_uint *seen);
unsigned qm_link_unsafe_losses(struct qm_link *link);
int qm_link_zero(struct qm_link *link, const struct qm_asker *asker, uint64_t count,
                 uint64_t offset);

/* Begins a context, without waiting; returns 0 or an errno value.  EIO: the link is
 * down, and it may work later. */
int qm_link_begin(struct qm_link *link, qmctx_id parent, enum qmctx_kind kind,
                  uint64_t klass, const char *name, qmctx_id *id);
void qm_link_end(struct qm_link *link, qmctx_id id);

#endif
