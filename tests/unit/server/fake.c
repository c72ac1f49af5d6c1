/* SPDX-License-Identifier: BSD-3-Clause */
/* fake.c - see fake.h. */
#include "tests/harness.h"

#include "fake.h"

struct qm_stream {
    uint64_t blocks[8]; /* the first ones */
    uint64_t n;
    unsigned owner;
};

struct qm_work {
    struct qm_stream stream;
};

static void count(struct fake *f, unsigned *counter, int n)
{
    pthread_mutex_lock(&f->lock);
    *counter += n;
    pthread_mutex_unlock(&f->lock);
}

static struct qm_stream *begin(struct qm_prefetcher *p, uint32_t klass)
{
    struct fake *f = (struct fake *)p;

    count(f, &f->streams, 1);
    return calloc(1, sizeof(struct qm_stream));
}

static void own(struct qm_stream *s, unsigned owner)
{
    s->owner = owner;
}

static void owners(struct qm_prefetcher *p, unsigned there)
{
    ((struct fake *)p)->there = there;
}

static void access_block(struct qm_prefetcher *p, struct qm_stream *s, uint64_t block,
                         enum qm_access outcome, struct qm_work **work)
{
    if (s->n < 8)
        s->blocks[s->n] = block;
    s->n++;
    *work = NULL;
}

static size_t kept(const struct qm_stream *s)
{
    return s->n;
}

static unsigned candidates(struct qm_prefetcher *p, struct qm_stream *stream,
                           struct qm_candidate *out, unsigned max)
{
    struct fake *f = (struct fake *)p;
    unsigned n = f->want_n < max ? f->want_n : max;

    count(f, &f->asked, 1);
    for (unsigned i = 0; i < n; i++) {
        out[i] = qm_candidate_of(f->wants[i]);
        out[i].stream = f->streaming;
    }
    return n;
}

static void end(struct qm_prefetcher *p, struct qm_stream *s, struct qm_work **work)
{
    struct fake *f = (struct fake *)p;

    count(f, &f->streams, -1);
    *work = NULL;
    if (s->n > 0) {
        *work = malloc(sizeof **work);
        (*work)->stream = *s;
        count(f, &f->works, 1);
    }
    free(s);
}

static int learn(struct qm_prefetcher *p, struct qm_work *work)
{
    struct fake *f = (struct fake *)p;

    pthread_mutex_lock(&f->lock);
    f->busy++;
    pthread_cond_signal(&f->begins);
    pthread_mutex_unlock(&f->lock);
    pthread_mutex_lock(&f->slow);
    pthread_mutex_unlock(&f->slow);
    pthread_mutex_lock(&f->lock);
    f->works--;
    if (f->learned < 64)
        f->order[f->learned] = work->stream.blocks[0];
    f->learned++;
    f->learner = pthread_self();
    f->learned_blocks += work->stream.n;
    f->last_owner = work->stream.owner;
    f->last_n = work->stream.n < 8 ? work->stream.n : 8;
    memcpy(f->last, work->stream.blocks, sizeof f->last);
    pthread_mutex_unlock(&f->lock);
    free(work);
    return 0;
}

static void discard(struct qm_prefetcher *p, struct qm_work *work)
{
    struct fake *f = (struct fake *)p;

    pthread_mutex_lock(&f->lock);
    f->works--;
    f->discarded++;
    pthread_mutex_unlock(&f->lock);
    free(work);
}

static void forget(struct qm_prefetcher *p, uint64_t block, uint64_t n)
{
    ((struct fake *)p)->forgotten = block;
    ((struct fake *)p)->forgotten_n = n;
}

static void ended(struct qm_prefetcher *p, uint64_t block, uint32_t issuer,
                  uint32_t user, enum qm_fate fate)
{
}

static void refused(struct qm_prefetcher *p, uint64_t block, uint32_t n)
{
    struct fake *f = (struct fake *)p;

    count(f, &f->refused, (int)n);
    f->refused_at = block;
    f->misused = f->misused || f->gone;
}

static int save(struct qm_prefetcher *p)
{
    struct fake *f = (struct fake *)p;

    count(f, &f->saves, 1);
    return f->save_error;
}

static int purge(struct qm_prefetcher *p, uint64_t now)
{
    struct fake *f = (struct fake *)p;

    count(f, &f->purges, 1);
    return 0;
}

static const struct qm_prefetcher_ops ops = {
    .name = "fake",
    .kept = kept,
    .begin = begin,
    .own = own,
    .owners = owners,
    .access = access_block,
    .candidates = candidates,
    .end = end,
    .learn = learn,
    .discard = discard,
    .forget = forget,
    .ended = ended,
    .refused = refused,
    .purge = purge,
    .save = save,
};

void fake_init(struct fake *f)
{
    memset(f, 0, sizeof *f);
    f->base.ops = &ops;
    pthread_mutex_init(&f->lock, NULL);
    pthread_mutex_init(&f->slow, NULL);
    pthread_cond_init(&f->begins, NULL);
}

void fake_wait_busy(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    while (f->busy == 0)
        pthread_cond_wait(&f->begins, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

void fake_check_and_destroy(struct fake *f)
{
    assert_int_equal(f->streams, 0);
    assert_int_equal(f->works, 0);
    pthread_mutex_destroy(&f->lock);
    pthread_mutex_destroy(&f->slow);
    pthread_cond_destroy(&f->begins);
}
