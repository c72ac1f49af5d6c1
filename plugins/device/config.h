/* SPDX-License-Identifier: BSD-3-Clause */
/* config.h - the device filter's parameters (nbdkit-device-filter(1)). */
#ifndef QM_DEVICE_CONFIG_H
#define QM_DEVICE_CONFIG_H

#include "plugins/device/profile.h"

struct qmd_config {
    const char *name; /* of the device */
    bool none;        /* no device: nothing takes time */
    struct qm_device_config device;
    char *file;  /* absolute path or NULL: times count while it exists */
    char *stats; /* absolute path or NULL; both freed by qmd_config_free() */
};

/* nbdkit's --help shows it. */
extern const char qmd_config_help[];

/* A key=value of the command line.  Returns 0, or 1 if the key is not one of ours. */
int qmd_config_set(const char *key, const char *value);

/* Puts profile and values together and checks the whole.  Returns 0, or -1 when
 * nbdkit_error() has said what was wrong. */
int qmd_config_complete(struct qmd_config *config);

void qmd_config_free(struct qmd_config *config);

#endif
