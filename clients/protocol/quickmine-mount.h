/* SPDX-License-Identifier: BSD-3-Clause */
/* quickmine-mount.h - how a program tells `quickmine mount` its threads' contexts.
 *
 * Shared by libqmctx and the mount only.  The program connects to the mount's Unix
 * socket (SOCK_SEQPACKET; FILE.ctx beside the mounted FILE by default).  The mount
 * sends one struct qm_mount_hello, with the descriptor of a shared memory file attached
 * (SCM_RIGHTS), sealed against shrinking: an array of struct qm_mount_entry.  An entry
 * describes one context that is open in the program.  A thread enters a context by
 * filling in a free entry and calling setfsgid (hello.gid_base + index): the number
 * then comes with each of its FUSE requests, and the mount looks the entry up.  A
 * context in which nothing is read costs two setfsgid() and no message at all; the
 * mount begins it on the wire at its first read.
 *
 * An entry is written by its owning thread alone, under its version number: odd while
 * it is being changed.  The mount sets `seen` to the version it has begun on the wire.
 * To end a context the owner makes the version even again with kind = 0; and, only if
 * `seen` shows that the mount knows it, sends one struct qm_mount_ended (not blocking;
 * if the socket is full the mount finds out when the entry is used again, or on its
 * next sweep).  When the socket closes, all of the program's contexts end.
 *
 * The mount trusts nothing that it reads there: it copies an entry, checks the version
 * again, and checks ranges.
 */
#ifndef QUICKMINE_MOUNT_H
#define QUICKMINE_MOUNT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define QM_MOUNT_MAGIC    UINT32_C(0x4d514d31)
#define QM_MOUNT_VERSION  1
#define QM_MOUNT_SUFFIX   ".ctx"
#define QM_MOUNT_NAME_MAX 199

/* A struct qm_mount_ended with this index asks for the mount's statistics: one message
 * of at most QM_MOUNT_ANSWER_MAX bytes, lines of a name, a blank and a number.  A mount
 * of an earlier version ignores it. */
#define QM_MOUNT_ASK        UINT32_MAX
#define QM_MOUNT_ANSWER_MAX 4096

/* Group ids that mean contexts; none of Debian's policy falls among them. */
#define QM_MOUNT_GID_BASE UINT32_C(0x51000000)
#define QM_MOUNT_GID_END  UINT32_C(0x52000000)

struct qm_mount_hello {
    uint32_t magic, version;
    uint32_t gid_base; /* this client's entries: gid_base + index */
    uint32_t entries;  /* how many */
    uint64_t bytes;    /* of the shared memory */
};

struct qm_mount_entry {
    _Atomic uint64_t version; /* odd: being changed */
    _Atomic uint64_t seen;    /* the version that the mount has begun on the wire */
    uint32_t kind;            /* enum qm_wire_kind; 0: free or ended */
    uint32_t parent;          /* index of the enclosing context's entry + 1; 0: none */
    uint64_t parent_version;  /* its version then */
    uint64_t klass;
    uint32_t name_len;
    char name[QM_MOUNT_NAME_MAX + 1];
    uint32_t reserved[2];
};

struct qm_mount_ended {
    uint32_t index;
    uint32_t reserved;
    uint64_t version; /* that ended */
};

_Static_assert(sizeof(struct qm_mount_entry) == 256, "four cache lines");

#endif
