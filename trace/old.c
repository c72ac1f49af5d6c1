/* SPDX-License-Identifier: BSD-3-Clause */
/* old.c - see old.h. */
#include "trace/old.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How a trace begins: plain, gzip (RFC 1952), zstd (RFC 8878). */
static bool begins_as_trace(const char *bytes, size_t count)
{
    static const struct {
        const char *bytes;
        size_t count;
    } magics[] = {{"#quickmine-trace ", 17}, {"\x1f\x8b", 2}, {"\x28\xb5\x2f\xfd", 4}};

    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (count >= magics[i].count &&
            memcmp(bytes, magics[i].bytes, magics[i].count) == 0)
            return true;
    return false;
}

int qm_old_check(int fd, const char *path, char *err, size_t len)
{
    char bytes[32];
    struct stat st, again;
    ssize_t n = -1;
    int reader;

    if (fstat(fd, &st) == -1) {
        snprintf(err, len, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (S_ISBLK(st.st_mode)) {
        snprintf(err, len, "%s is a block device: a recording needs a file", path);
        return -1;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    reader = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (reader != -1) {
        if (fstat(reader, &again) == 0 && again.st_dev == st.st_dev &&
            again.st_ino == st.st_ino)
            n = pread(reader, bytes, sizeof bytes, 0);
        else
            errno = ESTALE;
        close(reader);
    }
    if (n == -1) {
        snprintf(err, len, "%s: cannot be read, to see whether it is a trace: %s", path,
                 strerror(errno));
        return -1;
    }
    if (begins_as_trace(bytes, (size_t)n))
        return 0;
    snprintf(err, len,
             "%s is no trace, and is not overwritten: give a file that is a trace or "
             "empty, or that is not there yet",
             path);
    return -1;
}
