/* SPDX-License-Identifier: BSD-3-Clause */
/* guest-uring.c - requests that are submitted to io_uring for a context; no library. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "tests/long/kernel/guest.h"

#define ENTRIES 8

struct ring {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array;
    unsigned *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
};

static void ring_open(struct ring *ring)
{
    struct io_uring_params p = {0};
    size_t size;
    char *sq, *cq;

    ring->fd = syscall(__NR_io_uring_setup, ENTRIES, &p);
    CHECK(ring->fd >= 0);
    size = p.sq_off.array + p.sq_entries * sizeof(unsigned);
    sq = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd,
              IORING_OFF_SQ_RING);
    CHECK(sq != MAP_FAILED);
    size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    cq = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd,
              IORING_OFF_CQ_RING);
    CHECK(cq != MAP_FAILED);
    ring->sqes = mmap(NULL, p.sq_entries * sizeof *ring->sqes, PROT_READ | PROT_WRITE,
                      MAP_SHARED, ring->fd, IORING_OFF_SQES);
    CHECK(ring->sqes != MAP_FAILED);
    ring->sq_tail = (unsigned *)(sq + p.sq_off.tail);
    ring->sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
    ring->sq_array = (unsigned *)(sq + p.sq_off.array);
    ring->cq_head = (unsigned *)(cq + p.cq_off.head);
    ring->cq_tail = (unsigned *)(cq + p.cq_off.tail);
    ring->cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
    ring->cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
}

static void submit(struct ring *ring, int fd, void *buffer, uint64_t at, unsigned flags)
{
    unsigned tail = *ring->sq_tail, index = tail & *ring->sq_mask;
    struct io_uring_sqe *sqe = &ring->sqes[index];

    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_READ;
    sqe->flags = flags;
    sqe->fd = fd;
    sqe->off = at;
    sqe->addr = (uintptr_t)buffer;
    sqe->len = BLOCK;
    ring->sq_array[index] = index;
    __atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
    CHECK(syscall(__NR_io_uring_enter, ring->fd, 1, 0, 0, NULL, 0) == 1);
}

static void reap(struct ring *ring, unsigned n)
{
    while (n > 0) {
        unsigned head = *ring->cq_head;

        CHECK(syscall(__NR_io_uring_enter, ring->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL,
                      0) >= 0);
        for (; head != __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) && n > 0; n--)
            CHECK(ring->cqes[head++ & *ring->cq_mask].res == BLOCK);
        __atomic_store_n(ring->cq_head, head, __ATOMIC_RELEASE);
    }
}

/* Three contexts in turn, one of them none, and the next one is set as soon as a
 * request is submitted.  That the bytes are read in order is not said: @cover. */
static void scenario(struct ring *ring, int fd, unsigned flags, uint64_t base,
                     const char *one, const char *two)
{
    int64_t a = begin(APP_CTX_QUERY, 0, "-", one),
            b = begin(APP_CTX_QUERY, 0, "-", two);
    char *buffer = aligned_buffer(ENTRIES * BLOCK);

    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < ENTRIES; i++) {
            uint64_t at = base + ((uint64_t)round * ENTRIES + i) * BLOCK;

            CHECK(ctx_set(i % 3 == 0 ? a : i % 3 == 1 ? b : 0) >= 0);
            submit(ring, fd, buffer + i * BLOCK, at, flags);
            say("@cover %s %llu %d\n",
                i % 3 == 0   ? one
                : i % 3 == 1 ? two
                             : "-",
                (unsigned long long)at, BLOCK);
        }
        CHECK(ctx_set(0) >= 0);
        reap(ring, ENTRIES);
    }
    end(a, one);
    end(b, two);
    free(buffer);
}

void uring(void)
{
    int fd = open_device(O_RDONLY | O_DIRECT);
    struct ring ring;

    ring_open(&ring);
    scenario(&ring, fd, 0, RAW + (UINT64_C(40) << 20), "uring-inline-one",
             "uring-inline-two");
    scenario(&ring, fd, IOSQE_ASYNC, RAW + (UINT64_C(44) << 20), "uring-worker-one",
             "uring-worker-two");
    close(ring.fd);
    close(fd);
}
