/* SPDX-License-Identifier: BSD-3-Clause */
/* miner.c - which row follows which on a client's connection; see miner.h.
 *
 * A row's number is its place in the dictionary, and above that how often the place was
 * given anew, so that a rule of an earlier row of the place predicts nothing. */
#include "rowcache/readahead/miner.h"

#include <stdlib.h>

#include "mining/core/prefetcher.h"

enum { CLASS = 1, TIMES = 1 << 16 };

struct place {
    struct qm_item item;
    uint32_t times; /* it was given anew */
    bool taken, read;
};

struct stream {
    uint64_t client;
    struct qm_stream *stream;
};

struct qm_miner {
    const struct qm_prefetcher_ops *ops;
    struct qm_prefetcher *prefetcher;
    struct qm_items *places; /* of rows */
    struct place place[QM_MINER_ROWS];
    unsigned hand;            /* the place that is looked at next */
    struct qm_items *clients; /* their streams' places */
    struct stream stream[QM_MINER_STREAMS];
    unsigned streams;
    double threshold;
    unsigned reads, used; /* in this spell */
    unsigned rest, rest_next;
};

static float threshold(void *opaque)
{
    const struct qm_miner *miner = opaque;

    return (float)miner->threshold;
}

struct qm_miner *qm_miner_new(void)
{
    struct qm_miner *miner = calloc(1, sizeof *miner);
    struct qm_mining_config config;
    char err[200];

    if (!miner)
        return NULL;
    qm_mining_defaults(&config);
    miner->rest_next = QM_MINER_SPELL;
    config.degree = QM_MINER_PREDICTED;
    config.rules_memory = QM_MINER_MEMORY;
    config.threshold = threshold;
    config.opaque = miner;
    miner->ops = qm_prefetcher_find("ppm");
    miner->places = qm_items_new(QM_MINER_ROWS);
    miner->clients = qm_items_new(QM_MINER_STREAMS);
    if (!miner->places || !miner->clients ||
        miner->ops->create(&config, &miner->prefetcher, err, sizeof err) != 0) {
        miner->prefetcher = NULL;
        qm_miner_free(miner);
        return NULL;
    }
    return miner;
}

static void end_stream(struct qm_miner *miner, struct stream *s)
{
    struct qm_work *work = NULL;

    if (s->stream)
        miner->ops->end(miner->prefetcher, s->stream, &work);
    if (work)
        miner->ops->discard(miner->prefetcher, work);
    s->stream = NULL;
}

void qm_miner_free(struct qm_miner *miner)
{
    if (!miner)
        return;
    for (unsigned i = 0; i < miner->streams; i++)
        end_stream(miner, &miner->stream[i]);
    if (miner->prefetcher)
        miner->ops->destroy(miner->prefetcher);
    qm_items_free(miner->places);
    qm_items_free(miner->clients);
    free(miner);
}

/* --- numbers --- */

static uint64_t number_at(const struct qm_miner *miner, unsigned at)
{
    return (uint64_t)miner->place[at].times * QM_MINER_ROWS + at;
}

/* A place that is free, or whose row was not read since the hand came by last. */
static unsigned free_place(struct qm_miner *miner)
{
    for (;;) {
        unsigned at = miner->hand++ % QM_MINER_ROWS;
        struct place *place = &miner->place[at];

        if (!place->taken)
            return at;
        if (!place->read) {
            if (miner->ops->forget)
                miner->ops->forget(miner->prefetcher, number_at(miner, at), 1);
            qm_items_remove(miner->places, place->item);
            place->times = (place->times + 1) % TIMES;
            return at;
        }
        place->read = false;
    }
}

static uint64_t number_of(struct qm_miner *miner, struct qm_item item)
{
    uint64_t *known = qm_items_find(miner->places, item);
    unsigned at;

    if (known) {
        miner->place[*known].read = true;
        return number_at(miner, (unsigned)*known);
    }
    at = free_place(miner);
    miner->place[at].item = item;
    miner->place[at].taken = true;
    miner->place[at].read = false;
    *qm_items_add(miner->places, item) = at;
    return number_at(miner, at);
}

/* False: the number's place has another row by now. */
static bool row_of(const struct qm_miner *miner, uint64_t number, struct qm_item *item)
{
    unsigned at = (unsigned)(number % QM_MINER_ROWS);

    *item = miner->place[at].item;
    return miner->place[at].taken && number_at(miner, at) == number;
}

/* --- streams --- */

/* NULL: out of memory. */
static struct stream *stream_of(struct qm_miner *miner, uint64_t client)
{
    struct qm_item key = {0, (int64_t)client}, oldest;
    const uint64_t *known = qm_items_find(miner->clients, key);
    struct stream *s;
    uint64_t at;

    if (known) {
        at = *known;
        qm_items_remove(miner->clients, key); /* it becomes the newest */
    } else if (miner->streams < QM_MINER_STREAMS) {
        at = miner->streams++;
    } else {
        qm_items_oldest(miner->clients, &oldest, &at);
        qm_items_remove(miner->clients, oldest);
        end_stream(miner, &miner->stream[at]);
    }
    *qm_items_add(miner->clients, key) = at;
    s = &miner->stream[at];
    if (!s->stream)
        s->stream = miner->ops->begin(miner->prefetcher, CLASS);
    return s->stream ? s : NULL;
}

/* --- spells and rests --- */

static void end_spell(struct qm_miner *miner)
{
    if (miner->used >= QM_MINER_WORTH) {
        miner->rest_next = QM_MINER_SPELL;
    } else {
        miner->rest = miner->rest_next;
        if (miner->rest_next < QM_MINER_REST_MOST)
            miner->rest_next *= 2;
    }
    miner->reads = miner->used = 0;
}

bool qm_miner_rests(struct qm_miner *miner)
{
    if (miner->rest == 0)
        return false;
    /* What comes next does not follow what was read before the rest. */
    if (--miner->rest == 0)
        for (unsigned i = 0; i < miner->streams; i++)
            end_stream(miner, &miner->stream[i]);
    return true;
}

unsigned qm_miner_read(struct qm_miner *miner, uint64_t client, struct qm_item item,
                       enum qm_miner_outcome outcome, double least,
                       struct qm_item predicted[QM_MINER_PREDICTED])
{
    static const enum qm_access outcomes[] = {QM_ACCESS_HIT, QM_ACCESS_PREFETCH_HIT,
                                              QM_ACCESS_MISS};
    struct qm_candidate candidates[QM_MINER_PREDICTED];
    struct qm_work *work = NULL;
    struct stream *s;
    unsigned n, found = 0;

    if (outcome == QM_MINER_HIT)
        return 0;
    s = stream_of(miner, client);
    if (!s)
        return 0;
    miner->threshold = least;
    miner->ops->access(miner->prefetcher, s->stream, number_of(miner, item),
                       outcomes[outcome], &work);
    if (work)
        miner->ops->discard(miner->prefetcher, work);
    n = miner->ops->candidates(miner->prefetcher, s->stream, candidates,
                               QM_MINER_PREDICTED);
    for (unsigned i = 0; i < n; i++)
        found += row_of(miner, candidates[i].block, &predicted[found]);
    if (++miner->reads == QM_MINER_SPELL)
        end_spell(miner);
    return found;
}

void qm_miner_ended(struct qm_miner *miner, struct qm_item item, bool used)
{
    const uint64_t *known = qm_items_find(miner->places, item);

    miner->used += used;
    if (known)
        miner->ops->ended(miner->prefetcher, number_at(miner, (unsigned)*known), CLASS,
                          used ? CLASS : 0, used ? QM_FATE_USED : QM_FATE_UNUSED);
}
