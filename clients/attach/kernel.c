/* SPDX-License-Identifier: BSD-3-Clause */
/* kernel.c - see kernel.h. */
#include "clients/attach/kernel.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/nbd-netlink.h>
#include <netlink/errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char prefix[] = "/dev/nbd";

/* libnl has errors of its own. */
static int from_libnl(int error)
{
    switch (-error) {
    case NLE_SUCCESS:
        return 0;
    case NLE_PERM:
    case NLE_NOACCESS:
        return EPERM;
    case NLE_BUSY:
        return EBUSY;
    case NLE_NOMEM:
        return ENOMEM;
    case NLE_OPNOTSUPP:
        return EOPNOTSUPP;
    case NLE_OBJ_NOTFOUND:
    case NLE_NODEV:
        return ENOENT;
    default:
        return EINVAL;
    }
}

static int open_family(struct nl_sock **sock, int *family, char *err, size_t len)
{
    int r;

    *sock = nl_socket_alloc();
    if (!*sock) {
        snprintf(err, len, "out of memory");
        return ENOMEM;
    }
    r = genl_connect(*sock);
    if (r == 0)
        *family = r = genl_ctrl_resolve(*sock, NBD_GENL_FAMILY_NAME);
    if (r >= 0)
        return 0;
    nl_socket_free(*sock);
    snprintf(err, len,
             "the kernel has no network block devices, or their module is "
             "not loaded (modprobe nbd)");
    return EOPNOTSUPP;
}

static int put_sockets(struct nl_msg *message, const struct qm_kernel_device *d)
{
    struct nlattr *list = nla_nest_start(message, NBD_ATTR_SOCKETS), *item;

    if (!list)
        return -NLE_NOMEM;
    for (unsigned i = 0; i < d->count; i++) {
        item = nla_nest_start(message, NBD_SOCK_ITEM);
        if (!item || nla_put_u32(message, NBD_SOCK_FD, (uint32_t)d->sockets[i]) < 0)
            return -NLE_NOMEM;
        nla_nest_end(message, item);
    }
    nla_nest_end(message, list);
    return 0;
}

/* Of NBD_CMD_RECONFIGURE: only the size. */
static int fill_size(struct nl_msg *message, const struct qm_kernel_device *d)
{
    int r = nla_put_u64(message, NBD_ATTR_SIZE_BYTES, d->size);

    return r == 0 ? nla_put_string(message, NBD_ATTR_BACKEND_IDENTIFIER, d->owner) : r;
}

static int fill(struct nl_msg *message, const struct qm_kernel_device *d, int command)
{
    int r = nla_put_u32(message, NBD_ATTR_INDEX, d->number);

    if (command == NBD_CMD_DISCONNECT || r < 0)
        return r;
    if (command == NBD_CMD_RECONFIGURE && d->resize)
        return fill_size(message, d);
    if (command == NBD_CMD_CONNECT) {
        r = nla_put_u64(message, NBD_ATTR_SIZE_BYTES, d->size);
        if (r == 0)
            r = nla_put_u64(message, NBD_ATTR_BLOCK_SIZE_BYTES, d->block_size);
        if (r == 0)
            r = nla_put_u64(message, NBD_ATTR_SERVER_FLAGS, d->flags);
        if (r == 0)
            r = nla_put_u64(message, NBD_ATTR_CLIENT_FLAGS, 0);
    }
    /* 0: a socket is never taken for dead.  This sets the timer, too: to 30 seconds. */
    if (r == 0 && (d->patience_ms == 0 || command == NBD_CMD_CONNECT || d->count == 0))
        r = nla_put_u64(message, NBD_ATTR_TIMEOUT, d->patience_ms > 0 ? 0 : d->timeout);
    if (r == 0)
        r = nla_put_u64(message, NBD_ATTR_DEAD_CONN_TIMEOUT, d->dead_seconds);
    /* A kernel that does not know it ignores it. */
    if (r == 0)
        r = nla_put_string(message, NBD_ATTR_BACKEND_IDENTIFIER, d->owner);
    return r == 0 && d->count > 0 ? put_sockets(message, d) : r;
}

