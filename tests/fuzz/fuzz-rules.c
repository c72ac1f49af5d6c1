/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-rules.c - rules that were saved: C-Miner*'s file, and records of the rule cache.
 *
 * The first byte says what the rest is: a file as it is, a file whose seal and sizes
 * are made good first, so that what is behind them is read, a record, or a key.
 *
 * Promised: what is taken for a record or a key is one, to the last byte; what a file
 * of rules makes likely is a block of it, and none twice.
 */
#include <endian.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz.h"
#include "mining/baselines/cminer-file.h"
#include "mining/quickmine/record.h"

#define HEADER 96 /* cminer-file.h */
#define DEGREE 4

/* Makes the sizes that the header names those of the file, and seals it. */
static size_t make_good(uint8_t *file, size_t size)
{
    uint64_t sizes[3], seal, body;

    if (size < HEADER + sizeof seal)
        return size;
    memcpy(sizes, file + 56, sizeof sizes);
    sizes[0] %= 16;
    sizes[1] %= 16;
    body = size - HEADER - sizeof seal;
    if (body < sizes[0] * 8 + sizes[1] * 16)
        sizes[0] = sizes[1] = 0;
    sizes[2] = (body - sizes[0] * 8 - sizes[1] * 16) / 8;
    body = sizes[0] * 8 + sizes[1] * 16 + sizes[2] * 8;
    memcpy(file + 56, sizes, sizeof sizes);
    memcpy(file, "QMCMINER\1\0\0\0", 12);
    seal =
        htole64(XXH3_64bits_withSeed(file, HEADER, XXH3_64bits(file + HEADER, body)));
    memcpy(file + HEADER + body, &seal, sizeof seal);
    return HEADER + body + sizeof seal;
}

static void read_file(const uint8_t *data, size_t size)
{
    struct qm_cminer_rules *rules = NULL;
    struct qm_cminer_info info;
    char path[64], err[500] = "";
    int fd = memfd_create("rules", MFD_CLOEXEC), r;

    promise(fd != -1);
    promise(write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    r = qm_cminer_read(path, 0, DEGREE, &rules, &info, err, sizeof err);
    promise((r == 0) == (rules != NULL));
    promise(r == 0 || *err);
    if (r == 0) {
        for (uint64_t i = 0; i < info.blocks && i < 16; i++)
            for (uint64_t k = 0; k < info.blocks && k < 16; k++) {
                uint64_t last[2], likely[DEGREE];
                bool found;
                unsigned n;

                memcpy(&last[0], data + HEADER + 8 * i, 8);
                memcpy(&last[1], data + HEADER + 8 * k, 8);
                n = qm_cminer_rules_lookup(rules, last, 2, likely, DEGREE, &found);
                promise(n <= DEGREE && (found || n == 0));
                for (unsigned x = 0; x < n; x++)
                    for (unsigned y = 0; y < x; y++)
                        promise(likely[x] != likely[y]);
            }
        qm_cminer_rules_free(rules);
    }
    close(fd);
}

static void read_record(const uint8_t *data, size_t size)
{
    struct qm_suffixes list = {0};
    uint64_t top[DEGREE];
    unsigned n = qm_record_top(data, size, top, DEGREE);
    int r = qm_record_decode(data, size, &list);

    promise(n <= DEGREE);
    promise(r == 0 || r == EINVAL || r == ENOMEM);
    promise(r == 0 || list.n == 0);
    if (r == 0) {
        unsigned char *again = malloc(qm_record_bound(list.n));
        struct qm_suffixes copy = {0};
        size_t bytes;

        promise(again && list.n == qm_record_count(data, size));
        promise(n == (list.n < DEGREE ? list.n : DEGREE));
        for (unsigned i = 0; i < n; i++)
            promise(top[i] == list.v[i].block);
        bytes = qm_record_encode(&list, again);
        promise(bytes <= size && qm_record_decode(again, bytes, &copy) == 0);
        promise(copy.n == list.n);
        for (size_t i = 0; i < list.n; i++)
            promise(copy.v[i].block == list.v[i].block &&
                    copy.v[i].support == list.v[i].support &&
                    copy.v[i].grace == list.v[i].grace);
        free(again);
        free(copy.v);
    }
    free(list.v);
}

static void read_key(const uint8_t *data, size_t size)
{
    unsigned char key[QM_KEY_MAX];
    uint64_t a, b;

    if (qm_key_decode(data, size, &a, &b) == 0)
        promise(qm_key_encode(a, b, key) == size && memcmp(key, data, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;

    if (size == 0)
        return 0;
    copy = malloc(size);
    promise(copy);
    memcpy(copy, data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        read_file(copy, size - 1);
        break;
    case 1:
        read_file(copy, make_good(copy, size - 1));
        break;
    case 2:
        read_record(copy, size - 1);
        break;
    case 3:
        read_key(copy, size - 1);
        break;
    }
    free(copy);
    return 0;
}
