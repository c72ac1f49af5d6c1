/* SPDX-License-Identifier: BSD-3-Clause */
/* pidfile.c - see pidfile.h.
 *
 * The directory is looked up once, and held by a descriptor: the process leaves its
 * working directory, and the owner of a directory above may exchange its contents.
 */
#include "clients/libqmctx/pidfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIGITS_MAX 10

/* Digits and a newline, or nothing. */
static bool is_pidfile(int fd)
{
    char text[DIGITS_MAX + 2];
    ssize_t n = pread(fd, text, sizeof text, 0);

    if (n <= 0)
        return n == 0;
    for (ssize_t i = 0; i < n - 1; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return n >= 2 && (size_t)n < sizeof text && text[n - 1] == '\n';
}

static int open_directory(struct qm_pidfile *file, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char *directory;

    if (strlen(name) >= sizeof file->name)
        return ENAMETOOLONG;
    if (*name == '\0')
        return EISDIR;
    strcpy(file->name, name);
    directory = slash ? strndup(path, (size_t)(slash + 1 - path)) : strdup(".");
    if (!directory)
        return ENOMEM;
    file->dir = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    return file->dir == -1 ? errno : 0;
}

static void close_both(struct qm_pidfile *file)
{
    if (file->fd != -1)
        close(file->fd);
    if (file->dir != -1)
        close(file->dir);
    *file = QM_PIDFILE_NONE;
}

/* Whatever it is, opening it must not wait. */
static int open_file(struct qm_pidfile *file)
{
    const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

    file->fd = openat(file->dir, file->name, flags | O_CREAT | O_EXCL, 0644);
    file->ours = file->fd != -1;
    if (file->fd == -1 && errno == EEXIST)
        file->fd = openat(file->dir, file->name, flags);
    return file->fd == -1 ? errno : 0;
}

const char *qm_pidfile_open(struct qm_pidfile *file, const char *path)
{
    const char *wrong = NULL;
    struct stat st = {.st_ino = 0};
    int error;

    *file = QM_PIDFILE_NONE;
    error = open_directory(file, path);
    if (error == 0)
        error = open_file(file);
    if (error == 0 && fstat(file->fd, &st) == -1)
        error = errno;
    if (error == ELOOP)
        wrong =
            "is a link, which is not followed; give the name of the pid file itself";
    else if (error != 0)
        wrong = strerror(error);
    else if (!S_ISREG(st.st_mode) || !is_pidfile(file->fd))
        wrong = "is no pid file, and is not written over; give the name of a new file, "
                "of an empty one, or of a pid file";
    else if (st.st_nlink != 1)
        wrong = "has other names, and is not written over";
    if (wrong) {
        close_both(file);
        return wrong;
    }
    file->dev = st.st_dev;
    file->ino = st.st_ino;
    return NULL;
}

void qm_pidfile_write(struct qm_pidfile *file)
{
    if (file->fd == -1)
        return;
    (void)!ftruncate(file->fd, 0);
    dprintf(file->fd, "%ld\n", (long)getpid());
    close(file->fd);
    file->fd = -1;
    file->ours = true;
}

void qm_pidfile_remove(const struct qm_pidfile *file)
{
    struct stat st;

    if (file->dir != -1 && file->ours &&
        fstatat(file->dir, file->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_dev == file->dev && st.st_ino == file->ino)
        unlinkat(file->dir, file->name, 0);
}
