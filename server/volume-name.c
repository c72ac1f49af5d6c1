/* SPDX-License-Identifier: BSD-3-Clause */
/* volume-name.c - see volume-name.h.
 *
 * A name is
 *
 *   nbdkit:HASH KEY:TEXT KEY:TEXT.FILE ...
 *
 * HASH is of all that follows; there is a KEY for each parameter that says what is
 * served, sorted, so that the order of parameters does not matter but among those of
 * one key; TEXT is a hash of its value, and where that names a file, of the path with
 * links resolved; FILE, of a regular file, of its inode and time of birth.  What does
 * not fit is left out, and "..." says so.
 */
#include "server/volume-name.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define PREFIX   "nbdkit:"
#define SHORTEST 23 /* bytes of a name without parameters: the former ones */
#define DIGITS   48 /* bits of TEXT */

struct parameter {
    char *key;
    uint64_t text;
    uint64_t file; /* 0: names no regular file */
    bool is_false; /* as nbdkit says it */
    bool exists;
    struct stat st;
    struct parameter *next;
};

static struct parameter *parameters, **last = &parameters;
static uint64_t former;
static bool complete = true; /* no memory was missing */
static char served[PATH_MAX];
static uint64_t identity[2]; /* of that file; 0: there is none */

/* Parameters that say how, not what, by the layer that takes them.  A star stands for
 * whatever follows.  Of the others only text counts. */
static const struct manner {
    const char *kind, *layer;
    bool text;
    const char *keys[14];
} manners[] = {
    {"-filter.so", "stats", false, {"statsfile", "statsappend"}},
    {"-filter.so", "log", false, {"logfile", "logappend", "logscript"}},
    {"-filter.so", "delay", false, {"rdelay", "wdelay", "delay-*"}},
    {"-filter.so", "error", false, {"error", "error-*"}},
    {"-filter.so",
     "rate",
     false,
     {"rate", "rate-*", "connection-rate", "connection-rate-*", "burstiness"}},
    {"-filter.so", "retry", false, {"retries", "retry-*"}},
    {"-filter.so", "retry-request", false, {"retry-request-*"}},
    {"-filter.so", "cache", false, {"cache", "cache-*"}},
    {"-filter.so", "cow", false, {"cow-*"}},
    {"-filter.so", "fua", false, {"fuamode"}},
    {"-filter.so", "nozero", false, {"zeromode", "fastzeromode"}},
    {"-filter.so", "nocache", false, {"cachemode"}},
    {"-filter.so", "noparallel", false, {"serialize"}},
    {"-filter.so", "multi-conn", false, {"multi-conn-*"}},
    {"-filter.so", "exitwhen", false, {"exit-when-*"}},
    {"-filter.so", "ip", false, {"allow", "deny"}},
    {"-filter.so", "limit", false, {"limit"}},
    {"-filter.so", "pause", false, {"pause-control"}},
    {"-filter.so", "tls-fallback", false, {"tlsreadme"}},
    {"-filter.so", "blocksize", false, {"minblock", "maxblock", "maxdata", "maxlen"}},
    {"-filter.so", "blocksize-policy", false, {"blocksize-*"}},
    {"-filter.so", "device", false, {"device", "device-*"}},
    {"-plugin.so", "file", false, {"cache", "fadvise"}},
    {"-plugin.so", "nbd", false, {"connections", "retry", "shared", "tls", "tls-*"}},
    {"-plugin.so",
     "curl",
     false,
     {"cainfo", "capath", "connections", "cookie*", "followlocation", "http-version",
      "ipresolve", "password", "proxy-password", "sslverify", "ssl-*", "tcp-*",
      "timeout", "tls13-ciphers"}},
    {"-plugin.so",
     "ssh",
     false,
     {"compression", "config", "identity", "known-hosts", "password", "timeout",
      "verify-remote-host"}},
    {"-plugin.so", "rbd", false, {"takeover", "connect-timeout", "slow-after"}},
    /* The files of these are programs and settings, and no data. */
    {"-plugin.so", "rbd", true, {"*"}},
    {"-plugin.so", "python", true, {"script"}},
    {"-plugin.so", "perl", true, {"script"}},
    {"-plugin.so", "ruby", true, {"script"}},
    {"-plugin.so", "lua", true, {"script"}},
    {"-plugin.so", "tcl", true, {"script"}},
    {"-plugin.so", "sh", true, {"script"}},
};

static bool fits(const char *pattern, const char *key)
{
    const char *star = strchr(pattern, '*');

    return star ? strncmp(pattern, key, (size_t)(star - pattern)) == 0
                : strcmp(pattern, key) == 0;
}

