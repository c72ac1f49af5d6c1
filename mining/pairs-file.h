/* pairs-file.h - pairs that survive a restart (rules-dir.h).
 *
 * A key's pairs are a record of it, with the key's line and tag in place of a prefix
 * and counts in place of supports.  Pairs that were seen once are not saved: few of
 * them come back, and most pairs are such.  The record of the highest key says how many
 * lines the table had; a table of another size adopts what is there (qm_pairs_adopt()).
 */
#ifndef QM_PAIRS_FILE_H
#define QM_PAIRS_FILE_H

#include "mining/pairs.h"
#include "mining/prefetcher.h"
#include "mining/rules-dir.h"

/* Opens config->rules_dir and loads what is there.  Returns 0, with a sentence in err
 * if something was set aside, else ""; or an errno value with a sentence in err. */
int qm_pairs_load(struct qm_pairs *pairs, const struct qm_mining_config *config,
                  struct qm_rules_dir **dir, char *err, size_t len);

/* Saves; pairs may be used meanwhile.  One at a time.  Returns 0 or an errno value:
 * then what was saved before is still there. */
int qm_pairs_save(const struct qm_pairs *pairs, struct qm_rules_dir *dir);

#endif
