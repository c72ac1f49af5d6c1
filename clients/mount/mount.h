/* SPDX-License-Identifier: BSD-3-Clause */
/* mount.h - `quickmine mount`: a file that is the device, its readers' contexts known.
 *
 * All that the command line calls of this component.  See quickmine-mount(1).
 */
#ifndef QM_MOUNT_H
#define QM_MOUNT_H

/* Runs the command; argv[0] is not looked at, argv[1..] are its arguments.  Serves
 * until the file is unmounted, or returns at once when it serves in the background.
 * Returns the exit status: 0, or 1 when it failed.  Wrong usage and --help exit (2, 0)
 * after their message, as argp does. */
int qm_cmd_mount(int argc, char **argv);

#endif
