/* SPDX-License-Identifier: BSD-3-Clause */
/* fuzz-store.c - a hybrid store whose files were damaged: the disk layers' records, the
 * log, the state and the format file.
 *
 * The first byte is bits: the layer (two of them: files, lmdb, bdb), that checksums of
 * records are made good after the damage, that the store is of version 1, and that it
 * is of version 2.  The rest is damage: what (1 byte), and a record   which (1), how
 * (1): bytes are overwritten, it is cut, it is another's, or it lies where none was a
 * file     where (2 bytes) and how many bytes (1), which. LMDB's and Berkeley DB's own
 * pages: store-damage.
 *
 * Promised: it opens, or says why not; a value is one that its key had, and unless
 * something was said, the newest; a record that is damaged is counted, or its partition
 * was set aside; what is written then is found, now and after another opening. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "rowcache/store/disk.h"
#include "rowcache/store/qmstore.h"
#include "tests/unit/rowcache/store/records-1.h"

enum {
    GOOD = 4,
    OLD = 8,
    OLD_2 = 16,
    COLD = 14,
    LARGE = 5,
    KEYS = 24,
    RECORDS_MOST = 64
};
enum { RECORD, LOG, STATE, FORMAT, KINDS };

static const char *const layers[] = {"files", "lmdb", "bdb"};

/* A file of a store, and a record of its disk layer. */
struct file {
    char *name, *bytes;
    size_t length;
};

struct record {
    struct disk_name name;
    unsigned char *bytes;
    size_t length;
};

static struct made {
    struct file files[400];
    size_t count;
    struct record records[RECORDS_MOST];
    size_t record_count;
} made[4][3]; /* by version, and layer */

static unsigned format; /* of the store that is damaged */

static char path[64];
static unsigned warnings;

static void warn(void *opaque, const char *message)
{
    warnings++;
}

static size_t value_of(unsigned key, unsigned version, char *value)
{
    size_t len = key >= COLD && key < COLD + LARGE ? 30000 : key * 17 % 90;

    memset(value, (int)(key * 3 + version), len);
    return len;
}

static bool is_value(unsigned key, unsigned version, const void *value, size_t len)
{
    static char want[30000];

    return len == value_of(key, version, want) && memcmp(value, want, len) == 0;
}

/* Each third key has been changed, each fifth is not there. */
static unsigned newest(unsigned key)
{
    return key % 5 == 4 ? 0 : key % 3 == 0 ? 2 : 1;
}

static int open_store(unsigned layer, struct qmstore **s)
{
    struct qmstore_config c;
    char err[400] = "";
    int r;

    qmstore_config_init(&c);
    c.path = path;
    c.disk = layers[layer];
    c.policy = "lru";
    c.memory = 1 << 20;
    c.write_buffer = 1; /* and so little is left that what is cold is on disk */
    c.disk_cache = 512 << 10;
    c.log_buffer = 256 << 10;
    c.threadless = true;
    c.warn = warn;
    r = qmstore_open(&c, s, err, sizeof err);
    promise(r == 0 || err[0]);
    return r;
}

static int remove_one(const char *name, const struct stat *st, int type,
                      struct FTW *ftw)
{
    return remove(name);
}

static void remove_store(void)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static struct made *making;

static int keep_file(const char *name, const struct stat *st, int type, struct FTW *ftw)
{
    struct file *file = &making->files[making->count++];

    promise(making->count < sizeof making->files / sizeof making->files[0]);
    *file = (struct file){.name = strdup(name)};
    if (type == FTW_D)
        return 0;
    file->length = (size_t)st->st_size;
    file->bytes = malloc(file->length + 1);
    {
        int fd = open(name, O_RDONLY);

        promise(fd != -1 &&
                read(fd, file->bytes, file->length) == (ssize_t)file->length);
        close(fd);
    }
    return 0;
}

static int keep_record(void *opaque, const struct disk_name *name, const void *bytes,
                       size_t len)
{
    struct record *r = &making->records[making->record_count++];

    promise(making->record_count < RECORDS_MOST);
    r->name = *name;
    r->bytes = malloc(len);
    memcpy(r->bytes, bytes, len);
    r->length = len;
    return 0;
}

static const struct disk_ops *open_disk(unsigned layer, struct disk **d)
{
    const struct disk_ops *ops = store_disk_find(layers[layer]);
    char name[100];
    struct disk_config c = {.dir = name,
                            .hash = format == 1 ? DISK_HASH : DISK_HASH_NAME,
                            .has_short = format == 3,
                            .cache = 512 << 10};

    snprintf(name, sizeof name, "%s/0/disk", path);
    promise(ops && ops->open(&c, d) == 0);
    return ops;
}

