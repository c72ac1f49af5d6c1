/* SPDX-License-Identifier: BSD-3-Clause */
/* options.h - the command line of `quickmine mount`. */
#ifndef QM_MOUNT_OPTIONS_H
#define QM_MOUNT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/libqmctx/device.h"

struct qm_mount_options {
    const char *uri;
    const char *file;
    const char *context_socket; /* NULL: FILE.ctx */
    const char *pidfile;        /* NULL: none */
    unsigned connections;       /* 0: as the server allows */
    uint32_t reconnect, wait;   /* seconds, or QM_DEVICE_FOREVER */
    enum qm_retain mode;
    uint64_t retain; /* bytes */
    bool stats, json;
    bool foreground;
    bool allow_other;
    bool read_only;
    bool patient;
};

/* Fills in options, whose strings are argv's; or ends the program after a message, with
 * status 2, or 0 after --help. */
void qm_mount_parse(struct qm_mount_options *options, int argc, char **argv);

#endif
