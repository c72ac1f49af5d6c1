/* SPDX-License-Identifier: BSD-3-Clause */
/* disk-lmdb-check.c - whether an LMDB file is whole, page by page.
 *
 * LMDB trusts its file: a length or a page number that is wrong ends the process, or
 * gives out what was freed.  So the file is read before LMDB opens it: both trees (that
 * of the records, and that of the free pages) must be as LMDB 0.9 writes them, with as
 * many pages and entries as the meta page says, no page in two places, and all keys in
 * order.  What is in the records has checksums of its own. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rowcache/store/disk-lmdb.h"

enum { BRANCH = 1, LEAF = 2, OVERFLOW = 4, META = 8 }; /* a page's flags */
enum { BIG = 1 };                                      /* a node's: on overflow pages */
enum { INTEGER_KEYS = 8 };                             /* a tree's */
enum { PAGE_HEAD = 16, NODE_HEAD = 8, DEEPEST = 32, PAGE_MOST = 65536 };

#define MAGIC 0xBEEFC0DEu

/* As in LMDB's mdb.c, on a machine with 64 bits. */
struct page_head {
    uint64_t number;
    uint16_t pad, flags;
    union {
        struct {
            uint16_t lower, upper; /* of its free room */
        };
        uint32_t pages; /* of a large value */
    };
};

struct tree {
    uint32_t page_size; /* of the free pages' tree only */
    uint16_t flags, depth;
    uint64_t branches, leaves, overflows, entries, root;
};

struct meta {
    uint32_t magic, version;
    uint64_t address, map_size;
    struct tree free, main;
    uint64_t last_page, transaction;
};

struct node {
    uint16_t low, high, flags, key_len; /* low, high: length, or page with flags */
};

struct check {
    int fd;
    uint32_t page_size;
    uint64_t pages; /* all numbers are below */
    uint8_t *used;  /* a bit a page */
    bool is_free;   /* the tree of free pages */
    unsigned hash;  /* of the other tree's keys: as in disk_config */
    bool has_short;
    struct tree seen;
    struct disk_name last;  /* the key before */
    struct disk_name least; /* the next key's, by the pages above */
    bool has_last, has_least;
};

static int read_at(const struct check *c, uint64_t page, void *bytes, size_t len)
{
    char *at = bytes;

    for (size_t done = 0; done < len;) {
        ssize_t n =
            pread(c->fd, at + done, len - done, (off_t)(page * c->page_size + done));

        if (n == -1 && errno != EINTR)
            return errno;
        if (n == 0)
            return EBADMSG;
        if (n > 0)
            done += (size_t)n;
    }
    return 0;
}

/* false: it is not there, or somewhere else, too. */
static bool take(struct check *c, uint64_t page)
{
    if (page < 2 || page >= c->pages || c->used[page / 8] & 1u << page % 8)
        return false;
    c->used[page / 8] |= (uint8_t)(1u << page % 8);
    return true;
}

static int take_overflow(struct check *c, uint64_t page, uint64_t len)
{
    struct page_head h;
    int r;

    if (page < 2 || page >= c->pages)
        return EBADMSG;
    if ((r = read_at(c, page, &h, sizeof h)) != 0)
        return r;
    if (h.number != page || h.flags != OVERFLOW ||
        h.pages != (PAGE_HEAD - 1 + len) / c->page_size + 1)
        return EBADMSG;
    for (uint64_t i = 0; i < h.pages; i++)
        if (!take(c, page + i))
            return EBADMSG;
    c->seen.overflows += h.pages;
    return 0;
}

/* A value of the tree of free pages: how many, and which, in descending order. */
static int take_free(struct check *c, const void *value, uint64_t len)
{
    const uint8_t *at = value;
    uint64_t n, page, before = UINT64_MAX;

    if (len < 8 || len % 8 != 0)
        return EBADMSG;
    memcpy(&n, at, 8);
    if (n > len / 8 - 1)
        return EBADMSG;
    for (uint64_t i = 1; i <= n; i++, before = page) {
        memcpy(&page, at + 8 * i, 8);
        if (page >= before || !take(c, page))
            return EBADMSG;
    }
    return 0;
}

static int take_free_overflow(struct check *c, uint64_t page, uint64_t len)
{
    void *bytes = malloc(PAGE_HEAD + len);
    int r = bytes ? read_at(c, page, bytes, PAGE_HEAD + len) : ENOMEM;

    if (r == 0)
        r = take_free(c, (char *)bytes + PAGE_HEAD, len);
    free(bytes);
    return r;
}

