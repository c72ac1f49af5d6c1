/* SPDX-License-Identifier: BSD-3-Clause */
/* tier-ocf.c - Open CAS Framework as the second tier of a simulation, to compare with.
 *
 * bench/tier --ocf compiles it with OCF's sources, which are not part of this project,
 * into a shared object for quickmine sim --tier-admit (sim/tier.h).
 *
 * OCF lies between memory and the backend as it is meant to: a block that memory misses
 * is read through it, and it decides what to insert; what memory evicts it is not told;
 * a write goes through it (write-through: a block that is written is inserted).  Words:
 *
 *   ocf       OCF's defaults (LRU, all is promoted, sequential cut-off at 1 MiB when
 * the cache is full), but for lines as large as our blocks ocf-nhit  promotion policy
 * nhit with its defaults: a block is inserted when it was asked for a third time
 *
 * It has as many lines as the tier's size holds blocks, its metadata beside.  Its two
 * volumes hold no bytes, so only what is read and written is known.  Queues are run by
 * the caller's thread until all requests have ended, so all is repeatable.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ocf/ocf.h>

#include "sim/tier.h"

#define VOLUME_TYPE 1
#define MOST        (64 * 1024) /* bytes of a line */

struct ocf_tier {
    struct qm_sim_tier_counts counts;
    uint64_t size, volume, block_size;
    ocf_ctx_t ctx;
    ocf_cache_t cache;
    ocf_core_t core;
    ocf_queue_t mngt_queue, io_queue;
    uint64_t below; /* reads of the volume below */
    bool running;   /* requests, no longer preparations */
    int ended, error;
};

/* ---- data: there is none but what OCF itself keeps in pages */

struct data {
    size_t bytes;
    uint32_t at;
    char *bytes_at;
};

static ctx_data_t *data_alloc(uint32_t pages)
{
    struct data *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    d->bytes = pages * (size_t)4096;
    d->bytes_at = calloc(pages, 4096);
    if (d->bytes_at)
        return d;
    free(d);
    return NULL;
}

static void data_free(ctx_data_t *data)
{
    struct data *d = data;

    if (d)
        free(d->bytes_at);
    free(d);
}

static int data_mlock(ctx_data_t *data)
{
    (void)data;
    return 0;
}

static void data_munlock(ctx_data_t *data)
{
    (void)data;
}

static uint32_t data_read(void *to, ctx_data_t *from, uint32_t size)
{
    struct data *d = from;

    memcpy(to, d->bytes_at + d->at, size);
    d->at += size;
    return size;
}

static uint32_t data_write(ctx_data_t *to, const void *from, uint32_t size)
{
    struct data *d = to;

    memcpy(d->bytes_at + d->at, from, size);
    d->at += size;
    return size;
}

static uint32_t data_zero(ctx_data_t *to, uint32_t size)
{
    struct data *d = to;

    memset(d->bytes_at + d->at, 0, size);
    d->at += size;
    return size;
}

static uint32_t data_seek(ctx_data_t *data, ctx_data_seek_t seek, uint32_t offset)
{
    struct data *d = data;

    d->at = seek == ctx_data_seek_begin ? offset : d->at + offset;
    return offset;
}

static uint64_t data_copy(ctx_data_t *to, ctx_data_t *from, uint64_t to_at,
                          uint64_t from_at, uint64_t bytes)
{
    memcpy(((struct data *)to)->bytes_at + to_at,
           ((struct data *)from)->bytes_at + from_at, bytes);
    return bytes;
}

static void data_erase(ctx_data_t *data)
{
    (void)data;
}

static int cleaner_init(ocf_cleaner_t cleaner)
{
    (void)cleaner;
    return 0;
}

static void cleaner_nothing(ocf_cleaner_t cleaner)
{
    (void)cleaner;
}

static int print(ocf_logger_t logger, ocf_logger_lvl_t level, const char *format,
                 va_list args)
{
    (void)logger;
    return level <= log_err ? vfprintf(stderr, format, args) : 0;
}

static int dump_stack(ocf_logger_t logger)
{
    (void)logger;
    return 0;
}

static const struct ocf_ctx_config context = {
    .name = "quickmine",
    .ops =
        {
            .data = {data_alloc, data_free, data_mlock, data_munlock, data_read,
                     data_write, data_zero, data_seek, data_copy, data_erase},
            .cleaner = {.init = cleaner_init,
                        .kick = cleaner_nothing,
                        .stop = cleaner_nothing},
            .logger = {.print = print, .dump_stack = dump_stack},
        },
};

/* ---- volumes that count */

struct volume {
    struct ocf_tier *t;
    bool is_cache;
};

/* By the volume's name, which is an address and what it is. */
static int volume_open(ocf_volume_t volume, void *params)
{
    struct volume *v = ocf_volume_get_priv(volume);
    void *t;
    char kind;

    (void)params;
    if (sscanf(ocf_uuid_to_str(ocf_volume_get_uuid(volume)), "%c%p", &kind, &t) != 2)
        return -EINVAL;
    v->t = t;
    v->is_cache = kind == 'c';
    return 0;
}

