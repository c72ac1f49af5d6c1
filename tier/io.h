/* SPDX-License-Identifier: BSD-3-Clause */
/* io.h - the tier's I/O: an ops table, which tests replace to make disks that fail,
 * forget and crash.
 *
 * All return errno values, and transfer everything or fail.  Reading beyond the end of
 * the file is EIO.  Any number of threads may call them at the same time. */
#ifndef QM_TIER_IO_H
#define QM_TIER_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum qm_tier_file {
    QM_TIER_DATA, /* O_DIRECT if it can be had: all aligned to 4096 */
    QM_TIER_META, /* through the page cache: after the call, it survives the process */
};

/* One of several reads.  n is a multiple of 4096; buf need not be aligned. */
struct qm_tier_io_read {
    void *buf;
    size_t n;
    uint64_t at;
};

/* The i-th of them has ended: 0 or an error. */
typedef void qm_tier_io_done(void *opaque, size_t i, int error);

struct qm_tier_io {
    void *opaque;
    int (*read)(void *opaque, enum qm_tier_file file, void *buf, size_t n, uint64_t at);
    /* durable: returns when these bytes survive the machine, too. */
    int (*write)(void *opaque, enum qm_tier_file file, const void *buf, size_t n,
                 uint64_t at, bool durable);
    int (*sync)(void *opaque);
    int (*reserve)(void *opaque, uint64_t at, size_t n); /* space for later writes */
    int (*resize)(void *opaque, uint64_t size);          /* cuts or grows the file */
    /* Returns ENOENT if the file has no name any more, EIO if it is shorter than size.
     */
    int (*present)(void *opaque, uint64_t size);
    /* Whether the file has nothing but zeros; takes no time for holes.  NULL, or of a
     * device: not looked at. */
    int (*blank)(void *opaque, bool *blank);
    void (*close)(void *opaque);
    /* Reads n pieces of QM_TIER_DATA at once.  done() is called by this thread, once
     * for each in any order, before it returns.  False: cannot be done in this way now,
     * and nothing was.  NULL: it never can. */
    bool (*read_many)(void *opaque, const struct qm_tier_io_read *reads, size_t n,
                      qm_tier_io_done *done, void *done_opaque);

    /* Set when it is opened. */
    bool fixed;                    /* a device: its size cannot be changed */
    bool direct;                   /* QM_TIER_DATA is O_DIRECT */
    bool fresh;                    /* made just now */
    uint64_t size;                 /* of the file when it was opened */
    uint64_t inode, birth, device; /* of a regular file */
    unsigned rings;                /* of io_uring, that read_many() has */
    uint64_t memory;               /* bytes that it has allocated */
};

/* Reads all, or fails.  Returns 0 or an errno value. */
int qm_tier_pread(int fd, void *buf, size_t n, uint64_t at);

/* A file or block device, locked against other processes (OFD lock).  Returns 0, EBUSY,
 * or what open() returned; err has a sentence.  ring: with O_DIRECT, use io_uring if it
 * can be had. */
int qm_tier_io_file(struct qm_tier_io *io, const char *path, bool direct, bool ring,
                    char *err, size_t len);

/* No file: data is not kept, metadata in memory (size bytes of address space). */
int qm_tier_io_null(struct qm_tier_io *io, uint64_t size);

/* Whether a regular file has nothing but zeros.  Returns 0 or an errno value. */
int qm_tier_blank(int fd, bool *blank);

/* /proc's boot id, "" if there is none. */
void qm_tier_boot_id(char id[40]);

#endif
