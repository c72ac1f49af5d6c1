/* SPDX-License-Identifier: BSD-3-Clause */
/* values.h - parses the values of the filter's parameters.
 *
 * All that return an int return 0, or -1.  Those that are told the key have then said
 * what was wrong and what is allowed, in one message, by qms_value_complain().
 */
#ifndef QMS_VALUES_H
#define QMS_VALUES_H

#include <stddef.h>
#include <stdint.h>

/* Logs what is wrong by nbdkit_error(); or puts it into err, for the calling thread,
 * after qms_value_tell(err, len) and until qms_value_tell(NULL, 0). */
__attribute__((format(printf, 1, 2))) void qms_value_complain(const char *format, ...);
void qms_value_tell(char *err, size_t len);

/* Says that the key's value must be what is allowed.  Returns -1. */
int qms_value_wrong(const char *key, const char *value, const char *allowed);

/* A decimal number and nothing else; and the same, perhaps with a unit: 16K, 1G. */
int qms_value_number(const char *value, uint64_t *n);
int qms_value_size(const char *value, uint64_t *n);

/* A number with limits. */
int qms_value_ranged(const char *key, const char *value, uint64_t least, uint64_t most,
                     uint64_t *n);

/* The cache's memory in bytes, which is checked when all parameters are known. */
int qms_value_sized(const char *key, const char *value, uint64_t *n);

/* Memory beside the cache in bytes, from 64K to most_gib GiB, but not more than there
 * can be. */
int qms_value_memory(const char *key, const char *value, unsigned most_gib,
                     uint64_t *n);

/* How much memory there can be, in bytes, and whose limit that is, for messages. */
uint64_t qms_value_most_memory(const char **whose);

/* Whether there can be that much. */
int qms_value_check_memory(const char *key, uint64_t bytes);

/* A path, made absolute, since nbdkit changes its directory when it goes into the
 * background.  Replaces *path, which is the caller's to free. */
int qms_value_path(const char *key, const char *value, char **path);

#endif
