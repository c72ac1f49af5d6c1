/* SPDX-License-Identifier: BSD-3-Clause */
/* test-detach.c - a device that is to end: what it holds is written back first, or it
 * stays.  The kernel is played here. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/harness.h"

#include "cli/attach.h"
#include "cli/daemon.h"
#include "clients/attach/kernel.h"

static int in_use, sync_error, syncs, disconnects;
static char said[1024];

int fsync(int fd)
{
    syncs++;
    errno = sync_error;
    return sync_error ? -1 : 0;
}

int attach_check_unused(const char *device, int *fd, char *err, size_t len)
{
    *fd = in_use ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
    snprintf(err, len, "%s is mounted", device);
    return in_use ? EBUSY : 0;
}

int attach_await_unused(const char *device, int *fd, char *err, size_t len)
{
    return attach_check_unused(device, fd, err, len);
}

int qm_kernel_disconnect(unsigned number, char *err, size_t len)
{
    disconnects++;
    return 0;
}

void daemon_log(int priority, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
}

/* What the rest of attach-kernel.c needs, and this does not. */
void daemon_ready(void)
{
}
void daemon_notify(const char *state)
{
}
uint64_t attach_timeout(const struct attach_options *o)
{
    return 0;
}
uint64_t attach_patience_ms(const struct attach_options *o)
{
    return 0;
}
bool attach_take_size(const struct attach_options *o, struct qm_nbd_device *device)
{
    return false;
}
void attach_owner(char *owner, size_t len, const char *uri)
{
}
int qm_kernel_connect(const struct qm_kernel_device *d, char *err, size_t len)
{
    return 0;
}
int qm_kernel_reconnect(const struct qm_kernel_device *d, char *err, size_t len)
{
    return 0;
}
int qm_kernel_resize(const struct qm_kernel_device *d, char *err, size_t len)
{
    return 0;
}
bool qm_kernel_connected(unsigned number)
{
    return false;
}
uint64_t qm_kernel_size(unsigned number)
{
    return 0;
}
unsigned qm_kernel_queues(unsigned number)
{
    return 1;
}

static struct attach_options options = {.device = "/dev/nbd7", .number = 7};

static int set_up(void **state)
{
    in_use = sync_error = syncs = disconnects = 0;
    options.force = false;
    said[0] = '\0';
    return 0;
}

TEST_WITH(test_it_ends, set_up, NULL)
{
    assert_true(attach_detach(&options, true));
    assert_int_equal(syncs, 1);
    assert_int_equal(disconnects, 1);
}

/* What cannot be written back would be lost. */
TEST_WITH(test_it_cannot_be_written_back, set_up, NULL)
{
    sync_error = EIO;
    assert_false(attach_detach(&options, true));
    assert_int_equal(disconnects, 0);
    assert_non_null(strstr(said, "cannot be written back"));
    assert_non_null(strstr(said, "stays attached"));
    options.force = true;
    assert_true(attach_detach(&options, true));
    assert_int_equal(disconnects, 1);
}

TEST_WITH(test_it_is_used, set_up, NULL)
{
    in_use = true;
    assert_false(attach_detach(&options, true));
    in_use = false;
    assert_false(attach_detach(&options, false));
    assert_non_null(strstr(said, "the server is away"));
    assert_int_equal(disconnects, 0);
    options.force = true;
    assert_true(attach_detach(&options, false));
}
