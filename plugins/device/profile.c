/* SPDX-License-Identifier: BSD-3-Clause */
/* profile.c - the devices that the filter knows by name.  The manual page tells where
 * each number comes from, and which are assumptions.
 */
#include "plugins/device/profile.h"

#include <stddef.h>
#include <string.h>

#define US 1e3
#define MS 1e6

/* Nanoseconds a byte at `rate` megabytes (10^6 bytes) a second. */
#define MB_S(rate) (1e3 / (rate))

/* Seagate's Savvio 10K (ST973401SS), product manual, rev. D, section 4: seeks without
 * the controller's overhead; 360,000 bytes a track and 10,000 revolutions a minute make
 * 60 MB/s.  The buffer's use is an assumption. */
#define SAVVIO_10K                                                                     \
    {                                                                                  \
        .single_ns = 0.2 * MS, .average_ns = 4.0 * MS, .full_ns = 8.1 * MS,            \
        .write_ns = 0.4 * MS, .overhead_ns = 0.2 * MS, .revolution_ns = 6 * MS,        \
        .track = 360000, .buffer = 1 << 20,                                            \
    }

static const struct qm_device_profile profiles[] = {
    {
        .name = "disk",
        .disks = true,
        .config =
            {
                .stations = 1,
                .stripe = 64 << 10,
                .order = QM_DEVICE_SSTF,
                .disks = true,
                .disk = SAVVIO_10K,
                .scale = 1,
            },
    },
    {
        /* Intel's SSD DC S4500, product specification: random reads 110 us, 99.9 % of
         * them within 300, writes 52 and 800; 500 MB/s; 72,000 reads a second, for
         * which it takes eight at a time. */
        .name = "ssd",
        .config =
            {
                .stations = 8,
                .read = {110 * US, 0.34},
                .write = {52 * US, 1.07},
                .link_ns_per_byte = MB_S(500),
                .scale = 1,
            },
    },
    {
        /* The same disks behind a controller and a network of 10 Gb/s: its 1538 bytes a
         * frame carry 1448 bytes of data.  Trip and controller are assumptions. */
        .name = "san",
        .disks = true,
        .config =
            {
                .stations = 15,
                .stripe = 64 << 10,
                .order = QM_DEVICE_SSTF,
                .disks = true,
                .disk = SAVVIO_10K,
                .trip_ns = 200 * US,
                .controller_ns = 50 * US,
                .link_ns_per_byte = MB_S(1250.0 * 1448 / 1538),
                .scale = 1,
            },
    },
    {
        /* Amazon's guide for S3, "Best practices design patterns": first bytes after
         * roughly 100 to 200 ms, which are taken as the 5th and the 95th percentile.
         * The number of connections and what one carries are assumptions. */
        .name = "object-store",
        .config =
            {
                .stations = 64,
                .read = {144.6 * MS, 0.2107},
                .write = {144.6 * MS, 0.2107},
                .ns_per_byte = MB_S(87.5),
                .scale = 1,
            },
    },
};

const struct qm_device_profile *qm_device_profile_find(const char *name)
{
    for (size_t i = 0; i < sizeof profiles / sizeof profiles[0]; i++)
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    return NULL;
}
