/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* ioprio.bpf.c - the reads that a disk's I/O scheduler is given, with their priority.
 *
 * Attached to block:block_rq_insert: the scheduler gets a request there.  The
 * tracepoint itself tells the priority from Linux 6.11 on only.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u16 __sum16;
typedef __u8 bool;

enum { BPF_MAP_TYPE_RINGBUF = 27 };

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "tests/long/kernel/ioprio.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct request {
    unsigned int cmd_flags;
    unsigned int __data_len;
    __u64 __sector;
    unsigned short ioprio;
};

#pragma clang attribute pop

#define OP_MASK 0xffu /* REQ_OP_MASK */
#define OP_READ 0u

char LICENSE[] SEC("license") = "Dual BSD/GPL";

unsigned long long lost;

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 22);
} ring SEC(".maps");

SEC("tp_btf/block_rq_insert")
int BPF_PROG(inserted, struct request *rq)
{
    struct inserted *r;

    if ((rq->cmd_flags & OP_MASK) != OP_READ)
        return 0;
    r = bpf_ringbuf_reserve(&ring, sizeof *r, 0);
    if (!r) {
        __sync_fetch_and_add(&lost, 1);
        return 0;
    }
    r->sector = rq->__sector;
    r->bytes = rq->__data_len;
    r->ioprio = rq->ioprio;
    bpf_ringbuf_submit(r, 0);
    return 0;
}
