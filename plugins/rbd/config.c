/* SPDX-License-Identifier: BSD-3-Clause */
/* config.c - reads the RBD plugin's parameters. */
#include "plugins/rbd/config.h"

#include <stdlib.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define SECONDS_MAX 86400

const char qmr_config_help[] =
    "[rbd=][POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]\n"
    "                       (required) The image; the pool is \"rbd\" by default.\n"
    "conf=FILE              Ceph's configuration (default: as Ceph's programs).\n"
    "user=NAME              Ceph's user, without \"client.\" (default admin).\n"
    "keyring=FILE           Where the user's key is.\n"
    "ceph-option=KEY=VALUE  Any option of Ceph's; may be given more than once.\n"
    "lock=exclusive|none    One server an image (default), or no lock.\n"
    "takeover=BOOL          Take the lock away from its owner (default false).\n"
    "read-only=BOOL         Serve the image read-only, without a lock (default "
    "false).\n"
    "connect-timeout=N      Seconds to wait for the cluster at start (default 30).\n"
    "slow-after=N           Seconds after which a waiting request is logged (default "
    "10,\n"
    "                       0: never).\n";

static struct qmr_config given = {.connect_timeout = 30, .slow_after = 10};
static bool lock_given;

static int out_of_memory(void)
{
    nbdkit_error("out of memory");
    return -1;
}

static int set_string(const char *key, const char *value, char **to)
{
    if (*value == '\0') {
        nbdkit_error("%s must not be empty", key);
        return -1;
    }
    free(*to);
    *to = strdup(value);
    return *to ? 0 : out_of_memory();
}

/* nbdkit changes its directory when it goes into the background. */
static int set_path(const char *key, const char *value, char **to)
{
    if (*value == '\0') {
        nbdkit_error("%s must be a file, not \"\"", key);
        return -1;
    }
    free(*to);
    *to = nbdkit_absolute_path(value);
    return *to ? 0 : -1;
}

static int set_bool(const char *key, const char *value, bool *to)
{
    int b = nbdkit_parse_bool(value);

    if (b == -1)
        return -1;
    *to = b;
    return 0;
}

static int set_seconds(const char *key, const char *value, unsigned least, unsigned *to)
{
    char *end;
    unsigned long n = strtoul(value, &end, 10);

    if (*value < '0' || *value > '9' || *end != '\0' || n < least || n > SECONDS_MAX) {
        nbdkit_error("%s must be a number of seconds from %u to %u, not \"%s\"", key,
                     least, SECONDS_MAX, value);
        return -1;
    }
    *to = (unsigned)n;
    return 0;
}

static int add_option(const char *value)
{
    const char *equals = strchr(value, '=');
    struct qmr_option *options;

    if (!equals || equals == value) {
        nbdkit_error("ceph-option must be KEY=VALUE, not \"%s\"", value);
        return -1;
    }
    options = realloc(given.options, (given.n_options + 1) * sizeof *options);
    if (!options)
        return out_of_memory();
    given.options = options;
    options[given.n_options] = (struct qmr_option){
        .key = strndup(value, (size_t)(equals - value)),
        .value = strdup(equals + 1),
    };
    given.n_options++;
    if (!options[given.n_options - 1].key || !options[given.n_options - 1].value)
        return out_of_memory();
    return 0;
}

static int set_part(const char *text, size_t length, const char *what, char **to)
{
    if (length == 0) {
        nbdkit_error("rbd: the %s must not be empty", what);
        return -1;
    }
    free(*to);
    *to = strndup(text, length);
    return *to ? 0 : out_of_memory();
}

