/* SPDX-License-Identifier: BSD-3-Clause */
/* seal.c - a checksum over the whole of a Berkeley DB file (see seal.h). */
#include "mining/quickmine/seal.h"

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "mining/quickmine/bdb.h"

static const char seal_magic[8] = "QMSEAL\n";

struct seal {
    char magic[8];
    uint64_t hash; /* XXH3 of the file with zeros for these 16 bytes; little-endian */
};

_Static_assert(sizeof(struct seal) == 16, "layout");

#define SEAL_AT (QM_BDB_PAGE - sizeof(struct seal))

/* Reads as much as there is, up to n bytes; -1: errno says why it cannot. */
static ssize_t read_at(int fd, unsigned char *buf, size_t n, off_t offset)
{
    size_t done = 0;
    while (done < n) {
        ssize_t r = pread(fd, buf + done, n - done, offset + (off_t)done);
        if (r < 0 && errno != EINTR) {
            return -1;
        }
        if (r == 0) {
            break;
        }
        done += r > 0 ? (size_t)r : 0;
    }
    return (ssize_t)done;
}

/* The hash of the file, and the seal that it has. */
static int hash_file(int fd, uint64_t *hash, struct seal *seal)
{
    unsigned char page[QM_BDB_PAGE];
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (off_t offset = 0;; offset += QM_BDB_PAGE) {
        ssize_t n = read_at(fd, page, sizeof page, offset);
        if (n < 0) {
            return errno;
        }
        if (offset == 0) {
            if (n < QM_BDB_PAGE) {
                return EINVAL;
            }
            memcpy(seal, page + SEAL_AT, sizeof *seal);
            memset(page + SEAL_AT, 0, sizeof *seal);
        }
        XXH3_64bits_update(&state, page, (size_t)n);
        if (n < QM_BDB_PAGE) {
            *hash = XXH3_64bits_digest(&state);
            return 0;
        }
    }
}

int qm_seal(int fd)
{
    struct seal seal;
    uint64_t hash;
    int r = hash_file(fd, &hash, &seal);
    if (r != 0) {
        return r;
    }
    memcpy(seal.magic, seal_magic, sizeof seal.magic);
    seal.hash = htole64(hash);
    ssize_t n = pwrite(fd, &seal, sizeof seal, SEAL_AT);
    if (n != sizeof seal) {
        return n < 0 ? errno : EIO;
    }
    return fsync(fd) == 0 ? 0 : errno;
}

int qm_seal_check(int fd)
{
    struct seal seal;
    uint64_t hash;
    int r = hash_file(fd, &hash, &seal);
    if (r == 0 && (memcmp(seal.magic, seal_magic, sizeof seal.magic) != 0 ||
                   le64toh(seal.hash) != hash)) {
        r = EINVAL;
    }
    return r;
}
