/* SPDX-License-Identifier: BSD-3-Clause OR GPL-2.0-only */
/* reads.bpf.c - who submits the reads of some block devices.
 *
 * Attached to block:block_bio_queue, which runs in the thread that submits the read,
 * not to the issue of requests, which on many devices a kernel thread does.  For each
 * read of a watched disk one record goes into a ring.
 *
 * A record wakes its reader only if that sleeps and has said so: waking at each costs
 * 12 to 15 us, the record less than half of one.
 *
 * CO-RE: the kernel's types below name only the fields that are used; their offsets are
 * found when the program is loaded.  It loads on Linux 5.18 and later (bio.bi_bdev,
 * ring buffer, tp_btf).
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
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;
typedef __u8 bool;

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_RINGBUF = 27 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "clients/bpf/reads.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct gendisk {
    int major, first_minor;
};

struct block_device {
    struct gendisk *bd_disk;
    u32 bd_dev;
};

struct bvec_iter {
    u64 bi_sector;
    unsigned int bi_size;
};

struct bio {
    struct block_device *bi_bdev;
    unsigned int bi_opf;
    struct bvec_iter bi_iter;
};

struct thread_struct {
#if defined(__TARGET_ARCH_x86)
    unsigned long fsbase;
#elif defined(__TARGET_ARCH_arm64)
    struct {
        unsigned long tp_value;
    } uw;
#else
#error "the thread pointer of this architecture is not known"
#endif
};

struct task_struct {
    unsigned int flags;
    struct thread_struct thread;
};

#pragma clang attribute pop

#define OP_MASK    0xffu /* REQ_OP_MASK */
#define OP_READ    0u
#define OP_WRITE   1u
#define REQ_RAHEAD (1u << 19)
#define PF_KTHREAD 0x00200000u

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Records that found the ring full; and whether the reader sleeps.  Not u64: some
 * versions of bpftool take its size wrong. */
unsigned long long lost;
unsigned int asleep;

/* Writes, too. */
const volatile unsigned int writes;

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 22);
} ring SEC(".maps");

/* What is watched: a disk, or a partition of one. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 64);
    __type(key, u32);
    __type(value, u32);
} devices SEC(".maps");

/* Registered processes: the offset of a thread's word from its thread pointer. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, u32);
    __type(value, s64);
} processes SEC(".maps");

static __always_inline unsigned long thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
    return task->thread.fsbase;
#else
    return task->thread.uw.tp_value;
#endif
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(bio_queue, struct bio *bio)
{
    struct gendisk *disk = bio->bi_bdev->bd_disk;
    u32 number = (u32)disk->major << 20 | (u32)disk->first_minor;
    u32 part = bio->bi_bdev->bd_dev, process, opf = bio->bi_opf, op = opf & OP_MASK;
    struct task_struct *task;
    struct qm_bpf_read *read;
    u64 id, wake = BPF_RB_NO_WAKEUP;
    s64 *offset;

    if ((op != OP_READ && (op != OP_WRITE || !writes)) || bio->bi_iter.bi_size == 0 ||
        (!bpf_map_lookup_elem(&devices, &number) &&
         !bpf_map_lookup_elem(&devices, &part)))
        return 0;
    read = bpf_ringbuf_reserve(&ring, sizeof *read, 0);
    if (!read) {
        __sync_fetch_and_add(&lost, 1);
        return 0;
    }
    id = bpf_get_current_pid_tgid();
    task = (struct task_struct *)bpf_get_current_task_btf();
    process = id >> 32;
    read->ns = bpf_ktime_get_ns();
    read->sector = bio->bi_iter.bi_sector;
    read->word = 0;
    read->bytes = bio->bi_iter.bi_size;
    read->disk = number;
    read->process = process;
    read->thread = (u32)id;
    read->reserved = 0;
    read->flags = opf & REQ_RAHEAD ? QM_BPF_READAHEAD : 0;
    if (op != OP_READ)
        read->flags |= QM_BPF_WRITE;
    bpf_get_current_comm(read->name, sizeof read->name);
    if (task->flags & PF_KTHREAD)
        read->flags |= QM_BPF_KERNEL;
    offset = bpf_map_lookup_elem(&processes, &process);
    if (offset) {
        read->flags |= QM_BPF_KNOWN;
        if (bpf_probe_read_user(&read->word, sizeof read->word,
                                (void *)(thread_pointer(task) + *offset)) != 0)
            read->word = 0;
    }
    if (asleep) {
        asleep = 0;
        wake = BPF_RB_FORCE_WAKEUP;
    }
    bpf_ringbuf_submit(read, wake);
    return 0;
}
