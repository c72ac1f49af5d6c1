/* SPDX-License-Identifier: BSD-3-Clause */
/* format-blocks.c - block numbers, one a line: what many simulators read.
 *
 * There are reads only, of no context and at no time.
 */
#include "trace/format.h"

#include <stdlib.h>

struct blocks_sink {
    struct qm_sink sink;
    uint64_t block_size;
};

static struct qm_source *open_blocks(const char *path,
                                     const struct qm_format_options *options, char *err,
                                     size_t len)
{
    return qm_source_new(&qm_format_blocks, sizeof(struct qm_source), path, options,
                         err, len);
}

static int next(struct qm_source *source, struct qm_event *event)
{
    char *line;
    size_t length;
    uint64_t block;
    int n = qm_input_line(source->in, &line, &length);

    if (n != 1)
        return n;
    if (!qm_word_number(line, &block) ||
        block > QM_TRACE_END_MAX / source->block_size - 1)
        return qm_input_fail(source->in, "not the number of a block (of %llu bytes)",
                             (unsigned long long)source->block_size);
    *event = (struct qm_event){.type = QM_TRACE_READ,
                               .offset = block * source->block_size,
                               .length = source->block_size};
    return 1;
}

static struct qm_sink *create(const char *path, const struct qm_format_options *options,
                              char *err, size_t len)
{
    struct blocks_sink *s = qm_sink_new(&qm_format_blocks, sizeof *s, path, err, len);

    if (!s)
        return NULL;
    s->block_size = options->block_size;
    return &s->sink;
}

static int write_blocks(struct qm_sink *sink, const struct qm_event *event)
{
    uint64_t size = ((struct blocks_sink *)sink)->block_size, block, last;
    int error = 0;

    if (event->type != QM_TRACE_READ) {
        sink->skipped += event->type == QM_TRACE_WRITE;
        return 0;
    }
    block = event->offset / size;
    last = (event->offset + event->length - 1) / size;
    for (; block <= last && !error; block++)
        error = qm_output_printf(sink->out, "%llu\n", (unsigned long long)block);
    return error;
}

static int close_blocks(struct qm_sink *sink, bool complete)
{
    int error = qm_sink_end(sink, complete);

    free(sink);
    return error;
}

const struct qm_format qm_format_blocks = {
    .name = "blocks",
    .summary = "block numbers of reads, one a line",
    .open = open_blocks,
    .next = next,
    .error = qm_source_error,
    .position = qm_source_position,
    .free = qm_source_free,
    .create = create,
    .write = write_blocks,
    .close = close_blocks,
};
