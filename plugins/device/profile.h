/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.h - the devices that the filter knows by name (nbdkit-device-filter(1)). */
#ifndef QM_DEVICE_PROFILE_H
#define QM_DEVICE_PROFILE_H

#include "plugins/device/model.h"

struct qm_device_profile {
    const char *name;
    bool
        disks; /* device-disks, -stripe, -queue and -span apply; else device-parallel */
    struct qm_device_config config;
};

/* Returns NULL if there is none of this name. */
const struct qm_device_profile *qm_device_profile_find(const char *name);

#endif