/* The first manner of that kind that a key is; NULL: it says what is served. */
static const struct manner *manner_of(const char *key)
{
    for (size_t i = 0; i < sizeof manners / sizeof manners[0]; i++)
        for (size_t k = 0; k < 14 && manners[i].keys[k]; k++)
            if (fits(manners[i].keys[k], key) &&
                qms_volume_has_layer(manners[i].kind, manners[i].layer))
                return &manners[i];
    return NULL;
}

/* ---- What parameters are */

static uint64_t hash(uint64_t seed, const void *data, size_t len)
{
    return XXH3_64bits_withSeed(data, len, seed);
}

static uint64_t hash_file(uint64_t seed, const struct statx *st)
{
    seed = hash(seed, &st->stx_ino, sizeof st->stx_ino);
    /* The next file of this name often gets the same inode. */
    if (st->stx_mask & STATX_BTIME) {
        seed = hash(seed, &st->stx_btime.tv_sec, sizeof st->stx_btime.tv_sec);
        seed = hash(seed, &st->stx_btime.tv_nsec, sizeof st->stx_btime.tv_nsec);
    }
    return seed;
}

/* As versions before did. */
static void add_former(const char *key, const char *value, const char *path,
                       const struct statx *st)
{
    if (strcmp(key, "takeover") == 0 || strcmp(key, "connect-timeout") == 0 ||
        strcmp(key, "slow-after") == 0)
        return;
    former = hash(former, key, strlen(key) + 1);
    former = hash(former, value, strlen(value) + 1);
    if (!path)
        return;
    former = hash(former, path, strlen(path) + 1);
    if (S_ISREG(st->stx_mode))
        former = hash_file(former, st);
}