/* [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT], as the command rbd takes it. */
static int set_image(const char *spec)
{
    const char *at = strchr(spec, '@'), *end = at ? at : spec + strlen(spec);
    const char *slash = memchr(spec, '/', (size_t)(end - spec)), *second;

    if (slash) {
        if (set_part(spec, (size_t)(slash - spec), "pool", &given.pool) == -1)
            return -1;
        spec = slash + 1;
        second = memchr(spec, '/', (size_t)(end - spec));
        if (second) {
            if (set_part(spec, (size_t)(second - spec), "namespace",
                         &given.name_space) == -1)
                return -1;
            spec = second + 1;
        }
        if (memchr(spec, '/', (size_t)(end - spec))) {
            nbdkit_error("rbd must be [POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT]; it has a "
                         "third \"/\"");
            return -1;
        }
    }
    if (set_part(spec, (size_t)(end - spec), "image's name", &given.image) == -1)
        return -1;
    return at ? set_part(at + 1, strlen(at + 1), "snapshot's name", &given.snapshot)
              : 0;
}

static int set_lock(const char *value)
{
    lock_given = true;
    if (strcmp(value, "exclusive") == 0) {
        given.lock = QMR_LOCK_EXCLUSIVE;
    } else if (strcmp(value, "none") == 0) {
        given.lock = QMR_LOCK_NONE;
    } else {
        nbdkit_error("lock must be exclusive or none, not \"%s\"", value);
        return -1;
    }
    return 0;
}

int qmr_config_set(const char *key, const char *value)
{
    if (strcmp(key, "rbd") == 0)
        return set_image(value);
    if (strcmp(key, "conf") == 0)
        return set_path(key, value, &given.conf);
    if (strcmp(key, "keyring") == 0)
        return set_path(key, value, &given.keyring);
    if (strcmp(key, "user") == 0)
        return set_string(key, value, &given.user);
    if (strcmp(key, "ceph-option") == 0)
        return add_option(value);
    if (strcmp(key, "lock") == 0)
        return set_lock(value);
    if (strcmp(key, "takeover") == 0)
        return set_bool(key, value, &given.takeover);
    if (strcmp(key, "read-only") == 0)
        return set_bool(key, value, &given.read_only);
    if (strcmp(key, "connect-timeout") == 0)
        return set_seconds(key, value, 1, &given.connect_timeout);
    if (strcmp(key, "slow-after") == 0)
        return set_seconds(key, value, 0, &given.slow_after);
    nbdkit_error(
        "unknown parameter \"%s\"; nbdkit-rbd-plugin(1) lists those that there "
        "are",
        key);
    return -1;
}

int qmr_config_complete(struct qmr_config *config)
{
    if (!given.image) {
        nbdkit_error("rbd=[POOL/[NAMESPACE/]]IMAGE[@SNAPSHOT] is needed: which image "
                     "to serve");
        return -1;
    }
    if (!given.pool && set_string("rbd", "rbd", &given.pool) == -1)
        return -1;
    if (!given.user && set_string("user", "admin", &given.user) == -1)
        return -1;
    if (strncmp(given.user, "client.", 7) == 0) {
        nbdkit_error("user must be without \"client.\": user=%s", given.user + 7);
        return -1;
    }
    if (given.snapshot)
        given.read_only = true;
    if (given.read_only && given.takeover) {
        nbdkit_error("takeover=true is for a server that writes; a snapshot or "
                     "read-only=true takes no lock");
        return -1;
    }
    if (given.read_only && lock_given && given.lock == QMR_LOCK_EXCLUSIVE) {
        nbdkit_error("lock=exclusive is for a server that writes; a snapshot or "
                     "read-only=true takes no lock");
        return -1;
    }
    if (given.takeover && given.lock == QMR_LOCK_NONE) {
        nbdkit_error("takeover=true takes a lock over: it cannot go with lock=none");
        return -1;
    }
    if (given.read_only)
        given.lock = QMR_LOCK_NONE;
    *config = given;
    given = (struct qmr_config){.image = NULL};
    return 0;
}

void qmr_config_free(struct qmr_config *config)
{
    free(config->pool);
    free(config->name_space);
    free(config->image);
    free(config->snapshot);
    free(config->conf);
    free(config->keyring);
    free(config->user);
    for (size_t i = 0; i < config->n_options; i++) {
        free(config->options[i].key);
        free(config->options[i].value);
    }
    free(config->options);
    *config = (struct qmr_config){.image = NULL};
}
