/* SPDX-License-Identifier: BSD-3-Clause */
/* config.c - reads the device filter's parameters.
 *
 * What says something of the device goes to settings.h; the rest are files.
 */
#include "plugins/device/config.h"

#include <stdlib.h>
#include <string.h>

#include <nbdkit-filter.h>

#include "plugins/device/settings.h"

const char qmd_config_help[] =
    "device=NAME            (required) Device to model: disk, ssd, san, object-store;\n"
    "                       or none.\n"
    "device-disks=N         Number of disks, striped (disk: 1, san: 15).\n"
    "device-stripe=SIZE     Consecutive bytes on a disk (default 64K).\n"
    "device-queue=sstf|fcfs Order in a disk's queue: shortest seek first (default), "
    "or\n"
    "                       first come, first served.\n"
    "device-span=SIZE       Capacity of a disk (default: its part of the device).\n"
    "device-parallel=N      Requests at the same time (ssd: 8, object-store: 64).\n"
    "device-demand-first=BOOL\n"
    "                       Background reads only when no others wait (default "
    "false).\n"
    "device-scale=F         Factor of all times (default 1).\n"
    "device-seed=N          Seed of random times (default 1).\n"
    "device-file=FILE       Requests take time only while FILE exists.\n"
    "device-stats=FILE      Statistics to write when the server ends.\n";

static struct qm_device_settings settings;
static const char *file, *stats; /* NULL: not given */

/* nbdkit changes its directory when it goes into the background. */
static int set_path(const char *key, const char *value, char **path)
{
    if (*value == '\0') {
        nbdkit_error("%s must be a path, not \"%s\"", key, value);
        return -1;
    }
    free(*path);
    *path = nbdkit_absolute_path(value);
    return *path ? 0 : -1;
}

int qmd_config_set(const char *key, const char *value)
{
    if (strcmp(key, "device-file") == 0)
        file = value;
    else if (strcmp(key, "device-stats") == 0)
        stats = value;
    else
        return qm_device_settings_set(&settings, key, value);
    return 0;
}

int qmd_config_complete(struct qmd_config *config)
{
    char err[200];

    if (qm_device_settings_complete(&settings, &config->device, &config->none, err,
                                    sizeof err) == -1) {
        nbdkit_error("%s", err);
        return -1;
    }
    config->name = qm_device_settings_name(&settings);
    if ((file && set_path("device-file", file, &config->file) == -1) ||
        (stats && set_path("device-stats", stats, &config->stats) == -1))
        return -1;
    return 0;
}

void qmd_config_free(struct qmd_config *config)
{
    free(config->file);
    free(config->stats);
}