/* A store of version 1 or 2, without partitions. */
static void begin_old(unsigned layer)
{
    char name[100];
    FILE *f;

    snprintf(name, sizeof name, "%s/qmstore", path);
    promise(mkdir(path, 0700) == 0 && (f = fopen(name, "we")) != NULL);
    promise(fprintf(f, "qmstore %u\npartitions 1\ndisk %s\n", format, layers[layer]) >
            0);
    promise(format == 1 || fprintf(f, "hash %u\n", DISK_HASH_NAME) > 0);
    promise(fclose(f) == 0);
}

/* A store that was closed, with keys in memory and on disk. */
static void make_store(unsigned layer)
{
    static const struct disk_name first;
    static char value[30000];
    const struct disk_ops *ops;
    struct disk *d;
    struct qmstore *s;

    if (made[format][layer].count > 0)
        return;
    making = &made[format][layer];
    remove_store();
    if (format < 3)
        begin_old(layer);
    promise(open_store(layer, &s) == 0);
    for (unsigned round = 1; round <= 2; round++)
        for (unsigned key = 0; key < KEYS; key++) {
            size_t len = value_of(key, round, value);

            if (round == 1 || key % 3 == 0)
                promise(qmstore_put(s, &key, sizeof key, value, len, 0) == 0);
        }
    for (unsigned key = 0; key < KEYS; key++)
        if (newest(key) == 0)
            promise(qmstore_delete(s, &key, sizeof key) == 0);
    promise(qmstore_close(s) == 0);
    promise(nftw(path, keep_file, 16, FTW_PHYS) == 0);
    ops = open_disk(layer, &d);
    promise(ops->walk(d, &first, keep_record, NULL) == 0);
    ops->close(d);
    promise(making->record_count >= 4);
}

static struct file *file_called(unsigned layer, const char *name)
{
    struct made *m = &made[format][layer];

    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->files[i].name + strlen(path), name) == 0)
            return &m->files[i];
    promise(!"the file is there");
    return NULL;
}

