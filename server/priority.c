/* SPDX-License-Identifier: BSD-3-Clause */
/* priority.c - ioprio_set(2), which the C library has no function for. */
#include <errno.h>
#include <linux/ioprio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/priority.h"

#define VALUE(class, level) ((class) << IOPRIO_CLASS_SHIFT | (level))

/* Whether the scheduler serves a before b.  The class 0, none set, is best-effort with
 * a level of the middle. */
static int is_higher(int a, int b)
{
    int classes[2] = {a >> IOPRIO_CLASS_SHIFT, b >> IOPRIO_CLASS_SHIFT};

    for (int i = 0; i < 2; i++)
        if (classes[i] == IOPRIO_CLASS_NONE)
            classes[i] = IOPRIO_CLASS_BE;
    if (classes[0] != classes[1])
        return classes[0] < classes[1];
    return (a & 7) < (b & 7);
}

int qms_priority_lower(enum qms_priority priority)
{
    static const int values[] = {[QMS_PRIORITY_LOW] = VALUE(IOPRIO_CLASS_BE, 7),
                                 [QMS_PRIORITY_IDLE] = VALUE(IOPRIO_CLASS_IDLE, 0)};
    long now;

    if (priority == QMS_PRIORITY_NORMAL)
        return 0;
    now = syscall(SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0);
    if (now == -1)
        return errno;
    if (!is_higher((int)now, values[priority]))
        return 0;
    return syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, values[priority]) == -1
               ? errno
               : 0;
}
