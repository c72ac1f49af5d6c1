/* SPDX-License-Identifier: BSD-3-Clause */
/* example.cc - a database whose block cache stays warm: writes and reads, and prints
 * how many of the new files' blocks were warmed and used.
 *
 *   example DIRECTORY */
#include <cstdio>
#include <string>

#include <rocksdb/db.h>
#include <rocksdb/table.h>

#include <qmlsm.hpp>

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: example DIRECTORY\n");
        return 2;
    }
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(64 << 20);
    rocksdb::Options options;
    options.create_if_missing = true;
    options.write_buffer_size = 1 << 20;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));

    auto lsm = quickmine::lsm::attach(options);
    if (!lsm.says.empty())
        fprintf(stderr, "example: %s\n", lsm.says.c_str());

    rocksdb::DB *db;
    rocksdb::Status s = rocksdb::DB::Open(options, argv[1], &db);
    std::string value;
    for (int i = 0; s.ok() && i < 100000; i++) {
        std::string key = "key" + std::to_string(i * 7919 % 20000);
        s = db->Put(rocksdb::WriteOptions(), key, std::string(100, 'v'));
        if (s.ok())
            s = db->Get(rocksdb::ReadOptions(), key, &value);
    }
    if (!s.ok()) {
        fprintf(stderr, "example: %s\n", s.ToString().c_str());
        return 1;
    }
    if (lsm) {
        quickmine::lsm::Stats stats = lsm->stats();
        printf("%lu files, %lu of %lu blocks warmed\n", stats.files, stats.warmed,
               stats.blocks);
    }
    delete db;
    return 0;
}
