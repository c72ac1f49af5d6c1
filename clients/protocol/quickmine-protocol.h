/* SPDX-License-Identifier: BSD-3-Clause */
/* quickmine-protocol.h - contexts on the wire: the tagged export.
 *
 * The only file that server and clients share; quickmine-protocol(7) says the same in
 * prose.  All of it is ordinary NBD.  The server offers a second view of the device,
 * the export "ctx", in which a request's 64-bit offset is
 *
 *     slot << 48 | byte offset
 *
 * Slot 0 is no context; 1 to 0x7ffe is an open context; 0x7fff is the control window, a
 * small file of its own:
 *
 *     READ   at 0                 struct qm_wire_header
 *     READ   at QM_WIRE_STATS     statistics: JSON text, padded with NULs
 *     WRITE  at n * 512           one or more struct qm_wire_record
 *     CACHE  at qm_wire_hint()    one record, for exports that refuse writes
 *
 * All numbers are little-endian.  Reading the header makes the connection a member of a
 * session, new unless it was one before; so does a QM_WIRE_JOIN, or any record that
 * names a session.  A session is a range of slots that nobody else may use.  It ends,
 * and its contexts with it, when its last member connection closes.  Slots of a session
 * that the connection is not a member of count as slot 0.
 */
#ifndef QUICKMINE_PROTOCOL_H
#define QUICKMINE_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#define QM_WIRE_EXPORT "ctx"
/* Followed by a session's number in 16 hexadecimal digits: the plain view, as a member
 * of that session.  For zeroing and trimming, which QM_WIRE_EXPORT does not have. */
#define QM_WIRE_PLAIN_EXPORT "plain-"
#define QM_WIRE_SHIFT        48
#define QM_WIRE_OFFSET_MASK  ((UINT64_C(1) << QM_WIRE_SHIFT) - 1)
#define QM_WIRE_SLOT_NONE    0
#define QM_WIRE_SLOT_MIN     1
#define QM_WIRE_SLOT_MAX     0x7ffe
#define QM_WIRE_SLOT_CONTROL 0x7fff
#define QM_WIRE_CONTROL      ((uint64_t)QM_WIRE_SLOT_CONTROL << QM_WIRE_SHIFT)
/* The window is large because hints carry bits in their offset; the announced size of
 * the tagged export is QM_WIRE_CONTROL + QM_WIRE_WINDOW = 2^63 - 2^47. */
#define QM_WIRE_WINDOW    (UINT64_C(1) << 47)
#define QM_WIRE_SIZE      (QM_WIRE_CONTROL + QM_WIRE_WINDOW)
#define QM_WIRE_STATS     (UINT64_C(1) << 20) /* offset in the window */
#define QM_WIRE_STATS_MAX (UINT64_C(1) << 20) /* bytes */

#define QM_WIRE_MAGIC   UINT64_C(0x31585443454e494d) /* "MINECTX1" in bytes */
#define QM_WIRE_VERSION 1

struct qm_wire_header {
    uint64_t magic;
    uint32_t version;
    uint32_t flags;      /* QM_WIRE_* below */
    uint64_t size;       /* the device's, in bytes */
    uint32_t block_size; /* the cache's, in bytes */
    uint32_t slot_first; /* this session's slots: first ... */
    uint32_t slot_count; /* ... and how many; 0: there are none left, do without */
    uint32_t reserved0;
    uint64_t session;    /* hard to guess; 0: there is none */
    uint64_t instance;   /* of the server process, drawn when it starts; 0: unknown */
    uint8_t boot_id[16]; /* of its machine, drawn when that starts; 0: unknown */
    uint64_t size_now;   /* a new connection would find, if it is larger; else 0 */
    uint8_t volume[16];  /* another volume has another; 0: unknown */
    uint8_t reserved[416];
};

/* A connection's requests are carried out in the order they were sent.  Without this
 * flag, a client waits for the reply to a record before it uses the slot. */
#define QM_WIRE_ORDERED 0x1
/* Data cannot be written (EROFS or EPERM). */
#define QM_WIRE_READONLY 0x2
/* The server takes QM_WIRE_READS. */
#define QM_WIRE_HINTED 0x4
/* The server takes QM_WIRE_EXTENTS. */
#define QM_WIRE_TAKES_EXTENTS 0x8
/* The server takes QM_WIRE_OWN. */
#define QM_WIRE_TAKES_OWNERS 0x10

