/* SPDX-License-Identifier: BSD-3-Clause */
/* disk.h - how long a disk with a moving arm takes for a request.
 *
 * Seek, rotation and transfer after Ruemmler and Wilkes, "An introduction to disk drive
 * modeling" (IEEE Computer 27(3), 1994): a short seek takes a + b * sqrt(distance),
 * since the arm speeds up half the way; a long one c + e * distance, at full speed. The
 * four constants, and the distance where one turns into the other, follow from what a
 * disk's manual states: the times of a seek by a single track, by the full stroke, and
 * of an average one.
 *
 * The sector asked for comes by once in a revolution, at an angle that its position
 * gives; so the wait for it is known, and uniform for random positions.  Tracks are all
 * of a size (no zones), and follow one another without a gap: what changing tracks
 * takes is in the rate.
 *
 * After a read the disk reads on until the arm is needed, up to half of its buffer;
 * what lies in the buffer costs the overhead alone.  Without this, reading on one after
 * another would miss a revolution each time.  Writes go to the disk's surface.
 *
 * Positions are bytes on the disk; times are nanoseconds from any start.
 */
#ifndef QM_DEVICE_DISK_H
#define QM_DEVICE_DISK_H

#include <stdbool.h>
#include <stdint.h>

struct qm_disk_config {
    double single_ns, average_ns, full_ns; /* seeks, of a read */
    double write_ns;                       /* what a seek of a write takes longer */
    double overhead_ns;                    /* of each request */
    double revolution_ns;
    uint64_t track;  /* bytes */
    uint64_t span;   /* bytes that the full stroke goes across */
    uint64_t buffer; /* bytes; 0: none */
};

/* What follows from the configuration: common to disks that are alike. */
struct qm_disk_model {
    struct qm_disk_config config;
    double a, b, c, e, knee; /* distances as parts of the full stroke */
    double ns_per_byte;
};

/* One disk. */
struct qm_disk {
    double phase_ns; /* the angle at time 0 */
    uint64_t head;   /* where it is unless it reads on */

    /* The buffer: bytes from..start are there, and those up to limit will be when the
     * disk has come that far: it passes `start` at start_ns. */
    bool buffered;
    uint64_t from, start, limit;
    double start_ns;
};

/* Returns 0, or -1 if no curve of this form has such times: the average must lie
 * between those of a curve all linear (a third of the way from single to full) and one
 * all square root (eight fifteenths). */
int qm_disk_model_init(struct qm_disk_model *model,
                       const struct qm_disk_config *config);

/* A read's seek across distance bytes. */
double qm_disk_seek_ns(const struct qm_disk_model *model, uint64_t distance);

/* At position 0, with the angle phase (0 to 1) at time 0, and an empty buffer. */
void qm_disk_init(struct qm_disk *disk, const struct qm_disk_model *model,
                  double phase);

/* Where the head is at a time, which must not be before the last request's end. */
uint64_t qm_disk_head(const struct qm_disk *disk, const struct qm_disk_model *model,
                      double now_ns);

/* Carries out a request that is begun at now_ns.  Returns when it ends. */
double qm_disk_serve(struct qm_disk *disk, const struct qm_disk_model *model,
                     double now_ns, bool write, uint64_t position, uint64_t length);

#endif
