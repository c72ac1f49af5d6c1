/* SPDX-License-Identifier: BSD-3-Clause */
/* volume-state.h - how an nbdkit plugin says that nobody else has changed its volume.
 *
 * nbdkit-quickmine-filter's second tier keeps blocks from one start to the next, which
 * is right only if nobody writes to the volume in between.  A plugin that knows exports
 * this function, by this name.  The filter finds it in the process; so what it says is
 * of this very process' plugin, and does not come from another machine.
 *
 *   known   names the time from now on, until this process ends, in which nobody but
 *           this plugin can change the volume; unique for ever, of all servers and
 * volumes before  names the last such time before now, if nobody can have changed the
 * volume between that and this; else ""
 *
 * Both are texts of fewer than len bytes.  Returns 0, or -1 if nothing is known: nobody
 * prevents others from writing to the volume.  Called when the plugin serves, by any
 * thread.
 */
#ifndef QM_VOLUME_STATE_H
#define QM_VOLUME_STATE_H

#include <stddef.h>

#define QM_VOLUME_STATE_SYMBOL "quickmine_volume_state"

typedef int qm_volume_state_function(char *before, char *known, size_t len);

#endif