enum qm_wire_op {
    QM_WIRE_BEGIN = 1, /* CTX_BEG; on an open slot it ends what was there */
    QM_WIRE_END = 2,   /* CTX_END; what is nested in it ends too */
    QM_WIRE_JOIN = 3,  /* this connection speaks for the session, too */
    QM_WIRE_FENCE = 4, /* the session named must end; answered when its changes have */
    QM_WIRE_READS =
        5, /* reads that come over another connection: struct qm_wire_reads */
    QM_WIRE_EXTENTS = 6, /* where a file lies: struct qm_wire_extents */
    QM_WIRE_OWN = 7,     /* whose the session is: struct qm_wire_own */
};

/* The kinds of contexts, everywhere: enum qmctx_kind (programs of others include that
 * header alone) and enum qm_kind (mining knows of no protocol) repeat the numbers, and
 * are asserted to where both are seen. */
enum qm_wire_kind {
    QM_WIRE_CONNECTION = 1,
    QM_WIRE_THREAD = 2,
    QM_WIRE_TRANSACTION = 3,
    QM_WIRE_QUERY = 4,
};

#define QM_WIRE_NAME_MAX 439

struct qm_wire_record {
    uint32_t op;
    uint16_t slot;
    uint16_t parent; /* slot of the enclosing context, 0: none; BEGIN only */
    uint64_t session;
    uint64_t klass; /* class id: a hash of what contexts of a kind have in common */
    uint16_t kind;
    uint16_t name_len; /* bytes of name; 0: unnamed */
    uint32_t reserved0;
    uint8_t reserved[40];
    /* UTF-8, of the class, for people; not terminated */
    char name[QM_WIRE_NAME_MAX + 1];
};

/* QM_WIRE_FENCE is for a client that has lost the connections of a session and is about
 * to repeat its requests over a new one.  It stands alone in its WRITE; `session` is
 * the old session, which the connection must not be a member of (EINVAL).  From then on
 * every request to change data over a connection of that session fails with ESHUTDOWN;
 * the WRITE is answered when those have ended that were being carried out.  A session
 * that does not exist has ended: success. */

/* QM_WIRE_OWN is for a client whose predecessor may have been killed: it names an owner
 * that both had, and fences all sessions that this owner had before.  It stands alone
 * in its WRITE, whose answer means what a fence's does.  The connection becomes a
 * member of `session`, which has one owner for good. */
#define QM_WIRE_OWNER_SIZE 16

struct qm_wire_own {
    uint32_t op; /* QM_WIRE_OWN */
    uint32_t reserved0;
    uint64_t session;
    uint8_t owner[QM_WIRE_OWNER_SIZE]; /* hard to guess; not all 0 */
    uint8_t reserved[480];
};

/* QM_WIRE_READS is for a client whose reads go over the plain export, through a device
 * driver that knows no contexts: it says in which context each of them is made, in the
 * order in which each thread makes them, as soon as it knows.  A read and what is said
 * of it may come in either order, within a second.  Slot 0 says that a read has no
 * context.  What lies beyond the device's end is ignored.  Records of one WRITE say at
 * most QM_WIRE_READS_BYTES in all, where each entry counts 4096 more than its length.
 */
#define QM_WIRE_READS_MAX   31
#define QM_WIRE_READS_BYTES (UINT64_C(64) << 20)
#define QM_WIRE_READ_BYTES  (UINT32_C(2) << 20) /* of one: 31 of them fit */

struct qm_wire_read {
    uint64_t where;  /* slot << 48 | byte offset, as in a request */
    uint32_t length; /* bytes, 1 to QM_WIRE_READ_BYTES */
    uint32_t reserved0;
};

struct qm_wire_reads {
    uint32_t op;    /* QM_WIRE_READS */
    uint16_t count; /* 1 to QM_WIRE_READS_MAX; the other entries are 0 */
    uint16_t reserved0;
    uint64_t session;
    struct qm_wire_read reads[QM_WIRE_READS_MAX];
};

