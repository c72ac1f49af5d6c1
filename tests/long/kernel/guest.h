/* SPDX-License-Identifier: BSD-3-Clause */
/* guest.h - what the programs in the guest share.
 *
 * Each says on standard output what it does, as lines that begin with "@" and that
 * check.py compares with what the server recorded:
 *
 *   @begin CLASS KIND PARENT   a context; PARENT is a class, or -
 *   @read CLASS OFFSET LENGTH  one request, in this order within its context
 *   @write CLASS OFFSET LENGTH
 *   @cover CLASS OFFSET LENGTH these bytes, in any pieces and any order
 *   @merged CLASS OFFSET LENGTH  some request there is of more than a block
 *   @again CLASS               the server may be told more than once that it begins
 *   @end CLASS
 *
 * OFFSET is the device's.  CLASS - is no context.  Classes are used once.
 */
#ifndef GUEST_H
#define GUEST_H

#include <stdint.h>
#include <stdlib.h>

#include "client-patches/linux/ctx.h"

#define DEVICE "/dev/nbd0"
#define BLOCK  4096
#define RAW    (UINT64_C(128) << 20) /* from here on, the device has no file system */
#define CHECK(x)                                                                       \
    do {                                                                               \
        if (!(x))                                                                      \
            die(#x, __FILE__, __LINE__);                                               \
    } while (0)

void die(const char *what, const char *file, int line) __attribute__((noreturn));
/* As printf, a whole line, at once. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *aligned_buffer(size_t size);
int open_device(int flags);

uint64_t class_id(const char *klass);
void say_begin(unsigned kind, const char *parent_class, const char *klass);
/* Says where on the device the bytes of the file are that a context reads. */
void say_cover(int fd, const char *klass, uint64_t at, uint64_t length);
/* Drops the page cache's pages, but not what ext4 knows of its files, so that no
 * context reads that. */
void drop_pages(void);

/* Begins a context and says so.  parent is a handle, and its class or "-". */
int64_t begin(unsigned kind, int64_t parent, const char *parent_class,
              const char *klass);
void end(int64_t ctx, const char *klass);

/* The scenarios. */
void direct(const char *prefix);
void buffered(void);
void library(void);
void library_files(void);
void library_refused(void);
void uring(void);
void threads(void);
void processes(void);
void after_exec(void);
void refusals(void);
void merges(void);
void breaks(void);
void small_segments(void);
void signals(void);
void plain(void);
void speed(void);
void speed_live(void);
void marker(void);

#endif
