/* SPDX-License-Identifier: BSD-3-Clause */
/* bridge.h - what the C++ files call of the C ones; without atomics, which C++ spells
 * otherwise. */
#ifndef QM_LSM_BRIDGE_H
#define QM_LSM_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lsm/qmlsm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct dump;
struct family;
struct file;
struct shape;
struct trees;
struct watch;

/* watch.h */
struct watch *watch_new(void);
void watch_free(struct watch *w);
void watch_look(struct watch *w, const uint64_t name[2], bool hit);
void watch_insert(struct watch *w, const uint64_t name[2]);
void watch_erased(struct watch *w, const uint64_t name[2]);
void watch_adopt(struct file *f, const uint64_t name[2]);
struct file *watch_add(struct watch *w, struct family *family, const uint64_t first[2],
                       const struct shape *shape, uint64_t data_size,
                       const uint8_t *warmed, uint64_t max_blocks);
uint64_t watch_names(struct file *f, unsigned cold, const uint8_t *hot,
                     uint64_t (**names)[2]);
struct family *watch_family(const struct file *f);
unsigned watch_enter(struct watch *w);
void watch_leave(struct watch *w, unsigned token);
void watch_remove(struct watch *w, struct file *f);
void watch_forget(struct watch *w, struct family *family);

/* shape.h */
void shape_free(struct shape *s);
void shape_key(struct shape *s, const void *key, size_t len, size_t bytes);
void shape_cut(struct shape *s, uint32_t bytes);
void shape_block(struct shape *s, uint64_t raw);
void shape_finish(struct shape *s);

/* trees.h, of feature.h's number of features; dump.h */
struct trees *bridge_trees(const char *path, char *err, size_t err_len);
void trees_free(struct trees *trees);
struct dump *dump_open(const char *path, uint64_t bytes);
void dump_close(struct dump *d);

/* A column family. */
struct family *family_new(uint32_t ranges, double sample);
/* Before it is used: trees predict its heat, its intervals go to the dump; or NULL. */
void family_learn(struct family *f, const struct trees *trees, struct dump *dump,
                  uint32_t number);
void family_free(struct family *f);
void family_read(struct family *f, const void *key, size_t len);
void family_write(struct family *f, const void *key, size_t len);
/* from, steps: for the trees, of which intervals the heat is. */
struct shape *family_shape(struct family *f, int level, uint32_t cut, uint32_t from,
                           uint32_t steps);
/* Ends an interval.  -1: the dump could not be written. */
int family_tick(struct family *f, struct watch *w, double window);
/* The names of the file's inserted blocks that nobody will read in the next `steps`
 * intervals: as the trees predict, or as none has read them for `idle` intervals. */
uint64_t family_cold(struct file *f, uint32_t steps, unsigned idle,
                     uint64_t (**names)[2]);
/* Adds to stats. */
void family_stats(struct family *f, struct qm_lsm_stats *stats);

uint32_t bridge_blocks(const struct shape *s);
int bridge_level(const struct shape *s);
const void *bridge_first(const struct shape *s, uint32_t i, size_t *len);
uint32_t bridge_plan(enum qm_lsm_mode mode, struct family *f, const struct shape *s,
                     double price, double window, uint8_t *want);
/* Tells how many blocks the cache has room for, and that some were erased; see price.h
 */
void bridge_capacity(struct watch *w, uint64_t blocks);
void bridge_erased(struct watch *w, uint64_t blocks);
double bridge_price(struct watch *w);
uint64_t bridge_clock(struct watch *w);
uint64_t bridge_residence(struct watch *w);

#ifdef __cplusplus
}
#endif

#endif