static void write_file(const struct file *file)
{
    int fd = open(file->name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    promise(fd != -1 && write(fd, file->bytes, file->length) == (ssize_t)file->length);
    close(fd);
}

static void write_store(unsigned layer)
{
    remove_store();
    for (size_t i = 0; i < made[format][layer].count; i++) {
        const struct file *file = &made[format][layer].files[i];

        if (file->bytes)
            write_file(file);
        else
            promise(mkdir(file->name, 0700) == 0);
    }
}

static void seal_1(struct record *r)
{
    uint32_t key;
    uint64_t sum;

    if (r->length < HEAD_1)
        return;
    memcpy(&key, r->bytes + 24, 4);
    if ((uint64_t)key + HEAD_1 <= r->length) { /* and the value has what is left */
        uint32_t value = (uint32_t)(r->length - HEAD_1 - key);

        memcpy(r->bytes + 20, &value, 4);
    }
    sum = XXH3_64bits(r->bytes + 8, r->length - 8);
    memcpy(r->bytes, &sum, 8);
}

static void seal(struct record *r)
{
    uint64_t sum, seed = 0;

    if (store_disk_has_key(&r->name)) {
        memcpy(&seed, r->name.bytes + DISK_PLACE, r->name.len - DISK_PLACE);
        seed = le64toh(seed) | (uint64_t)r->name.len << 56;
    }
    if (version_1)
        seal_1(r);
    else if (r->length >= 4) {
        sum = htole64(XXH3_64bits_withSeed(r->bytes + 4, r->length - 4, seed));
        memcpy(r->bytes, &sum, 4);
    }
}

/* Any that the store may have. */
static void eat_name(struct food *f, struct disk_name *name)
{
    eat(f, name->bytes, DISK_HASH);
    name->len = format == 1 ? DISK_HASH : DISK_HASH_NAME;
    if (format == 3 && name->bytes[DISK_HASH - 1] % 2)
        name->len =
            (uint8_t)(DISK_PLACE + 1 + name->bytes[DISK_HASH - 2] % DISK_SHORT_KEY);
}

static void damage_record(struct food *f, unsigned layer, bool good)
{
    const struct made *m = &made[format][layer];
    const struct record *which = &m->records[eat_number(f, 1) % m->record_count];
    const struct record *other = which;
    unsigned how = (unsigned)eat_number(f, 1) % 8;
    struct record r = *which;
    size_t n = 1 + eat_number(f, 1) % 48, at;
    unsigned char bytes[30200];
    const struct disk_ops *ops;
    struct disk_record change = {.name = &r.name};
    struct disk *d;

    if (how == 1) /* it is another's */
        other = &m->records[n % m->record_count];
    if (how == 2) /* where there was none */
        eat_name(f, &r.name);
    memcpy(bytes, other->bytes, other->length);
    r.bytes = bytes;
    r.length = how == 3 ? n % (other->length + 1) : other->length;
    if ((how == 0 || how > 3) && r.length > 0) {
        at = eat_number(f, 1) % r.length;
        eat(f, bytes + at, n < r.length - at ? n : r.length - at);
    }
    if (good)
        seal(&r);
    ops = open_disk(layer, &d);
    raw = r.bytes;
    raw_len = r.length;
    promise(ops->apply(d, &change, 1) == 0);
    raw = NULL;
    ops->close(d);
}

/* Returns the kinds of what was damaged, as bits. */
static unsigned damage(struct food *f, unsigned layer, bool good)
{
    static const char *const names[] = {NULL, "/0/log", "/0/state", "/qmstore"};
    unsigned kinds = 0;

    for (unsigned n = 0; f->left > 3 && n < 6; n++) {
        unsigned kind = (unsigned)eat_number(f, 1) % 8;
        const struct file *file;
        char bytes[48];
        size_t at, len;
        int fd;

        if (kind == 0 || kind >= KINDS) {
            damage_record(f, layer, good);
            kinds |= 1u << RECORD;
            continue;
        }
        kinds |= 1u << kind;
        file = file_called(layer, names[kind]);
        at = (size_t)eat_number(f, 2) % file->length;
        len = 1 + eat_number(f, 1) % sizeof bytes;
        eat(f, bytes, len);
        fd = open(file->name, O_WRONLY);
        promise(fd != -1 && pwrite(fd, bytes, len, (off_t)at) == (ssize_t)len);
        if (len == 13) /* it is cut */
            promise(ftruncate(fd, (off_t)at) == 0);
        close(fd);
    }
    return kinds;
}

static unsigned told[KEYS];
static bool exact;

static int see(void *opaque, const void *key, size_t key_len, const void *value,
               size_t value_len, uint64_t expires)
{
    unsigned i;

    promise(key_len == sizeof i);
    memcpy(&i, key, sizeof i);
    promise(i < KEYS && told[i]++ == 0);
    promise(!exact || is_value(i, 1, value, value_len) ||
            is_value(i, 2, value, value_len));
    promise(!exact || newest(i) != 0 || warnings > 0);
    return 0;
}

static void check_damaged(struct qmstore *s)
{
    struct qmstore_stats stats;

    memset(told, 0, sizeof told);
    promise(qmstore_each(s, see, NULL) == 0);
    for (unsigned key = 0; key < KEYS; key++) {
        uint64_t was;
        void *value;
        size_t len;
        int r;

        qmstore_get_stats(s, &stats);
        was = stats.damaged;
        r = qmstore_get(s, &key, sizeof key, &value, &len, NULL);
        qmstore_get_stats(s, &stats);
        promise(r == 0 || r == ENOENT || r == EBADMSG);
        promise((r == EBADMSG) == (stats.damaged > was));
        promise((r == 0) == (told[key] == 1));
        promise(!exact || r != ENOENT || newest(key) == 0 || warnings > 0);
        if (r != 0)
            continue;
        promise(!exact || is_value(key, newest(key), value, len) ||
                (warnings > 0 &&
                 (is_value(key, 1, value, len) || is_value(key, 2, value, len))));
        free(value);
    }
}

static void check_written(struct qmstore *s, unsigned version)
{
    for (unsigned key = 0; key < KEYS; key++) {
        void *value;
        size_t len;

        if (key % 4 == 3) {
            promise(qmstore_get(s, &key, sizeof key, NULL, NULL, NULL) == ENOENT);
            continue;
        }
        promise(qmstore_get(s, &key, sizeof key, &value, &len, NULL) == 0);
        promise(is_value(key, version, value, len));
        free(value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char value[30000];
    struct food f = {data, size};
    uint8_t how = (uint8_t)eat_number(&f, 1);
    unsigned layer = how % 4 % 3, kinds;
    struct qmstore_stats stats;
    struct qmstore *s;
    int r;

    if (!path[0]) {
        snprintf(path, sizeof path, "%s/fuzz-store.XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        promise(mkdtemp(path) != NULL);
        atexit(remove_store);
    }
    format = how & OLD ? 1 : how & OLD_2 ? 2 : 3;
    version_1 = format == 1;
    make_store(layer);
    write_store(layer);
    kinds = damage(&f, layer, how & GOOD);
    version_1 = false; /* what is written now */
    exact = !(how & GOOD);
    warnings = 0;
    r = open_store(layer, &s);
    if (r != 0) {
        promise(kinds & 1u << FORMAT && (r == EINVAL || r == ENOTEMPTY));
        return 0;
    }
    check_damaged(s);
    for (unsigned key = 0; key < KEYS; key++) {
        size_t len = value_of(key, 5, value);

        if (key % 4 == 3)
            (void)qmstore_delete(s, &key, sizeof key);
        else
            promise(qmstore_put(s, &key, sizeof key, value, len, 0) == 0);
    }
    check_written(s, 5);
    promise(qmstore_close(s) == 0);
    warnings = 0;
    promise(open_store(layer, &s) == 0);
    qmstore_get_stats(s, &stats);
    promise((warnings > 0) == (stats.damaged > 0)); /* of keys that nobody has put */
    check_written(s, 5);
    promise(qmstore_close(s) == 0);
    return 0;
}
