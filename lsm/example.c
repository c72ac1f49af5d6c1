/* SPDX-License-Identifier: BSD-3-Clause */
/* example.c - the same as example.cc in C. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rocksdb/c.h>

#include <qmlsm.h>

static int failed(const char *what)
{
    fprintf(stderr, "example: %s\n", what);
    return 1;
}

int main(int argc, char **argv)
{
    rocksdb_block_based_table_options_t *table = rocksdb_block_based_options_create();
    rocksdb_cache_t *cache = rocksdb_cache_create_lru(64 << 20);
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    struct qm_lsm_stats stats;
    struct qm_lsm *lsm;
    char says[200], *err = NULL;
    rocksdb_t *db;

    if (argc != 2) {
        fprintf(stderr, "usage: example DIRECTORY\n");
        return 2;
    }
    rocksdb_block_based_options_set_block_cache(table, cache);
    rocksdb_options_set_block_based_table_factory(options, table);
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_write_buffer_size(options, 1 << 20);

    if (qm_lsm_attach(options, NULL, &lsm, says, sizeof says) != QM_LSM_WORKS)
        fprintf(stderr, "example: %s\n", says);

    db = rocksdb_open(options, argv[1], &err);
    if (err)
        return failed(err);
    for (int i = 0; i < 100000; i++) {
        char key[24], *value;
        size_t len, key_len = (size_t)sprintf(key, "key%d", i * 7919 % 20000);
        rocksdb_put(db, write, key, key_len, "value", 5, &err);
        if (err)
            return failed(err);
        value = rocksdb_get(db, read, key, key_len, &len, &err);
        if (err)
            return failed(err);
        if (lsm)
            qm_lsm_read(lsm, key, key_len);
        free(value);
    }
    if (lsm) {
        qm_lsm_get_stats(lsm, &stats);
        printf("%" PRIu64 " files, %" PRIu64 " of %" PRIu64 " blocks warmed\n",
               stats.files, stats.warmed, stats.blocks);
        qm_lsm_detach(lsm);
    }
    rocksdb_close(db);
    rocksdb_readoptions_destroy(read);
    rocksdb_writeoptions_destroy(write);
    rocksdb_options_destroy(options);
    rocksdb_cache_destroy(cache);
    rocksdb_block_based_options_destroy(table);
    return 0;
}
