/* SPDX-License-Identifier: BSD-3-Clause */
/* volume-state.h - how an nbdkit plugin says that no other program changed its volume.
 *
 * nbdkit-quickmine-filter's second tier keeps blocks from one start to the next, which
 * is right only if no other program writes to the volume in between.  A plugin that
 * knows exports a function of this name.  The filter looks for it in its own process,
 * so the answer comes from this process' plugin, never from another machine.
 *
 *   known   names the time from now until this process ends, in which only this plugin
 *           can change the volume; unique among all servers and volumes, for ever
 *   before  names the last such time before now, if no other program can have changed
 *           the volume between that time and this one; else ""
 *
 * Both are texts of fewer than len bytes.  Returns 0, or -1 if nothing is known: other
 * programs can write to the volume.  Called when the plugin serves, by any
 * thread.
 */
#ifndef QM_VOLUME_STATE_H
#define QM_VOLUME_STATE_H

#include <stddef.h>

#define QM_VOLUME_STATE_SYMBOL "quickmine_volume_state"

typedef int qm_volume_state_function(char *before, char *known, size_t len);

#endif
