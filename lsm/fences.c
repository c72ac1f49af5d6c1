/* SPDX-License-Identifier: BSD-3-Clause */
/* fences.c - see fences.h. */
#include "lsm/fences.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int keys_add(struct keys *keys, const void *key, size_t len)
{
    uint32_t used = keys->n > 0 ? keys->at[keys->n] : 0;

    if (len > UINT32_MAX / 2 - used)
        return ENOMEM;
    if (keys->n + 2 > keys->room) {
        uint32_t room = keys->room ? keys->room * 2 : 64;
        uint32_t *at = realloc(keys->at, room * sizeof *at);
        if (!at)
            return ENOMEM;
        keys->at = at;
        keys->room = room;
        at[keys->n] = used;
    }
    if (used + len > keys->bytes_room) {
        size_t room = (used + len) * 2 + 64;
        uint8_t *bytes = realloc(keys->bytes, room);
        if (!bytes)
            return ENOMEM;
        keys->bytes = bytes;
        keys->bytes_room = room;
    }
    if (len > 0)
        memcpy(keys->bytes + used, key, len);
    keys->at[++keys->n] = used + len;
    return 0;
}

void keys_clear(struct keys *keys)
{
    keys->n = 0;
    if (keys->at)
        keys->at[0] = 0;
}

void keys_free(struct keys *keys)
{
    free(keys->at);
    free(keys->bytes);
    memset(keys, 0, sizeof *keys);
}

int key_compare(const void *a, size_t a_len, const void *b, size_t b_len)
{
    size_t len = a_len < b_len ? a_len : b_len;
    int r = len > 0 ? memcmp(a, b, len) : 0;

    return r != 0 ? r : (a_len > b_len) - (a_len < b_len);
}

/* Eight bytes from `from` on as a number, zeros behind the end. */
static uint64_t head(const uint8_t *key, size_t len, size_t from)
{
    uint64_t word = 0;

    if (len > from)
        memcpy(&word, key + from, len - from < 8 ? len - from : 8);
    return be64toh(word);
}

struct fences *fences_build(struct keys *keys)
{
    struct fences *f = calloc(1, sizeof *f);

    if (!f)
        return NULL;
    f->n = keys->n;
    f->heads = malloc((f->n + 1) * sizeof *f->heads);
    if (!f->heads) {
        free(f);
        return NULL;
    }
    if (f->n > 0) { /* sorted: what first and last share, all share */
        size_t a_len, b_len;
        const uint8_t *a = keys_get(keys, 0, &a_len);
        const uint8_t *b = keys_get(keys, f->n - 1, &b_len);
        while (f->common < a_len && f->common < b_len && a[f->common] == b[f->common])
            f->common++;
    }
    f->keys = *keys;
    memset(keys, 0, sizeof *keys);
    for (uint32_t i = 0; i < f->n; i++) {
        size_t len;
        const uint8_t *key = keys_get(&f->keys, i, &len);
        f->heads[i] = head(key, len, f->common);
    }
    return f;
}

void fences_free(struct fences *fences)
{
    if (!fences)
        return;
    keys_free(&fences->keys);
    free(fences->heads);
    free(fences);
}

static int fence_above(const struct fences *f, uint32_t i, const void *key, size_t len)
{
    size_t fence_len;
    const uint8_t *fence = keys_get(&f->keys, i, &fence_len);

    return key_compare(fence, fence_len, key, len) > 0;
}

uint32_t fences_find(const struct fences *f, const void *key, size_t len)
{
    const uint64_t *base = f->heads;
    uint32_t n = f->n, i;
    uint64_t word;

    if (n == 0)
        return 0;
    if (f->common > 0) {
        size_t shared = len < f->common ? len : f->common;
        int r = memcmp(key, f->keys.bytes, shared);
        if (r != 0)
            return r < 0 ? 0 : n;
        if (len < f->common)
            return 0;
    }
    word = head(key, len, f->common);
    while (n > 1) { /* without branches that the processor cannot guess */
        uint32_t half = n / 2;
        base += base[half] <= word ? half : 0;
        n -= half;
    }
    i = (uint32_t)(base - f->heads) + (*base <= word);
    /* i: heads below it are at most word.  Equal ones need the whole key. */
    while (i > 0 && f->heads[i - 1] == word && fence_above(f, i - 1, key, len))
        i--;
    return i;
}

uint32_t fences_find_from(const struct fences *f, uint32_t from, const void *key,
                          size_t len)
{
    for (int i = 0; i < 8; i++) {
        if (from >= f->n || fence_above(f, from, key, len))
            return from;
        from++;
    }
    return fences_find(f, key, len);
}