static int tell(const struct qm_kernel_device *d, int command, char *err, size_t len)
{
    struct nl_sock *sock;
    struct nl_msg *message;
    int family = 0, r = open_family(&sock, &family, err, len);

    if (r != 0)
        return r;
    message = nlmsg_alloc();
    r = message && genlmsg_put(message, NL_AUTO_PORT, NL_AUTO_SEQ, family, 0, 0,
                               (uint8_t)command, NBD_GENL_VERSION)
            ? fill(message, d, command)
            : -NLE_NOMEM;
    /* nl_send_sync() frees the message. */
    if (r == 0)
        r = nl_send_sync(sock, message);
    else
        nlmsg_free(message);
    nl_socket_free(sock);
    if (r < 0)
        snprintf(err, len, "%s%u: %s", prefix, d->number,
                 -r == NLE_BUSY ? "is in use" : nl_geterror(r));
    return from_libnl(r);
}

static void path_of(char *path, size_t len, unsigned number, const char *name)
{
    snprintf(path, len, "/sys/block/nbd%u/%s", number, name);
}

/* The timer of a patient device.  A request keeps what it finds when it is sent
 * first.  Where the file is missing, it stays at 30 seconds. */
static void set_timer(const struct qm_kernel_device *d)
{
    uint64_t ms = d->patience_ms < UINT32_MAX ? d->patience_ms : UINT32_MAX;
    char path[64];
    FILE *f;

    path_of(path, sizeof path, d->number, "queue/io_timeout");
    f = fopen(path, "we");
    if (!f)
        return;
    fprintf(f, "%" PRIu64 "\n", ms);
    fclose(f);
}

static bool has_timer(const struct qm_kernel_device *d)
{
    uint64_t ms = 0;
    char path[64];
    FILE *f;

    path_of(path, sizeof path, d->number, "queue/io_timeout");
    f = fopen(path, "re");
    if (!f)
        return false;
    if (fscanf(f, "%" SCNu64, &ms) != 1)
        ms = 0;
    fclose(f);
    return ms == d->patience_ms;
}

int qm_kernel_connect(const struct qm_kernel_device *device, char *err, size_t len)
{
    int error = tell(device, NBD_CMD_CONNECT, err, len);

    if (error == 0 && device->patience_ms > 0)
        set_timer(device);
    return error;
}

int qm_kernel_reconnect(const struct qm_kernel_device *device, char *err, size_t len)
{
    struct qm_kernel_device settings = *device;
    int error = tell(device, NBD_CMD_RECONFIGURE, err, len);

    /* Since Linux 6.11 the timer is set when no request is under way: those that wait
     * for the sockets would wait for ever. */
    if (error == 0 && device->patience_ms > 0 && !has_timer(device)) {
        settings.count = 0;
        error = tell(&settings, NBD_CMD_RECONFIGURE, err, len);
        if (error == 0)
            set_timer(device);
    }
    return error;
}

int qm_kernel_resize(const struct qm_kernel_device *device, char *err, size_t len)
{
    struct qm_kernel_device d = *device;

    d.resize = true;
    return tell(&d, NBD_CMD_RECONFIGURE, err, len);
}

int qm_kernel_disconnect(unsigned number, char *err, size_t len)
{
    return tell(&(struct qm_kernel_device){.number = number}, NBD_CMD_DISCONNECT, err,
                len);
}

int qm_kernel_number(const char *path)
{
    const char *digits = path + sizeof prefix - 1;
    char *end;
    unsigned long n;

    if (strncmp(path, prefix, sizeof prefix - 1) != 0 || *digits < '0' ||
        *digits > '9' || strlen(digits) > 6)
        return -1;
    n = strtoul(digits, &end, 10);
    return *end == '\0' ? (int)n : -1;
}

bool qm_kernel_connected(unsigned number)
{
    char path[64];

    /* It is there while the device is connected. */
    path_of(path, sizeof path, number, "pid");
    return access(path, F_OK) == 0;
}

void qm_kernel_owner(unsigned number, char *owner, size_t len)
{
    char path[64];
    FILE *f;

    *owner = '\0';
    path_of(path, sizeof path, number, "backend");
    f = fopen(path, "re");
    if (!f)
        return;
    if (!fgets(owner, (int)len, f))
        *owner = '\0';
    fclose(f);
    owner[strcspn(owner, "\n")] = '\0';
}

uint64_t qm_kernel_size(unsigned number)
{
    char path[64];
    uint64_t sectors = 0;
    FILE *file;

    path_of(path, sizeof path, number, "size");
    file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%" SCNu64, &sectors) != 1)
        sectors = 0;
    fclose(file);
    return sectors * 512;
}

unsigned qm_kernel_queues(unsigned number)
{
    char path[64];
    const struct dirent *entry;
    unsigned count = 0;
    DIR *dir;

    path_of(path, sizeof path, number, "mq");
    dir = opendir(path);
    if (!dir)
        return 0;
    while ((entry = readdir(dir)))
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}
