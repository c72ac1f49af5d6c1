/* SPDX-License-Identifier: BSD-3-Clause */
/* ioprio-watch.c - prints the reads that the I/O schedulers of all disks are given.
 *
 * "WATCHING" when it sees them; then a line each: RQ, the first byte, the number of
 * bytes, the priority's class and level.  It ends when its standard input does.
 */
#include <poll.h>
#include <stdio.h>

#include <bpf/libbpf.h>

#include "ioprio.skel.h"
#include "tests/long/kernel/ioprio.h"

static int print(void *opaque, void *data, size_t size)
{
    const struct inserted *r = data;

    (void)opaque;
    (void)size;
    printf("RQ %llu %u %u %u\n", r->sector * 512, r->bytes, r->ioprio >> 13,
           r->ioprio & 7);
    return 0;
}

int main(void)
{
    struct qm_ioprio_bpf *bpf = qm_ioprio_bpf__open_and_load();
    struct ring_buffer *ring;
    struct pollfd in = {.fd = 0, .events = POLLIN};
    unsigned long long lost;

    if (!bpf || qm_ioprio_bpf__attach(bpf) != 0)
        return 1;
    ring = ring_buffer__new(bpf_map__fd(bpf->maps.ring), print, NULL, NULL);
    if (!ring)
        return 1;
    puts("WATCHING");
    fflush(stdout);
    while (poll(&in, 1, 0) == 0)
        if (ring_buffer__poll(ring, 100) < 0)
            return 1;
    ring_buffer__consume(ring);
    lost = bpf->bss->lost;
    if (lost > 0)
        fprintf(stderr, "%llu reads were lost\n", lost);
    ring_buffer__free(ring);
    qm_ioprio_bpf__destroy(bpf);
    return lost > 0 || fflush(stdout) != 0;
}
