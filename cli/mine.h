/* SPDX-License-Identifier: BSD-3-Clause */
/* mine.h - quickmine mine --cminer. */
#ifndef QM_CLI_MINE_H
#define QM_CLI_MINE_H

#include "cli/cli.h"

struct mine_cminer {
    bool on;
    const char *other; /* an option that is for --cminer; NULL: none was given */
    const char *output;
    struct cli_setting max_gap, segment, min_support, min_confidence, memory;
    uint64_t skip, first, until; /* 0: not asked for; until in seconds */
};
extern const struct argp mine_cminer_argp; /* its input: struct mine_cminer */

/* Mines the trace, writes the file of rules that is asked for, and prints the counts.
 * Returns an exit status. */
int mine_cminer(const struct mine_cminer *asked, struct qm_trace_reader *reader,
                enum qm_level level, uint64_t block_size, bool json);

#endif
