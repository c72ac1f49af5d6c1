/* SPDX-License-Identifier: BSD-3-Clause */
/* relay.h - a tunnel between clients and their server, which can be cut.
 *
 * What a cut connection had already brought to the server's socket is still carried
 * out; replies to it are lost.  As when a tunnel is restarted, or a switch.
 */
#ifndef TORTURE_RELAY_H
#define TORTURE_RELAY_H

struct relay;

/* Listens on a Unix socket, and relays each connection to another.  Neither needs to be
 * there.  NULL, with a complaint, if it cannot. */
struct relay *relay_start(const char *from, const char *to);
/* Breaks all connections at once for the client; the server hears of it later.  New
 * ones can be made. */
void relay_cut(struct relay *r);
/* How many connections there were. */
unsigned relay_connections(struct relay *r);
void relay_stop(struct relay *r);

#endif
