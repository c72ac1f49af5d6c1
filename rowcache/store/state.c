/* SPDX-License-Identifier: BSD-3-Clause */
/* state.c - see state.h. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "rowcache/store/state.h"

enum { SECTOR = 512, SIZE = 4096, BOOT = 40, CHECK_BITS = 16 };

/* The bytes' order is the machine's: another one does not find it as it was.  A disk
 * writes a sector as a whole. */
struct store_state_page {
    struct head {
        char magic[8];
        uint32_t clean, durability; /* of the last process */
        uint64_t version_1;         /* acknowledged, in version 1 */
        char boot[BOOT];            /* the machine's, since it was started */
        uint64_t checksum;          /* of the above; none in version 1 */
    } head;
    char zero[SECTOR - sizeof(struct head)];
    _Atomic uint64_t acknowledged; /* sealed */
};

static const char magic[8] = "QMSTSTA2", magic_1[8] = "QMSTSTA1";

/* A sequence number and check bits, in one word, so that no kill comes between. */
static uint64_t seal(uint64_t sequence)
{
    uint64_t check = XXH3_64bits(&sequence, sizeof sequence);

    return sequence << CHECK_BITS | (check & ((UINT64_C(1) << CHECK_BITS) - 1));
}

static uint64_t unseal(uint64_t sealed)
{
    return sealed >> CHECK_BITS;
}

static uint64_t checksum_of(const struct head *h)
{
    return XXH3_64bits(h, offsetof(struct head, checksum));
}

static void read_boot_id(char boot[BOOT])
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    memset(boot, 0, BOOT);
    if (fd == -1)
        return;
    if (read(fd, boot, 36) != 36)
        memset(boot, 0, BOOT);
    close(fd);
}

static int write_at(int fd, const void *bytes, size_t len)
{
    ssize_t n;

    do
        n = pwrite(fd, bytes, len, 0);
    while (n == -1 && errno == EINTR);
    return n == -1 ? errno : n == (ssize_t)len ? 0 : ENOSPC;
}

static int look(struct store_state_page *page, struct store_state_was *was)
{
    static const struct head zero;
    struct head h = page->head;
    char boot[BOOT];

    *was = (struct store_state_was){.is_new = true, .clean = true};
    if (memcmp(&h, &zero, sizeof h) == 0 && atomic_load(&page->acknowledged) == 0)
        return 0;
    if (memcmp(h.magic, magic_1, sizeof magic_1) == 0)
        atomic_store(&page->acknowledged, seal(h.version_1));
    else if (memcmp(h.magic, magic, sizeof magic) != 0 || h.checksum != checksum_of(&h))
        return EBADMSG;
    was->is_new = false;
    was->clean = h.clean;
    was->durability = (enum qmstore_durability)h.durability;
    was->acknowledged = unseal(atomic_load(&page->acknowledged));
    read_boot_id(boot);
    was->same_boot = memcmp(boot, h.boot, sizeof boot) == 0;
    return seal(was->acknowledged) == atomic_load(&page->acknowledged) ? 0 : EBADMSG;
}

int store_state_open(struct store_state *s, int dir, const char *name,
                     struct store_state_was *was)
{
    static const char zero[SIZE];
    void *map = MAP_FAILED;
    struct stat st;
    int r = 0;

    s->page = NULL;
    s->fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fd == -1)
        return errno;
    if (fstat(s->fd, &st) == -1)
        r = errno;
    else if (st.st_size < SIZE) /* written, so that a full disk shows here */
        r = write_at(s->fd, zero, sizeof zero);
    if (r == 0)
        map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (r == 0 && map == MAP_FAILED)
        r = errno;
    if (r == 0) {
        s->page = map;
        r = look(s->page, was);
    }
    if (r != 0)
        store_state_close(s);
    return r;
}

void store_state_close(struct store_state *s)
{
    if (s->page)
        munmap(s->page, SIZE);
    if (s->fd != -1)
        close(s->fd);
    *s = (struct store_state){.fd = -1};
}

int store_state_write(struct store_state *s, enum qmstore_durability durability,
                      bool clean, uint64_t acknowledged)
{
    struct head h = {.clean = clean, .durability = durability};
    int r;

    memcpy(h.magic, magic, sizeof magic);
    read_boot_id(h.boot);
    h.checksum = checksum_of(&h);
    if ((r = write_at(s->fd, &h, sizeof h)) != 0)
        return r;
    store_state_set_acknowledged(s, acknowledged);
    /* The end of the machine must not find what the last process was. */
    return msync(s->page, SIZE, MS_SYNC) == -1 ? errno : 0;
}

uint64_t store_state_acknowledged(struct store_state *s)
{
    return unseal(atomic_load_explicit(&s->page->acknowledged, memory_order_relaxed));
}

void store_state_set_acknowledged(struct store_state *s, uint64_t sequence)
{
    atomic_store(&s->page->acknowledged, seal(sequence));
}

void store_state_acknowledge(struct store_state *s, uint64_t sequence)
{
    uint64_t was = atomic_load_explicit(&s->page->acknowledged, memory_order_relaxed);

    while (unseal(was) < sequence &&
           !atomic_compare_exchange_weak(&s->page->acknowledged, &was, seal(sequence)))
        ;
}