/* A key as bytes in their order; false: it is none of this tree's. */
static bool as_bytes(const struct check *c, const void *key, size_t len,
                     struct disk_name *bytes)
{
    uint64_t number;

    if (!c->is_free)
        return store_disk_is_name(c->hash, c->has_short, len) &&
               store_disk_set_name(bytes, key, len);
    if (len != sizeof number)
        return false;
    memcpy(&number, key, sizeof number);
    number = htobe64(number);
    return store_disk_set_name(bytes, &number, sizeof number);
}

/* Keys of records are told in their order. */
static bool follows(struct check *c, const void *key, size_t len)
{
    struct disk_name at;

    if (!as_bytes(c, key, len, &at) ||
        (c->has_last && store_disk_compare(&c->last, &at) >= 0) ||
        (c->has_least && store_disk_compare(&c->least, &at) > 0))
        return false;
    c->last = at;
    c->has_last = true;
    c->has_least = false;
    return true;
}

/* All keys below a node are from its own on. */
static bool begins(struct check *c, const void *key, size_t len)
{
    c->has_least = true;
    return as_bytes(c, key, len, &c->least) &&
           (!c->has_last || store_disk_compare(&c->last, &c->least) < 0);
}

static int check_leaf(struct check *c, const struct node *n, const uint8_t *data,
                      uint64_t len)
{
    uint64_t page;
    int r;

    c->seen.entries++;
    if (!follows(c, (const uint8_t *)n + NODE_HEAD, n->key_len))
        return EBADMSG;
    if (!(n->flags & BIG))
        return c->is_free ? take_free(c, data, len) : 0;
    memcpy(&page, data, 8);
    r = take_overflow(c, page, len);
    return r == 0 && c->is_free ? take_free_overflow(c, page, len) : r;
}

static int check_page(struct check *c, uint64_t number, unsigned depth);

/* bytes: the page's.  cells: its bytes that nodes have, each two of them. */
static int check_node(struct check *c, const uint8_t *bytes, uint16_t at, bool is_leaf,
                      bool is_first, unsigned depth, uint8_t *cells)
{
    const struct page_head *h = (const void *)bytes;
    uint64_t len, size, child;
    struct node n;

    if (at < h->upper || at % 2 != 0 || at + (unsigned)NODE_HEAD > c->page_size)
        return EBADMSG;
    memcpy(&n, bytes + at, sizeof n);
    len = (uint64_t)n.high << 16 | n.low;
    size = NODE_HEAD + n.key_len;
    if (is_leaf)
        size += n.flags & BIG ? 8 : len;
    size += size % 2;
    if (size > c->page_size - at || (is_leaf && (n.flags & ~BIG) != 0))
        return EBADMSG;
    for (uint64_t i = at / 2u; i < (at + size) / 2; i++)
        if (cells[i]++ != 0)
            return EBADMSG;
    if (is_leaf)
        return check_leaf(c, (const void *)(bytes + at),
                          bytes + at + NODE_HEAD + n.key_len, len);
    if (!is_first && !begins(c, bytes + at + NODE_HEAD, n.key_len)) /* it has no key */
        return EBADMSG;
    child = len | (uint64_t)n.flags << 32;
    return check_page(c, child, depth + 1);
}

static int check_nodes(struct check *c, const uint8_t *bytes, unsigned depth)
{
    const struct page_head *h = (const void *)bytes;
    bool is_leaf = h->flags == LEAF;
    unsigned nodes = (h->lower - PAGE_HEAD) / 2u, taken = 0;
    uint8_t *cells = calloc(1, c->page_size / 2);
    int r = cells ? 0 : ENOMEM;

    for (unsigned i = 0; i < nodes && r == 0; i++) {
        uint16_t at;

        memcpy(&at, bytes + PAGE_HEAD + 2 * i, 2);
        r = check_node(c, bytes, at, is_leaf, i == 0, depth, cells);
    }
    for (unsigned i = 0; r == 0 && i < c->page_size / 2; i++)
        taken += cells[i];
    if (r == 0 && taken * 2 != c->page_size - h->upper)
        r = EBADMSG;
    free(cells);
    return r;
}

