/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-pairs.c - the file that policy ppm saves its rules in.
 *
 * The first byte says what the rest is: a file as it is, or a file whose header, sizes
 * and seal are made good first, so that what is behind them is read.
 *
 * Promised: a file is used whole or not at all, and what is in the table then is a pair
 * that a table can have.
 */
#include <endian.h>
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "fuzz.h"
#include "mining/markov/table-file.h"

#define HEADER 64 /* table-file.h */
#define KEY    16
#define PAIR   8
#define LINES  64
#define MEMORY ((LINES + 1) * 64)

/* Makes the header one of a file of that size, and seals it. */
static size_t make_good(uint8_t *file, size_t size, uint64_t lines)
{
    uint64_t counts[3] = {htole64(lines)}, keys, body, seal;
    uint32_t version = htole32(1), name;

    if (size < HEADER + sizeof seal)
        return size;
    body = size - HEADER - sizeof seal;
    memcpy(&keys, file + 32, sizeof keys);
    name = file[12] % 8;
    if (name > body)
        name = 0;
    keys = le64toh(keys) % ((body - name) / KEY + 1);
    counts[1] = htole64(keys);
    counts[2] = htole64((body - name - keys * KEY) / PAIR);
    body = name + keys * KEY + le64toh(counts[2]) * PAIR;
    name = htole32(name);
    memcpy(file, QM_MARKOV_MAGIC, QM_MARKOV_MAGIC_SIZE);
    memcpy(file + 8, &version, sizeof version);
    memcpy(file + 12, &name, sizeof name);
    memcpy(file + 24, counts, sizeof counts);
    seal =
        htole64(XXH3_64bits_withSeed(file, HEADER, XXH3_64bits(file + HEADER, body)));
    memcpy(file + HEADER + body, &seal, sizeof seal);
    return HEADER + body + sizeof seal;
}

static int add(void *opaque, uint64_t line, unsigned tag,
               const struct qm_markov_pair *found, unsigned n)
{
    uint64_t *sum = opaque;

    for (unsigned i = 0; i < n; i++) {
        promise(found[i].count >= 1 && found[i].count <= QM_MARKOV_COUNT_MAX);
        promise(found[i].block < QM_MARKOV_BLOCKS);
    }
    *sum += n;
    return 0;
}

static uint64_t pairs_in(const struct qm_markov *pairs)
{
    uint64_t sum = 0;

    promise(qm_markov_each(pairs, 1, add, &sum) == 0);
    return sum;
}

static void read_file(const uint8_t *data, size_t size, uint64_t memory)
{
    struct qm_markov *pairs = qm_markov_new(memory);
    char why[300];
    int fd = memfd_create("pairs", MFD_CLOEXEC), r;

    promise(pairs && fd != -1);
    promise(write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    r = qm_markov_read(pairs, fd, NULL, 0, why, sizeof why);
    promise(r == 0 || r == EINVAL || r == ENOMEM);
    promise((r == EINVAL) == (why[0] != '\0'));
    if (r != 0)
        promise(pairs_in(pairs) == 0);
    qm_markov_free(pairs);
}

/* A file of a table of that size. */
static void read_good(uint8_t *data, size_t size)
{
    struct qm_markov *pairs = qm_markov_new(MEMORY);
    uint64_t there = 0;
    char why[300];
    int fd = memfd_create("pairs", MFD_CLOEXEC), r;

    promise(pairs && qm_markov_lines(pairs) == LINES && fd != -1);
    size = make_good(data, size, LINES);
    promise(write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    r = qm_markov_read(pairs, fd, NULL, 0, why, sizeof why);
    promise(r == 0 || r == EINVAL);
    if (r == 0) {
        memcpy(&there, data + 40, sizeof there);
        promise(pairs_in(pairs) <= le64toh(there));
        promise(le64toh(there) == 0 || pairs_in(pairs) > 0);
    } else {
        promise(why[0] && pairs_in(pairs) == 0);
    }
    qm_markov_free(pairs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;

    if (size == 0)
        return 0;
    copy = malloc(size);
    promise(copy);
    memcpy(copy, data + 1, size - 1);
    switch (data[0] % 3) {
    case 0:
        read_file(copy, size - 1, MEMORY);
        break;
    case 1:
        read_good(copy, size - 1);
        break;
    case 2: /* a table that adopts another's */
        read_file(copy, make_good(copy, size - 1, LINES), 4 * MEMORY);
        break;
    }
    free(copy);
    return 0;
}
