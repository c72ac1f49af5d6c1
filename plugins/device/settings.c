/* SPDX-License-Identifier: BSD-3-Clause */
/* settings.c - reads what is said of a device (settings.h).
 *
 * Values are only kept as they come, and parsed when all are known: a profile is a set
 * of defaults for the others.
 */
#include "plugins/device/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DISKS_MAX 256
#define SIZE_MAX_ (UINT64_C(1) << 60)
#define SCALE_MIN 0.001
#define SCALE_MAX 1000

/* What was said; beside it, the profile that it is read over. */
struct reading {
    struct qm_device_config *config;
    const struct qm_device_profile *profile; /* NULL: none */
    bool none;
    char *err;
    size_t len;
};

typedef int parser(const char *key, const char *value, struct reading *r);

static int wrong(const struct reading *r, const char *key, const char *value,
                 const char *allowed)
{
    snprintf(r->err, r->len, "%s must be %s, not \"%s\"", key, allowed, value);
    return -1;
}

/* A decimal number, with nothing after it but what `units` allows. */
static int number(const char *value, const char *units, uint64_t *n)
{
    const char *unit;
    char *end;
    unsigned shift;

    if (*value < '0' || *value > '9')
        return -1;
    errno = 0;
    *n = strtoull(value, &end, 10);
    if (errno != 0)
        return -1;
    if (*end == '\0')
        return 0;
    unit = strchr(units, *end & ~0x20);
    if (!unit || *unit == '\0' || end[1] != '\0')
        return -1;
    shift = 10 * (unsigned)(unit - units + 1);
    if (*n > UINT64_MAX >> shift)
        return -1;
    *n <<= shift;
    return 0;
}

static int counted(const struct reading *r, const char *key, const char *value,
                   uint64_t most, unsigned *n)
{
    char allowed[80];
    uint64_t v;

    if (number(value, "", &v) == 0 && v >= 1 && v <= most) {
        *n = (unsigned)v;
        return 0;
    }
    snprintf(allowed, sizeof allowed, "a number from 1 to %" PRIu64, most);
    return wrong(r, key, value, allowed);
}

/* Whether a key has a meaning for this device; says so if not. */
static bool applies(const char *key, const struct reading *r, bool disks)
{
    if (!r->profile || r->profile->disks == disks)
        return true; /* without a device, all are allowed */
    snprintf(r->err, r->len, "%s is for device=%s, not for device=%s", key,
             disks ? "disk and device=san" : "ssd and device=object-store",
             r->profile->name);
    return false;
}

static int set_device(const char *key, const char *value, struct reading *r)
{
    r->profile = qm_device_profile_find(value);
    r->none = strcmp(value, "none") == 0;
    if (!r->profile && !r->none)
        return wrong(r, key, value, "disk, ssd, san, object-store or none");
    if (r->profile)
        *r->config = r->profile->config;
    r->config->seed = 1;
    return 0;
}

static int set_disks(const char *key, const char *value, struct reading *r)
{
    if (!applies(key, r, true))
        return -1;
    return counted(r, key, value, DISKS_MAX, &r->config->stations);
}

static int set_parallel(const char *key, const char *value, struct reading *r)
{
    if (!applies(key, r, false))
        return -1;
    return counted(r, key, value, QM_DEVICE_STATIONS_MAX, &r->config->stations);
}

static int set_stripe(const char *key, const char *value, struct reading *r)
{
    uint64_t n;

    if (!applies(key, r, true))
        return -1;
    if (number(value, "KMGT", &n) == -1 || n < 512 || n > 1 << 30 || (n & (n - 1)) != 0)
        return wrong(r, key, value, "a power of two from 512 to 1G");
    r->config->stripe = n;
    return 0;
}

static int set_span(const char *key, const char *value, struct reading *r)
{
    uint64_t n;

    if (!applies(key, r, true))
        return -1;
    if (number(value, "KMGT", &n) == -1 || n < 1 << 20 || n > SIZE_MAX_)
        return wrong(r, key, value,
                     "a size in bytes, or with K, M, G or T, of 1M or more");
    r->config->disk.span = n;
    return 0;
}

static int set_queue(const char *key, const char *value, struct reading *r)
{
    const bool sstf = strcmp(value, "sstf") == 0;

    if (!applies(key, r, true))
        return -1;
    if (!sstf && strcmp(value, "fcfs") != 0)
        return wrong(r, key, value, "sstf or fcfs");
    r->config->order = sstf ? QM_DEVICE_SSTF : QM_DEVICE_FCFS;
    return 0;
}

static int set_demand_first(const char *key, const char *value, struct reading *r)
{
    const bool yes = strcmp(value, "true") == 0;

    if (!yes && strcmp(value, "false") != 0)
        return wrong(r, key, value, "true or false");
    r->config->demand_first = yes;
    return 0;
}

static int set_scale(const char *key, const char *value, struct reading *r)
{
    double *scale = &r->config->scale;
    char *end;

    if (strspn(value, "0123456789.") == strlen(value)) {
        *scale = strtod(value, &end);
        if (*value != '\0' && *end == '\0' && *scale >= SCALE_MIN &&
            *scale <= SCALE_MAX)
            return 0;
    }
    return wrong(r, key, value, "a factor from 0.001 to 1000");
}

static int set_seed(const char *key, const char *value, struct reading *r)
{
    if (number(value, "", &r->config->seed) == -1)
        return wrong(r, key, value, "a number");
    return 0;
}

/* The device first: the others override what it says. */
static const struct {
    const char *key;
    parser *parse;
} keys[QM_DEVICE_SETTINGS] = {
    {"device", set_device},
    {"device-disks", set_disks},
    {"device-stripe", set_stripe},
    {"device-queue", set_queue},
    {"device-span", set_span},
    {"device-parallel", set_parallel},
    {"device-demand-first", set_demand_first},
    {"device-scale", set_scale},
    {"device-seed", set_seed},
};

int qm_device_settings_set(struct qm_device_settings *settings, const char *key,
                           const char *value)
{
    for (size_t i = 0; i < QM_DEVICE_SETTINGS; i++) {
        if (strcmp(keys[i].key, key) == 0) {
            settings->values[i] = value;
            return 0;
        }
    }
    return 1;
}

int qm_device_settings_complete(const struct qm_device_settings *settings,
                                struct qm_device_config *config, bool *none, char *err,
                                size_t len)
{
    struct reading reading = {.config = config, .err = err, .len = len};

    if (!settings->values[0]) {
        snprintf(err, len,
                 "which device? Say device=disk, ssd, san, object-store or none");
        return -1;
    }
    for (size_t i = 0; i < QM_DEVICE_SETTINGS; i++)
        if (settings->values[i] &&
            keys[i].parse(keys[i].key, settings->values[i], &reading) == -1)
            return -1;
    *none = reading.none;
    return 0;
}

const char *qm_device_settings_name(const struct qm_device_settings *settings)
{
    return settings->values[0];
}
