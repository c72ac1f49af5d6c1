/* SPDX-License-Identifier: BSD-3-Clause */
/* patient.h - waiting for the server is no point at which a thread can be cancelled.
 *
 * Some of the functions that are replaced here are such points, but what waits in their
 * place is a library that has locks and duties for other threads.
 */
#ifndef QM_PRELOAD_PATIENT_H
#define QM_PRELOAD_PATIENT_H

#include <pthread.h>

static inline void qm_patience_ends(const int *before)
{
    pthread_setcancelstate(*before, NULL);
}

static inline int qm_patience_begins(void)
{
    int before;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

/* Until the end of the block. */
#define QM_PATIENT()                                                                   \
    const int patient_ __attribute__((cleanup(qm_patience_ends), unused)) =            \
        qm_patience_begins()

#endif
