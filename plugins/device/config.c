/* config.c - reads the device filter's parameters.
 *
 * A profile is a set of defaults, wherever on the command line it stands; so values are
 * only kept as they come, and parsed when all are known.
 */
#include "plugins/device/config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nbdkit-filter.h>

#define DISKS_MAX 256
#define SIZE_MAX_ (UINT64_C(1) << 60)
#define SCALE_MIN 0.001
#define SCALE_MAX 1000

const char qmd_config_help[] =
    "device=NAME            (required) Whose times: disk, ssd, san, object-store; or\n"
    "                       none.\n"
    "device-disks=N         Disks, striped (disk: 1, san: 15).\n"
    "device-stripe=SIZE     Bytes in a row on one disk (64K).\n"
    "device-queue=sstf|fcfs Order in a disk's queue: shortest seek first (default), "
    "or\n"
    "                       first come, first served.\n"
    "device-span=SIZE       What a disk holds (default: its part of the device).\n"
    "device-parallel=N      Requests at the same time (ssd: 8, object-store: 64).\n"
    "device-demand-first=BOOL\n"
    "                       Background reads only when no others wait (default "
    "false).\n"
    "device-scale=F         Factor of all times (default 1).\n"
    "device-seed=N          Of what is random (default 1).\n"
    "device-file=FILE       Times count only while FILE exists.\n"
    "device-stats=FILE      Statistics, written when the server ends.\n";

/* What the command line says; beside it, the profile that it is read over. */
struct reading {
    struct qmd_config *config;
    const struct qm_device_profile *profile; /* NULL: none */
};

typedef int parser(const char *key, const char *value, struct reading *r);

static int wrong(const char *key, const char *value, const char *allowed)
{
    nbdkit_error("%s must be %s, not \"%s\"", key, allowed, value);
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

static int counted(const char *key, const char *value, uint64_t most, unsigned *n)
{
    char allowed[80];
    uint64_t v;

    if (number(value, "", &v) == 0 && v >= 1 && v <= most) {
        *n = (unsigned)v;
        return 0;
    }
    snprintf(allowed, sizeof allowed, "a number from 1 to %" PRIu64, most);
    return wrong(key, value, allowed);
}

/* Whether a key has a meaning for this device; says so if not. */
static bool applies(const char *key, const struct reading *r, bool disks)
{
    if (!r->profile || r->profile->disks == disks)
        return true; /* without a device, all are allowed */
    nbdkit_error("%s is for device=%s, not for device=%s", key,
                 disks ? "disk and device=san" : "ssd and device=object-store",
                 r->profile->name);
    return false;
}

static int set_device(const char *key, const char *value, struct reading *r)
{
    r->profile = qm_device_profile_find(value);
    r->config->none = strcmp(value, "none") == 0;
    if (!r->profile && !r->config->none)
        return wrong(key, value, "disk, ssd, san, object-store or none");
    r->config->name = value;
    if (r->profile)
        r->config->device = r->profile->config;
    r->config->device.seed = 1;
    return 0;
}

static int set_disks(const char *key, const char *value, struct reading *r)
{
    if (!applies(key, r, true))
        return -1;
    return counted(key, value, DISKS_MAX, &r->config->device.stations);
}

static int set_parallel(const char *key, const char *value, struct reading *r)
{
    if (!applies(key, r, false))
        return -1;
    return counted(key, value, QM_DEVICE_STATIONS_MAX, &r->config->device.stations);
}

static int set_stripe(const char *key, const char *value, struct reading *r)
{
    uint64_t n;

    if (!applies(key, r, true))
        return -1;
    if (number(value, "KMGT", &n) == -1 || n < 512 || n > 1 << 30 || (n & (n - 1)) != 0)
        return wrong(key, value, "a power of two from 512 to 1G");
    r->config->device.stripe = n;
    return 0;
}

static int set_span(const char *key, const char *value, struct reading *r)
{
    uint64_t n;

    if (!applies(key, r, true))
        return -1;
    if (number(value, "KMGT", &n) == -1 || n < 1 << 20 || n > SIZE_MAX_)
        return wrong(key, value,
                     "a size in bytes, or with K, M, G or T, of 1M or more");
    r->config->device.disk.span = n;
    return 0;
}

static int set_queue(const char *key, const char *value, struct reading *r)
{
    const bool sstf = strcmp(value, "sstf") == 0;

    if (!applies(key, r, true))
        return -1;
    if (!sstf && strcmp(value, "fcfs") != 0)
        return wrong(key, value, "sstf or fcfs");
    r->config->device.order = sstf ? QM_DEVICE_SSTF : QM_DEVICE_FCFS;
    return 0;
}

static int set_demand_first(const char *key, const char *value, struct reading *r)
{
    const bool yes = strcmp(value, "true") == 0;

    if (!yes && strcmp(value, "false") != 0)
        return wrong(key, value, "true or false");
    r->config->device.demand_first = yes;
    return 0;
}

static int set_scale(const char *key, const char *value, struct reading *r)
{
    double *scale = &r->config->device.scale;
    char *end;

    if (strspn(value, "0123456789.") == strlen(value)) {
        *scale = strtod(value, &end);
        if (*value != '\0' && *end == '\0' && *scale >= SCALE_MIN &&
            *scale <= SCALE_MAX)
            return 0;
    }
    return wrong(key, value, "a factor from 0.001 to 1000");
}

static int set_seed(const char *key, const char *value, struct reading *r)
{
    if (number(value, "", &r->config->device.seed) == -1)
        return wrong(key, value, "a number");
    return 0;
}

/* nbdkit changes its directory when it goes into the background. */
static int set_path(const char *key, const char *value, char **path)
{
    if (*value == '\0')
        return wrong(key, value, "a path");
    free(*path);
    *path = nbdkit_absolute_path(value);
    return *path ? 0 : -1;
}

static int set_file(const char *key, const char *value, struct reading *r)
{
    return set_path(key, value, &r->config->file);
}

static int set_stats(const char *key, const char *value, struct reading *r)
{
    return set_path(key, value, &r->config->stats);
}

static struct {
    const char *key;
    parser *parse;
    const char *value; /* NULL: not given */
} keys[] = {
    {"device", set_device, NULL}, /* first: the others override it */
    {"device-disks", set_disks, NULL},
    {"device-stripe", set_stripe, NULL},
    {"device-queue", set_queue, NULL},
    {"device-span", set_span, NULL},
    {"device-parallel", set_parallel, NULL},
    {"device-demand-first", set_demand_first, NULL},
    {"device-scale", set_scale, NULL},
    {"device-seed", set_seed, NULL},
    {"device-file", set_file, NULL},
    {"device-stats", set_stats, NULL},
};

#define KEYS (sizeof keys / sizeof keys[0])

int qmd_config_set(const char *key, const char *value)
{
    for (size_t i = 0; i < KEYS; i++) {
        if (strcmp(keys[i].key, key) == 0) {
            keys[i].value = value;
            return 0;
        }
    }
    return 1;
}

int qmd_config_complete(struct qmd_config *config)
{
    struct reading reading = {.config = config};

    if (!keys[0].value) {
        nbdkit_error("which device? Say device=disk, ssd, san, object-store or none");
        return -1;
    }
    for (size_t i = 0; i < KEYS; i++)
        if (keys[i].value && keys[i].parse(keys[i].key, keys[i].value, &reading) == -1)
            return -1;
    return 0;
}

void qmd_config_free(struct qmd_config *config)
{
    free(config->file);
    free(config->stats);
}