static void volume_close(ocf_volume_t volume)
{
    (void)volume;
}

static void volume_io(ocf_volume_t volume, ocf_forward_token_t token, int direction,
                      uint64_t at, uint64_t bytes, uint64_t offset)
{
    struct volume *v = ocf_volume_get_priv(volume);

    (void)at;
    (void)offset;
    if (v->is_cache && direction == OCF_WRITE && v->t->running)
        v->t->counts.bytes_written += bytes;
    if (!v->is_cache && direction == OCF_READ)
        v->t->below++;
    ocf_forward_end(token, 0);
}

static void volume_flush(ocf_volume_t volume, ocf_forward_token_t token)
{
    (void)volume;
    ocf_forward_end(token, 0);
}

static void volume_discard(ocf_volume_t volume, ocf_forward_token_t token, uint64_t at,
                           uint64_t bytes)
{
    (void)volume;
    (void)at;
    (void)bytes;
    ocf_forward_end(token, 0);
}

static unsigned volume_most(ocf_volume_t volume)
{
    (void)volume;
    return 128 * 1024;
}

static uint64_t volume_length(ocf_volume_t volume)
{
    const struct volume *v = ocf_volume_get_priv(volume);

    return v->is_cache ? v->t->size : v->t->volume;
}

static const struct ocf_volume_properties volumes = {
    .name = "counting",
    .volume_priv_size = sizeof(struct volume),
    .ops =
        {
            .open = volume_open,
            .close = volume_close,
            .forward_io = volume_io,
            .forward_flush = volume_flush,
            .forward_discard = volume_discard,
            .get_max_io_size = volume_most,
            .get_length = volume_length,
        },
};

/* ---- queues, run by the threads that wait */

static void queue_nothing(ocf_queue_t queue)
{
    (void)queue;
}

static const struct ocf_queue_ops queues = {.kick = queue_nothing,
                                            .stop = queue_nothing};

static void run(struct ocf_tier *t)
{
    while (!t->ended || ocf_queue_pending_io(t->mngt_queue) > 0 ||
           (t->io_queue && ocf_queue_pending_io(t->io_queue) > 0)) {
        ocf_queue_run(t->mngt_queue);
        if (t->io_queue)
            ocf_queue_run(t->io_queue);
    }
}

static void cache_ended(ocf_cache_t cache, void *opaque, int error)
{
    struct ocf_tier *t = opaque;

    (void)cache;
    t->ended = 1;
    t->error = error;
}

static void core_added(ocf_cache_t cache, ocf_core_t core, void *opaque, int error)
{
    struct ocf_tier *t = opaque;

    t->core = core;
    cache_ended(cache, opaque, error);
}

static void io_ended(ocf_io_t io, void *opaque, void *more, int error)
{
    (void)more;
    cache_ended(NULL, opaque, error);
    ocf_io_put(io);
}

/* ---- the tier */

static int attach(struct ocf_tier *t)
{
    struct ocf_mngt_cache_attach_config attach = {0};
    struct ocf_volume_uuid uuid;
    ocf_volume_t volume;
    char name[64];
    int r;

    snprintf(name, sizeof name, "c%p", (void *)t);
    ocf_uuid_set_str(&uuid, name);
    r = ocf_volume_create(&volume, ocf_ctx_get_volume_type(t->ctx, VOLUME_TYPE), &uuid);
    if (r != 0)
        return r;
    ocf_mngt_cache_attach_config_set_default(&attach);
    attach.device.volume = volume;
    attach.device.perform_test = false;
    attach.cache_line_size = (ocf_cache_line_size_t)t->block_size;
    attach.force = true;
    t->ended = 0;
    ocf_mngt_cache_attach(t->cache, &attach, cache_ended, t);
    run(t);
    ocf_volume_destroy(volume);
    return t->error;
}

static int add_core(struct ocf_tier *t)
{
    struct ocf_mngt_core_config config = {0};
    char name[64];

    ocf_mngt_core_config_set_default(&config);
    snprintf(config.name, sizeof config.name, "volume");
    config.volume_type = VOLUME_TYPE;
    snprintf(name, sizeof name, "v%p", (void *)t);
    ocf_uuid_set_str(&config.uuid, name);
    t->ended = 0;
    ocf_mngt_cache_add_core(t->cache, &config, core_added, t);
    run(t);
    return t->error;
}

static int start(struct ocf_tier *t, bool nhit)
{
    struct ocf_mngt_cache_config config = {0};
    int r = ocf_ctx_create(&t->ctx, &context);

    if (r == 0)
        r = ocf_ctx_register_volume_type(t->ctx, VOLUME_TYPE, &volumes);
    if (r != 0)
        return r;
    ocf_mngt_cache_config_set_default(&config);
    snprintf(config.name, sizeof config.name, "tier");
    config.cache_mode = ocf_cache_mode_wt;
    config.cache_line_size = (ocf_cache_line_size_t)t->block_size;
    if (nhit)
        config.promotion_policy = ocf_promotion_nhit;
    r = ocf_mngt_cache_start(t->ctx, &t->cache, &config, NULL);
    if (r == 0)
        r = ocf_queue_create_mngt(t->cache, &t->mngt_queue, &queues);
    if (r == 0)
        r = ocf_queue_create(t->cache, &t->io_queue, &queues);
    if (r == 0)
        r = attach(t);
    if (r == 0)
        r = add_core(t);
    t->running = r == 0;
    return r;
}

