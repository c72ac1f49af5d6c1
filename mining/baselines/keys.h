/* SPDX-License-Identifier: BSD-3-Clause */
/* keys.h - sorting 64-bit keys. */
#ifndef QM_KEYS_H
#define QM_KEYS_H

#include <stddef.h>
#include <stdint.h>

/* Sorts keys[0..n); spare has room for as many. */
void qm_keys_sort(uint64_t *keys, size_t n, uint64_t *spare);

/* Removes what is twice from sorted keys; returns how many are left. */
size_t qm_keys_unique(uint64_t *keys, size_t n);

#endif
