/* SPDX-License-Identifier: BSD-3-Clause */
/* clients.h - the connections of nbdkit's clients, found without its help.
 *
 * nbdkit_shutdown() waits for every client to leave: for one that is idle, one whose
 * machine is gone, and one that has never said a word, for ever.
 */
#ifndef QM_RBD_CLIENTS_H
#define QM_RBD_CLIENTS_H

/* Shuts down the connections that came in by a socket that listens in this process:
 * for SHUT_RD, as if the clients had left, so that answers under way are still sent; or
 * for SHUT_RDWR.  Returns how many there were; or -1, if the process' descriptors
 * cannot be looked at. */
int qmr_clients_shut(int how);

#endif
