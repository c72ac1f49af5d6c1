/* SPDX-License-Identifier: BSD-3-Clause */
/* accuracy.c - an integral controller: the accuracy moves by how far the reads are off.
 *
 * It moves for each read too many or too few, so little when the device is hardly read
 * at all, and a hundred times slower than the threshold that follows it (confidence.c),
 * so that the two do not chase each other.
 */
#include "mining/markov/accuracy.h"

#define PERIOD 1024 /* calls */

#define AIM 1.08f

#define ACCURACY     0.73f /* at the start */
#define ACCURACY_MIN 0.66f
#define ACCURACY_MAX 0.90f
#define STEP         0.05f /* for a read a call */
#define STEP_MAX     0.01f /* a period: of something that goes wrong once */

void qm_accuracy_init(struct qm_accuracy *a)
{
    atomic_init(&a->accuracy, ACCURACY);
    atomic_init(&a->calls, 0);
    atomic_init(&a->device, 0);
    atomic_init(&a->lru, 0);
}

bool qm_accuracy_due(struct qm_accuracy *a)
{
    return atomic_fetch_add_explicit(&a->calls, 1, memory_order_relaxed) % PERIOD ==
           PERIOD - 1;
}

static float within(float value, float least, float most)
{
    return value < least ? least : value > most ? most : value;
}

float qm_accuracy_next(struct qm_accuracy *a, uint64_t device, uint64_t lru)
{
    float accuracy = atomic_load_explicit(&a->accuracy, memory_order_relaxed);
    float read = (float)(device - atomic_exchange(&a->device, device));
    float fair = AIM * (float)(lru - atomic_exchange(&a->lru, lru));

    accuracy += within(STEP * (read - fair) / PERIOD, -STEP_MAX, STEP_MAX);
    accuracy = within(accuracy, ACCURACY_MIN, ACCURACY_MAX);
    atomic_store_explicit(&a->accuracy, accuracy, memory_order_relaxed);
    return accuracy;
}
