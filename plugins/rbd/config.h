/* SPDX-License-Identifier: BSD-3-Clause */
/* config.h - the parameters of the RBD plugin. */
#ifndef QM_RBD_CONFIG_H
#define QM_RBD_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

enum qmr_lock {
    QMR_LOCK_EXCLUSIVE, /* one server an image */
    QMR_LOCK_NONE,
};

/* An option of Ceph's. */
struct qmr_option {
    char *key, *value;
};

struct qmr_config {
    char *pool, *name_space, *image, *snapshot; /* name_space, snapshot: NULL if none */
    char *conf, *keyring; /* absolute paths; NULL: Ceph's default */
    char *user;           /* without "client." */
    enum qmr_lock lock;
    bool takeover;
    bool read_only;
    unsigned connect_timeout; /* seconds */
    unsigned slow_after;      /* seconds; 0: say nothing of slow requests */
    struct qmr_option *options;
    size_t n_options;
};

extern const char qmr_config_help[];

/* Takes one parameter.  Returns 0, or -1 after nbdkit_error(). */
int qmr_config_set(const char *key, const char *value);

/* When all were taken: checks them together and fills in *config, which is freed by
 * qmr_config_free().  Returns 0, or -1 after nbdkit_error(). */
int qmr_config_complete(struct qmr_config *config);
void qmr_config_free(struct qmr_config *config);

#endif
