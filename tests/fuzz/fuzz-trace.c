/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-trace.c - reading traces, our own and those of other programs.
 *
 * The first byte says which format; the rest is the file, compressed or not.
 *
 * Promised: an event that is delivered is one that can be written and is read again as
 * the same; an error has a sentence.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "trace/format.h"

#define EVENTS_MAX 20000 /* a few bytes of zstd can be a long trace */

static void check(const struct qm_event *e)
{
    switch (e->type) {
    case QM_TRACE_BEGIN:
        promise(e->ctx > 0 && e->slot > 0);
        promise(e->kind >= QM_CONNECTION && e->kind <= QM_QUERY);
        promise(e->klass && *e->klass && !strchr(e->klass, ' ') &&
                strlen(e->klass) <= QM_TRACE_CLASS_MAX);
        promise((e->parent == 0) == (e->parent_slot == 0));
        break;
    case QM_TRACE_END:
        promise(e->ctx > 0 && e->slot > 0);
        break;
    case QM_TRACE_READ:
    case QM_TRACE_WRITE:
        promise(e->length > 0 && e->length <= QM_TRACE_LENGTH_MAX);
        promise(e->offset <= QM_TRACE_END_MAX - e->length);
        promise((e->ctx == 0) == (e->slot == 0));
        break;
    default:
        promise(!"a type of event");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"native", "blkparse", "fio", "blocks"};
    struct qm_format_options options = {.action = 'Q'};
    const struct qm_format *format;
    struct qm_source *source;
    char path[64], err[500] = "";
    struct qm_event event;
    int fd, r, n = 0;

    if (size == 0)
        return 0;
    format = qm_format_find(formats[data[0] % 4]);
    if (data[0] & 4)
        options.block_size = 4096;
    if (data[0] & 8)
        options.action = 'C';
    fd = memfd_create("trace", MFD_CLOEXEC);
    promise(fd != -1);
    promise(write(fd, data + 1, size - 1) == (ssize_t)size - 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    source = format->open(path, &options, err, sizeof err);
    if (source) {
        while ((r = format->next(source, &event)) == 1 && n++ < EVENTS_MAX)
            check(&event);
        if (r == -1)
            promise(*format->error(source));
        promise(source->block_size >= QM_TRACE_BLOCK_MIN &&
                source->block_size <= QM_TRACE_BLOCK_MAX);
        format->free(source);
    } else {
        promise(*err);
    }
    close(fd);
    return 0;
}
