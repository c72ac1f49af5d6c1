/* SPDX-License-Identifier: BSD-3-Clause */
/* print.h - packed values as MariaDB prints them. */
#ifndef QM_ROWCACHE_PRINT_H
#define QM_ROWCACHE_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QM_PRINT_MAX 128

size_t qm_decimal_size(unsigned precision, unsigned scale);
/* value has qm_decimal_size() bytes.  Returns the length of text (QM_PRINT_MAX). */
long qm_print_decimal(unsigned precision, unsigned scale, const uint8_t *value,
                      char *text);
/* Dates and times; timestamps in UTC.  -1 if the type is none of them. */
long qm_print_time(uint8_t type, unsigned digits, const uint8_t *value, char *text);
/* text has room for three times as many bytes. */
long qm_print_latin1(const uint8_t *value, size_t length, char *text);
/* MariaDB before 10.11.5 stores a UUID's parts in another order, swapped. */
void qm_print_uuid(const uint8_t *value, bool swapped, char *text);
void qm_print_inet6(const uint8_t *value, char *text);

#endif
