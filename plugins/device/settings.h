/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.h - a device by its name and what is said of it: key=value, as the
 * parameters of the device filter (nbdkit-device-filter(1)).
 *
 * The one parser of them, for the filter and for quickmine sim --device.
 */
#ifndef QM_DEVICE_SETTINGS_H
#define QM_DEVICE_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>

#include "plugins/device/profile.h"

enum { QM_DEVICE_SETTINGS = 9 };

/* What was said; all zeros is nothing.  The strings are the caller's, until
 * qm_device_settings_complete(). */
struct qm_device_settings {
    const char *values[QM_DEVICE_SETTINGS]; /* by key */
};

/* Takes a key=value.  Returns 0, or 1 if there is no such key. */
int qm_device_settings_set(struct qm_device_settings *settings, const char *key,
                           const char *value);

/* Puts the profile and what was said of it together: a profile is a set of defaults,
 * wherever among the keys it stands.  *none: the device is "none", and *config what was
 * said beside that.  Returns 0, or -1 with a sentence in err that says what is wrong
 * and what is allowed. */
int qm_device_settings_complete(const struct qm_device_settings *settings,
                                struct qm_device_config *config, bool *none, char *err,
                                size_t len);

/* The name of the device; NULL: it was not said. */
const char *qm_device_settings_name(const struct qm_device_settings *settings);

#endif