static bool is_false(const char *value)
{
    static const char *const words[] = {"0", "f", "false", "n", "no", "off"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

void qms_volume_parameter(const char *key, const char *value)
{
    struct parameter *p = calloc(1, sizeof *p);
    char path[PATH_MAX];
    struct statx st;
    bool exists =
        realpath(value, path) && statx(AT_FDCWD, path, AT_STATX_FORCE_SYNC,
                                       STATX_BASIC_STATS | STATX_BTIME, &st) == 0;

    add_former(key, value, exists ? path : NULL, &st);
    if (exists && S_ISREG(st.stx_mode) && strcmp(key, "file") == 0) {
        strcpy(served, path);
        identity[0] = hash_file(0, &st) | 1;
        identity[1] = hash_file(~identity[0], &st);
    }
    if (!p || !(p->key = strdup(key))) {
        complete = false;
        free(p);
        return;
    }
    p->text = hash(0, value, strlen(value) + 1);
    p->is_false = is_false(value);
    p->exists = exists && stat(path, &p->st) == 0;
    if (exists && S_ISREG(st.stx_mode)) {
        p->file = hash_file(hash(0, path, strlen(path) + 1), &st) & UINT32_MAX;
        p->file += p->file == 0;
    } else if (exists) {
        p->text = hash(p->text, path, strlen(path) + 1);
    }
    *last = p;
    last = &p->next;
}

const char *qms_volume_by_export(void)
{
    static const struct {
        const char *plugin, *key;
    } all[] = {{"file", "dir"},
               {"file", "directory"},
               {"ondemand", "dir"},
               {"nbd", "dynamic-export"}};

    for (const struct parameter *p = parameters; p; p = p->next)
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (strcmp(p->key, all[i].key) == 0 &&
                !(p->is_false && strcmp(p->key, "dynamic-export") == 0) &&
                qms_volume_has_layer("-plugin.so", all[i].plugin))
                return all[i].key;
    return NULL;
}

bool qms_volume_has(const struct stat *st,
                    bool (*is)(const struct stat *a, const struct stat *b))
{
    for (const struct parameter *p = parameters; p; p = p->next)
        if (p->exists && is(st, &p->st))
            return true;
    return false;
}

void qms_volume_identity(uint8_t id[16])
{
    memcpy(id, identity, sizeof identity);
}

const char *qms_volume_file(void)
{
    return served;
}

void qms_volume_free(void)
{
    while (parameters) {
        struct parameter *p = parameters;

        parameters = p->next;
        free(p->key);
        free(p);
    }
    last = &parameters;
}

/* ---- Names */

void qms_volume_former(char name[QMS_VOLUME_FORMER])
{
    snprintf(name, QMS_VOLUME_FORMER, PREFIX "%016" PRIx64, former);
}

/* After `from` by key, and among those of one key by order; NULL: the end. */
static const struct parameter *after(const struct parameter *from)
{
    const struct parameter *best = NULL;
    bool passed = false;

    for (const struct parameter *p = parameters; p; p = p->next) {
        int order = from ? strcmp(p->key, from->key) : 1;

        if (p == from)
            passed = true;
        else if ((order > 0 || (order == 0 && passed)) &&
                 (!best || strcmp(p->key, best->key) < 0))
            best = p;
    }
    return best;
}

/* A key as a name can have it. */
static void write_key(char text[40], const char *key)
{
    snprintf(text, 40, "%.39s", key);
    for (char *c = text; *c; c++)
        if (*c == ' ' || *c == ':' || *c == '.')
            *c = '_';
}

void qms_volume_name(char name[QMS_VOLUME_NAME])
{
    enum { MOST = QMS_VOLUME_NAME - 1 - SHORTEST - sizeof " ..." };
    char list[MOST + 1] = "", item[80], key[40];
    bool cut = !complete;
    uint64_t all = 0;

    for (const struct parameter *p = after(NULL); p; p = after(p)) {
        const struct manner *manner = manner_of(p->key);
        uint64_t file = manner ? 0 : p->file;
        int n;

        if (manner && !manner->text)
            continue;
        write_key(key, p->key);
        n = snprintf(item, sizeof item, " %s:%012" PRIx64, key,
                     p->text & ((UINT64_C(1) << DIGITS) - 1));
        if (file)
            n += snprintf(item + n, sizeof item - (size_t)n, ".%08" PRIx64, file);
        all = hash(all, p->key, strlen(p->key) + 1);
        all = hash(all, &p->text, sizeof p->text);
        all = hash(all, &file, sizeof file);
        cut = cut || strlen(list) + (size_t)n > MOST;
        if (!cut)
            strcat(list, item);
    }
    snprintf(name, QMS_VOLUME_NAME, PREFIX "%016" PRIx64 "%s%s", all, list,
             cut ? " ..." : "");
}

struct item {
    char key[40];
    char text[16], file[16];
};

/* The next item of a list at *at; false: there is none, or what is cut. */
static bool next_item(const char **at, struct item *item)
{
    int n = 0;

    memset(item, 0, sizeof *item);
    if (sscanf(*at, " %39[^: ]:%15[0-9a-f]%n", item->key, item->text, &n) != 2 ||
        n == 0)
        return false;
    *at += n;
    if (sscanf(*at, ".%15[0-9a-f]%n", item->file, &n) == 1)
        *at += n;
    return true;
}

static bool is_cut(const char *name)
{
    return strstr(name, " ...") != NULL;
}

/* Compares the items of two lists that are sorted.  Returns whether they are alike. */
static bool compare(const char *had, const char *has, char *why, size_t len)
{
    struct item a, b;

    for (;;) {
        bool in_a = next_item(&had, &a), in_b = next_item(&has, &b);
        int order = strcmp(a.key, b.key);

        if (!in_a && !in_b)
            return true;
        if (!in_a || (in_b && order > 0))
            snprintf(why, len, "the parameter %s is given now", b.key);
        else if (!in_b || order < 0)
            snprintf(why, len, "the parameter %s is not given any more", a.key);
        else if (strcmp(a.text, b.text) != 0)
            snprintf(why, len, "the parameter %s has another value", a.key);
        else if (a.file[0] != '\0' && strcmp(a.file, b.file) != 0)
            snprintf(why, len, "the parameter %s names %s", a.key,
                     b.file[0] ? "another file, or the file was made anew"
                               : "no file any more");
        else
            continue;
        return false;
    }
}

bool qms_volume_same(const char *had, const char *has, char *why, size_t len)
{
    char old[QMS_VOLUME_FORMER];

    snprintf(why, len, "%s", "");
    if (strcmp(had, has) == 0)
        return true;
    if (strncmp(had, PREFIX, strlen(PREFIX)) != 0 ||
        strncmp(has, PREFIX, strlen(PREFIX)) != 0)
        return false;
    qms_volume_former(old);
    if (strcmp(had, old) == 0)
        return true;
    if (strlen(had) <= SHORTEST) {
        snprintf(why, len,
                 "a parameter of the layers below, or the file that it names, is "
                 "another one (it was filled by a version that did not record which)");
        return false;
    }
    if (!compare(had + SHORTEST, has + SHORTEST, why, len))
        return false;
    if (!is_cut(had) && !is_cut(has))
        return true;
    snprintf(why, len,
             "a parameter of the layers below, of which there are many, has "
             "another value");
    return false;
}
