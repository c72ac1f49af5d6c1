/* SPDX-License-Identifier: BSD-3-Clause */
/* volume-name.h - which volume the layers below serve: a name for its tier.
 *
 * nbdkit tells a filter nothing of the layers below but the parameters that they were
 * given.  Those that say what is served name the volume; those that say how (logs,
 * delays, credentials), as far as nbdkit's own filters and plugins are concerned, do
 * not.  Another volume behind the same parameters goes unnoticed unless its size or
 * its state (volume.h) differs: tier-volume is for that.
 */
#ifndef QMS_VOLUME_NAME_H
#define QMS_VOLUME_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define QMS_VOLUME_NAME   256
#define QMS_VOLUME_FORMER 32

/* A parameter of the layers below.  Called before nbdkit changes its directory. */
void qms_volume_parameter(const char *key, const char *value);

void qms_volume_free(void); /* forgets all */

/* A name that follows from these.  nbdkit has loaded all layers. */
void qms_volume_name(char name[QMS_VOLUME_NAME]);

/* The name that versions before gave it: of all parameters. */
void qms_volume_former(char name[QMS_VOLUME_FORMER]);

/* Whether two names are of one volume; if not, why says which parameter differs, if
 * that can be told, else it is "".  A file that a parameter names, and that was not
 * there when the first name was made, makes no difference. */
bool qms_volume_same(const char *had, const char *has, char *why, size_t len);

/* Whether a parameter names that file, as far as is() says. */
bool qms_volume_has(const struct stat *st,
                    bool (*is)(const struct stat *a, const struct stat *b));

/* The parameter by which the plugin takes what it serves from the export name that a
 * client gives; NULL: there is none.  nbdkit has loaded all layers. */
const char *qms_volume_by_export(void);

/* The parameter "file", if that is a regular file, links resolved; else "". */
const char *qms_volume_file(void);

/* Identifies the data of the volume, the same at each start: of that file its inode and
 * time of birth.  All 0: nothing is known. */
void qms_volume_identity(uint8_t id[16]);

/* Whether nbdkit has loaded nbdkit-NAME-KIND; kind is "-filter.so" or "-plugin.so".
 * Of volume.c. */
bool qms_volume_has_layer(const char *kind, const char *name);

#endif
