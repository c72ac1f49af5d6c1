/* SPDX-License-Identifier: BSD-3-Clause */
/* cpu.c - how busy this machine's processors are; see cpu.h. */
#include "rowcache/readahead/cpu.h"

#include <inttypes.h>
#include <stdio.h>

bool qm_cpu_parse(struct qm_cpu *last, const char *line, double *busy)
{
    /* user nice system idle iowait irq softirq steal; guests are in user */
    uint64_t t[8] = {0}, total = 0, idle, passed, idled;
    struct qm_cpu before = *last;
    int n = sscanf(line,
                   "cpu %" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64
                   "%" SCNu64 "%" SCNu64,
                   &t[0], &t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7]);

    if (n < 4)
        return false;
    for (int i = 0; i < 8; i++)
        total += t[i];
    idle = t[1] + t[3] + t[4];
    *last = (struct qm_cpu){total, idle};
    if (before.total == 0 || total <= before.total)
        return false;
    passed = total - before.total;
    idled = idle > before.idle ? idle - before.idle : 0; /* iowait may go back */
    *busy = idled >= passed ? 0 : (double)(passed - idled) / (double)passed;
    return true;
}

bool qm_cpu_read(struct qm_cpu *last, double *busy)
{
    FILE *in = fopen("/proc/stat", "re");
    char line[256] = "";
    bool good = in && fgets(line, sizeof line, in);

    if (in)
        fclose(in);
    return good && qm_cpu_parse(last, line, busy);
}
