/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.c - how long a disk with a moving arm takes for a request (disk.h). */
#include "plugins/device/disk.h"

#include <math.h>

/* The curve, less the time a, whose knee is at distance s * s and whose slope is the
 * same on both sides of it, so that it is b * sqrt(x), and then b * s / 2 + b / (2 * s)
 * * x. Returns the b with which it is `rise` at distance 1. */
static double curve_b(double s, double rise)
{
    return 2 * rise * s / (1 + s * s);
}

/* Its mean over the distances of two random positions, whose density is 2 * (1 - x). */
static double curve_mean(double s, double rise)
{
    const double b = curve_b(s, rise), d = s * s;
    const double root = 2 * b * d * s * (2.0 / 3 - d * 2 / 5);
    const double constant = b * s / 2 * (1 - d) * (1 - d);
    const double linear = b / (2 * s) * 2 * (1.0 / 6 - d * d / 2 + d * d * d / 3);

    return root + constant + linear;
}

int qm_disk_model_init(struct qm_disk_model *model, const struct qm_disk_config *config)
{
    const double rise = config->full_ns - config->single_ns;
    const double mean = config->average_ns - config->single_ns;
    double low = 1e-6, high = 1, s;

    if (!(rise > 0) || mean < curve_mean(low, rise) || mean > curve_mean(high, rise))
        return -1;
    for (int i = 0; i < 100; i++) { /* it grows with s */
        s = (low + high) / 2;
        if (curve_mean(s, rise) < mean)
            low = s;
        else
            high = s;
    }
    s = high;
    model->config = *config;
    model->knee = s * s;
    model->a = config->single_ns;
    model->b = curve_b(s, rise);
    model->c = model->a + model->b * s / 2;
    model->e = model->b / (2 * s);
    model->ns_per_byte = config->revolution_ns / (double)config->track;
    return 0;
}

double qm_disk_seek_ns(const struct qm_disk_model *m, uint64_t distance)
{
    const double x = (double)distance / (double)m->config.span;

    return x < m->knee ? m->a + m->b * sqrt(x) : m->c + m->e * x;
}

void qm_disk_init(struct qm_disk *disk, const struct qm_disk_model *model, double phase)
{
    *disk = (struct qm_disk){.phase_ns = phase * model->config.revolution_ns};
}

/* When the disk that reads on comes to a position; what lies before its start, it has.
 */
static double passes(const struct qm_disk *d, const struct qm_disk_model *m,
                     uint64_t position)
{
    if (position < d->start)
        return -INFINITY;
    return d->start_ns + (double)(position - d->start) * m->ns_per_byte;
}

uint64_t qm_disk_head(const struct qm_disk *d, const struct qm_disk_model *m,
                      double now_ns)
{
    if (!d->buffered)
        return d->head;
    if (now_ns >= passes(d, m, d->limit))
        return d->limit;
    return now_ns <= d->start_ns
               ? d->start
               : d->start + (uint64_t)((now_ns - d->start_ns) / m->ns_per_byte);
}

/* Whether a read needs no arm: the disk has come to its start by the time the request
 * is ready, and either all of it has been read or will be, or the disk still reads on.
 */
static bool in_buffer(const struct qm_disk *d, const struct qm_disk_model *m,
                      double now_ns, uint64_t position, uint64_t length)
{
    if (!d->buffered || position < d->from || position > d->limit ||
        passes(d, m, position) > now_ns + m->config.overhead_ns)
        return false;
    return position + length <= d->limit || now_ns < passes(d, m, d->limit);
}

/* How long it takes until the position comes by. */
static double rotation_ns(const struct qm_disk *d, const struct qm_disk_model *m,
                          double now_ns, uint64_t position)
{
    const double revolution = m->config.revolution_ns;
    double target = (double)(position % m->config.track) * m->ns_per_byte;
    double wait = fmod(target - now_ns - d->phase_ns, revolution);

    return wait < 0 ? wait + revolution : wait;
}

/* Lets the disk read on after end; what is furthest behind leaves the buffer.  If it
 * had stopped, it goes on where it did, when that comes by. */
static void read_on(struct qm_disk *d, const struct qm_disk_model *m, double now_ns,
                    uint64_t end)
{
    const uint64_t limit = end + m->config.buffer / 2;

    if (limit <= d->limit)
        return;
    if (now_ns >= passes(d, m, d->limit)) {
        d->start = d->limit;
        d->start_ns = now_ns + rotation_ns(d, m, now_ns, d->limit);
    }
    d->limit = limit;
    if (d->limit - d->from > m->config.buffer)
        d->from = d->limit - m->config.buffer;
}

/* How long the arm takes to a position's track. */
static double arm_ns(const struct qm_disk_model *m, uint64_t head, bool write,
                     uint64_t position)
{
    if (head / m->config.track == position / m->config.track)
        return 0;
    return (write ? m->config.write_ns : 0) +
           qm_disk_seek_ns(m, head > position ? head - position : position - head);
}

double qm_disk_serve(struct qm_disk *d, const struct qm_disk_model *m, double now_ns,
                     bool write, uint64_t position, uint64_t length)
{
    double ready = now_ns + m->config.overhead_ns, end;

    if (!write && in_buffer(d, m, now_ns, position, length)) {
        end = passes(d, m, position + length);
        read_on(d, m, now_ns, position + length);
        return end > ready ? end : ready;
    }
    ready += arm_ns(m, qm_disk_head(d, m, now_ns), write, position);
    ready += rotation_ns(d, m, ready, position);
    end = ready + (double)length * m->ns_per_byte;
    d->head = position + length;
    d->buffered = !write && m->config.buffer > 0;
    d->from = d->start = position;
    d->limit = position + length;
    d->start_ns = ready;
    if (d->buffered)
        read_on(d, m, ready, position + length);
    return end;
}
