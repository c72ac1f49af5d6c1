/* SPDX-License-Identifier: BSD-3-Clause */
/* qmlsm.h - keeps RocksDB's block cache warm through flushes and compactions.
 *
 * A flush or compaction writes new table files, and the blocks of the old ones that
 * were hot in the block cache die with them.  This library reads the blocks of a new
 * file that will be asked for into the cache before the file becomes visible, and
 * removes the blocks of files that are gone.  See qmlsm(3); C++ programs use qmlsm.hpp.
 *
 * How reads are seen.  qm_lsm_attach() puts a cache of its own in front of the block
 * cache of the options.  It sees each look-up: the file, and by its offset the block,
 * whose keys are known since the file was written.  The program's reads need
 * no change.  Reads that the memtable answers are not seen; a program that calls
 * qm_lsm_read() for each read reports these, too, and from then on only its calls
 * count.
 *
 * Nothing here throws into RocksDB, prints or exits.  Contents of the database, its
 * files and the answers to reads are the same with and without: only the cache differs.
 * After a failure of its own the library does nothing for the file at hand.
 *
 * Threads: all functions but qm_lsm_detach() may be called by any number of threads. */
#ifndef QM_LSM_H
#define QM_LSM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QM_LSM_PUBLIC __attribute__((visibility("default")))
#define QM_LSM_LEVELS 8

enum qm_lsm_mode {
    QM_LSM_ADAPTIVE,  /* what pays, by level and heat, as learned: the default */
    QM_LSM_OFF,       /* nothing; look-ups are counted */
    QM_LSM_ERASE,     /* only remove the blocks of files that are gone */
    QM_LSM_FLUSH,     /* warm all blocks of flushed files */
    QM_LSM_SELECTIVE, /* warm the blocks of hot key ranges */
    QM_LSM_ALL,       /* warm all blocks of new files */
    QM_LSM_LEAPER     /* warm blocks of key ranges that a trained model predicts */
};

struct qm_lsm_config {
    enum qm_lsm_mode mode;
    unsigned interval_ms; /* of the counters; 1000.  0: only qm_lsm_tick() ends one */
    double sample;        /* P, 0 < P <= 1: share of reads that are counted; 1 */
    uint32_t ranges;      /* most key ranges of a family; 0: one for 2 KiB of cache */
    uint64_t blocks;      /* most blocks of a family that are tracked; 1 Mi */
    double share;         /* of the cache that one file may fill; .25 */
    uint64_t warm_bytes;  /* and bytes; 256 MiB */
    unsigned warm_ms;     /* and time; 1000 */
    unsigned stall_ms;    /* time while RocksDB slows or stops writes; 20 */
    const char *model;    /* of QM_LSM_LEAPER: a file of quickmine lsm train's; NULL */
    const char *dump;     /* a new file for quickmine lsm train to read; NULL: none */
    uint64_t dump_bytes;  /* at most; 256 MiB */
};

struct qm_lsm_stats {
    uint64_t hits, misses; /* look-ups of blocks of files written since attach */
    uint64_t files;        /* that were written */
    uint64_t blocks,
        warmed;        /* their data blocks; those that were read into the cache */
    uint64_t used;     /* warmed blocks that were looked up before they left */
    uint64_t late;     /* blocks not warmed that were looked up */
    uint64_t erased;   /* blocks of files that are gone */
    uint64_t cold;     /* cold blocks of a compaction's inputs that left early */
    uint64_t cut;      /* files whose warming a bound ended */
    uint64_t failures; /* files that could not be read, or no memory */
    uint64_t warm_us, warm_us_max; /* time that warming took; longest of a file */
    uint64_t reads, writes;        /* that the collector counted */
    uint32_t ranges, spacing;      /* key ranges; keys between their fences */
    uint64_t memory;               /* bytes of the collector */
    double price, window;          /* see qmlsm(3) */
    uint64_t level_blocks[QM_LSM_LEVELS], level_warmed[QM_LSM_LEVELS];
};

/* The defaults above. */
QM_LSM_PUBLIC void qm_lsm_config_init(struct qm_lsm_config *config);

/* The verdict of attach on options. */
enum qm_lsm_verdict { QM_LSM_WORKS, QM_LSM_LESS, QM_LSM_REFUSED };

typedef struct rocksdb_options_t rocksdb_options_t; /* as in rocksdb/c.h */
struct qm_lsm;

/* Changes options so that databases opened with them are kept warm.  Call it after all
 * else is set in them, before rocksdb_open().  The options must not be used for two
 * databases at a time; two databases may share one block cache.
 *
 * QM_LSM_WORKS: says is empty.  QM_LSM_LESS: it works, and says tells what it cannot
 * do. QM_LSM_REFUSED: options are unchanged, *lsm is NULL, and says tells why. */
QM_LSM_PUBLIC enum qm_lsm_verdict qm_lsm_attach(rocksdb_options_t *options,
                                                const struct qm_lsm_config *config,
                                                struct qm_lsm **lsm, char *says,
                                                size_t says_len);

/* The same for the options of a further column family of that database.  *family is its
 * number for qm_lsm_read_family(); that of qm_lsm_attach() is 0. */
QM_LSM_PUBLIC enum qm_lsm_verdict qm_lsm_add_family(struct qm_lsm *lsm,
                                                    rocksdb_options_t *options,
                                                    unsigned *family, char *says,
                                                    size_t says_len);

/* Tells that a key was read, found or not; for an iterator, where it was positioned.
 * Below a microsecond; takes no lock. */
QM_LSM_PUBLIC void qm_lsm_read(struct qm_lsm *lsm, const void *key, size_t len);
QM_LSM_PUBLIC void qm_lsm_read_family(struct qm_lsm *lsm, unsigned family,
                                      const void *key, size_t len);

/* Ends an interval now. */
QM_LSM_PUBLIC void qm_lsm_tick(struct qm_lsm *lsm);

QM_LSM_PUBLIC void qm_lsm_get_stats(struct qm_lsm *lsm, struct qm_lsm_stats *stats);

/* Stops, and frees lsm.  The database may be open and may be closed; it goes on
 * without. Waits for the warming of a file that is under way, which ends early. */
QM_LSM_PUBLIC void qm_lsm_detach(struct qm_lsm *lsm);

#ifdef __cplusplus
}
#endif

#endif