/* QM_WIRE_EXTENTS is advice: a file has these extents on the device, in the order of
 * the file, so a reader that comes to the end of one goes on with the next.  A file
 * that has more goes on in further records, the first extent of each of which is the
 * last one of the record before.  What does not lie on the device is ignored.  A WRITE
 * has at most QM_WIRE_EXTENTS_RECORDS of them. */
#define QM_WIRE_EXTENTS_MAX     31
#define QM_WIRE_EXTENTS_RECORDS 256

struct qm_wire_extent {
    uint64_t offset; /* bytes, a multiple of 512, below 2^QM_WIRE_SHIFT */
    uint64_t length; /* bytes, a multiple of 512, not 0; offset + length is at most
                        2^QM_WIRE_SHIFT */
};

struct qm_wire_extents {
    uint32_t op;    /* QM_WIRE_EXTENTS */
    uint16_t count; /* 1 to QM_WIRE_EXTENTS_MAX; the other entries are 0 */
    uint16_t reserved0;
    uint64_t session;
    struct qm_wire_extent extents[QM_WIRE_EXTENTS_MAX];
};

/* What is not used must be 0: a record in which it is not, or whose numbers are out of
 * range, gets EINVAL for its WRITE, and no record of that WRITE has any effect.  All
 * records of one WRITE are of one session, a connection is a member of 8 at most, and
 * contexts nest at most 64 deep. */

/* A record in the offset and count of an NBD_CMD_CACHE in the window, for read-only
 * exports: the connection's own session, a class of 22 bits, no name.  Offset is
 * QM_WIRE_HINT | op << 43 | kind << 39 | slot << 24 | parent << 9, count is
 * 512 * (class % 2^22 + 1); both are multiples of 512. */
#define QM_WIRE_HINT         (UINT64_C(1) << 46)
#define QM_WIRE_HINT_CLASSES (1u << 22)

static inline uint64_t qm_wire_hint(unsigned op, unsigned kind, unsigned slot,
                                    unsigned parent)
{
    return QM_WIRE_CONTROL | QM_WIRE_HINT | (uint64_t)(op & 0x3) << 43 |
           (uint64_t)(kind & 0xf) << 39 | (uint64_t)(slot & 0x7fff) << 24 |
           (uint64_t)(parent & 0x7fff) << 9;
}

_Static_assert(sizeof(struct qm_wire_header) == 512, "one sector");
_Static_assert(offsetof(struct qm_wire_header, size) == 16, "layout");
_Static_assert(offsetof(struct qm_wire_header, session) == 40, "layout");
_Static_assert(offsetof(struct qm_wire_header, instance) == 48, "layout");
_Static_assert(offsetof(struct qm_wire_header, boot_id) == 56, "layout");
_Static_assert(offsetof(struct qm_wire_header, size_now) == 72, "layout");
_Static_assert(offsetof(struct qm_wire_header, volume) == 80, "layout");
_Static_assert(sizeof(struct qm_wire_record) == 512, "one sector");
_Static_assert(offsetof(struct qm_wire_record, session) == 8, "layout");
_Static_assert(offsetof(struct qm_wire_record, klass) == 16, "layout");
_Static_assert(offsetof(struct qm_wire_record, kind) == 24, "layout");
_Static_assert(offsetof(struct qm_wire_record, name) == 72, "layout");
_Static_assert(sizeof(struct qm_wire_reads) == 512, "one sector");
_Static_assert(offsetof(struct qm_wire_reads, session) == 8, "layout");
_Static_assert(offsetof(struct qm_wire_reads, reads) == 16, "layout");
_Static_assert(sizeof(struct qm_wire_own) == 512, "one sector");
_Static_assert(offsetof(struct qm_wire_own, session) == 8, "layout");
_Static_assert(offsetof(struct qm_wire_own, owner) == 16, "layout");
_Static_assert(sizeof(struct qm_wire_extents) == 512, "one sector");
_Static_assert(offsetof(struct qm_wire_extents, session) == 8, "layout");
_Static_assert(offsetof(struct qm_wire_extents, extents) == 16, "layout");
_Static_assert(QM_WIRE_SIZE <= (UINT64_C(1) << 63) - (UINT64_C(1) << 30), "libnbd");

#endif