static int check_page(struct check *c, uint64_t number, unsigned depth)
{
    struct page_head *h;
    uint8_t *bytes;
    int r;

    if (depth > c->seen.depth || !take(c, number))
        return EBADMSG;
    if (!(bytes = malloc(c->page_size)))
        return ENOMEM;
    h = (void *)bytes;
    r = read_at(c, number, bytes, c->page_size);
    if (r == 0 &&
        (h->number != number || h->flags != (depth == c->seen.depth ? LEAF : BRANCH) ||
         h->lower <= PAGE_HEAD || h->lower % 2 != 0 || h->lower > h->upper ||
         h->upper > c->page_size || h->upper % 2 != 0))
        r = EBADMSG;
    if (r == 0) {
        c->seen.branches += h->flags == BRANCH;
        c->seen.leaves += h->flags == LEAF;
        r = check_nodes(c, bytes, depth);
    }
    free(bytes);
    return r;
}

static int check_tree(struct check *c, const struct tree *t, bool is_free)
{
    int r = 0;

    c->is_free = is_free;
    c->has_last = c->has_least = false;
    c->seen = (struct tree){.depth = t->depth};
    if (t->flags != (is_free ? INTEGER_KEYS : 0) || t->depth > DEEPEST ||
        (t->depth == 0) != (t->root == UINT64_MAX))
        return EBADMSG;
    if (t->depth > 0)
        r = check_page(c, t->root, 1);
    if (r == 0 && (c->seen.branches != t->branches || c->seen.leaves != t->leaves ||
                   c->seen.overflows != t->overflows || c->seen.entries != t->entries))
        r = EBADMSG;
    return r;
}

/* The newer of the two meta pages. */
static int read_meta(struct check *c, struct meta *newer)
{
    struct {
        struct page_head head;
        struct meta meta;
    } m[2];

    for (unsigned i = 0; i < 2; i++) {
        int r = read_at(c, i, &m[i], sizeof m[i]);

        if (r != 0)
            return r;
        if (m[i].head.number != i || m[i].head.flags != META ||
            m[i].meta.magic != MAGIC || m[i].meta.version != m[0].meta.version ||
            m[i].meta.free.page_size != m[0].meta.free.page_size)
            return EBADMSG;
        if (i == 0) { /* the second's place depends on it */
            c->page_size = m[0].meta.free.page_size;
            if (c->page_size < 512 || c->page_size > PAGE_MOST ||
                (c->page_size & (c->page_size - 1)) != 0)
                return EBADMSG;
        }
    }
    if (m[0].meta.version != 1) /* of both: one alone is damaged */
        return ENOTSUP;
    for (unsigned i = 0; i < 2; i++) /* each transaction wrote the page of its number */
        if (m[i].meta.transaction != 0 && m[i].meta.transaction % 2 != i)
            return EBADMSG;
    *newer = m[m[1].meta.transaction > m[0].meta.transaction].meta;
    if (m[0].meta.transaction + 1 != m[1].meta.transaction &&
        m[1].meta.transaction + 1 != m[0].meta.transaction && newer->transaction != 0)
        return EBADMSG;
    return newer->last_page >= 1 && newer->last_page < LMDB_MAP_SIZE / c->page_size
               ? 0
               : EBADMSG;
}

int store_lmdb_check(const char *name, unsigned hash, bool has_short)
{
    struct check c = {.fd = open(name, O_RDONLY | O_CLOEXEC),
                      .page_size = PAGE_MOST,
                      .hash = hash,
                      .has_short = has_short};
    struct meta meta;
    struct stat st;
    int r;

    if (c.fd == -1)
        return errno == ENOENT ? 0 : errno;
    if (fstat(c.fd, &st) == -1 || st.st_size == 0) {
        r = st.st_size == 0 ? 0 : errno;
        close(c.fd);
        return r;
    }
    r = read_meta(&c, &meta);
    if (r == ENOTSUP || sizeof(void *) != 8 || __BYTE_ORDER != __LITTLE_ENDIAN) {
        close(c.fd);
        return 0; /* another format than this file knows: LMDB says what it thinks */
    }
    if (r == 0) {
        c.pages = meta.last_page + 1;
        c.used = calloc(1, c.pages / 8 + 1);
        r = c.used ? 0 : ENOMEM;
    }
    if (r == 0)
        r = check_tree(&c, &meta.main, false);
    if (r == 0)
        r = check_tree(&c, &meta.free, true);
    free(c.used);
    close(c.fd);
    return r;
}