static int stop(struct ocf_tier *t)
{
    t->ended = t->running = 0;
    ocf_mngt_cache_stop(t->cache, cache_ended, t);
    while (!t->ended)
        ocf_queue_run(t->mngt_queue);
    ocf_queue_put(t->mngt_queue);
    ocf_ctx_unregister_volume_type(t->ctx, VOLUME_TYPE);
    ocf_ctx_put(t->ctx);
    t->io_queue = t->mngt_queue = NULL;
    return t->error;
}

/* Starts it with as many lines as there are blocks in size: its metadata, 35 MiB for
 * any number of volumes, would be most of a small one. */
static int start_with_lines(struct ocf_tier *t, uint64_t size, bool nhit)
{
    int64_t wanted = (int64_t)(size / t->block_size), missing = 0;
    struct ocf_cache_info info;
    int r = 0;

    t->size = size / 4096 * 4096 + UINT64_C(64 * 1024 * 1024);
    for (unsigned i = 0; i < 4; i++) {
        if (i > 0)
            r = stop(t);
        t->size += (uint64_t)(missing * (int64_t)t->block_size);
        if (r == 0)
            r = start(t, nhit);
        if (r == 0)
            r = ocf_cache_get_info(t->cache, &info);
        if (r != 0)
            return r;
        missing = wanted - (int64_t)info.size;
        if (missing == 0)
            break;
    }
    return 0;
}

static void *tier_open(const struct qm_sim_tier_config *config, uint64_t block_size,
                       char *err, size_t len)
{
    bool nhit = config->admit && strcmp(config->admit, "ocf-nhit") == 0;
    struct ocf_tier *t = calloc(1, sizeof *t);
    int r;

    if (!nhit && (!config->admit || strcmp(config->admit, "ocf") != 0))
        snprintf(err, len, "OCF's words are ocf and ocf-nhit");
    else if (block_size < 4096 || block_size > MOST)
        snprintf(err, len, "OCF has lines of 4 to 64 KiB");
    else if (!t)
        snprintf(err, len, "out of memory");
    else {
        t->volume = (config->volume + block_size - 1) / block_size * block_size;
        t->block_size = block_size;
        r = start_with_lines(t, config->size, nhit);
        if (r == 0)
            return t;
        snprintf(err, len, "OCF does not start: its error %d", -r);
        return NULL; /* what it has begun stays: the program ends */
    }
    free(t);
    return NULL;
}

static void tier_close(void *opaque)
{
    struct ocf_tier *t = opaque;

    (void)stop(t);
    free(t);
}

static void request(struct ocf_tier *t, uint64_t block, int direction)
{
    static char nothing[MOST];
    static struct data data = {.bytes = MOST, .bytes_at = nothing};
    ocf_volume_t front = ocf_core_get_front_volume(t->core);
    ocf_io_t io = ocf_volume_new_io(front, t->io_queue, block * t->block_size,
                                    t->block_size, direction, 0, 0);

    if (!io) {
        fprintf(stderr, "OCF: out of memory\n");
        exit(1);
    }
    data.at = 0;
    ocf_io_set_data(io, &data, 0);
    ocf_io_set_cmpl(io, t, NULL, io_ended);
    t->ended = 0;
    ocf_core_submit_io(io);
    run(t);
    if (t->error) {
        fprintf(stderr, "OCF: a request failed: its error %d\n", t->error);
        exit(1);
    }
}

static bool tier_read(void *opaque, uint64_t block, bool ahead)
{
    struct ocf_tier *t = opaque;
    uint64_t before = t->below, written = t->counts.bytes_written;
    bool hit;

    (void)ahead;
    request(t, block, OCF_READ);
    hit = t->below == before;
    t->counts.lookups++;
    t->counts.hits += hit;
    t->counts.inserted += t->counts.bytes_written > written;
    t->counts.refused += !hit && t->counts.bytes_written == written;
    return hit;
}

static void tier_evicted(void *opaque, uint64_t block)
{
    (void)opaque;
    (void)block;
}

static void tier_changed(void *opaque, uint64_t block)
{
    request(opaque, block, OCF_WRITE);
}

static void tier_counts(void *opaque, struct qm_sim_tier_counts *counts)
{
    struct ocf_tier *t = opaque;
    struct ocf_cache_info info;

    *counts = t->counts;
    if (ocf_cache_get_info(t->cache, &info) == 0) {
        counts->blocks = info.occupancy;
        counts->capacity = info.size;
    }
}

const struct qm_sim_tier_ops qm_sim_tier_other
    __attribute__((visibility("default"))) = {
        .open = tier_open,
        .close = tier_close,
        .read = tier_read,
        .evicted = tier_evicted,
        .changed = tier_changed,
        .counts = tier_counts,
};
