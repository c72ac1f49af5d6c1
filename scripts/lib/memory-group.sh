# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# memory-group.sh - memory control groups, which bound a process's heap and the page cache
# of what it reads and writes.  To be sourced.  Version 1 or 2, whichever has the memory
# controller; needs root.

# memory_group_make: a new group, without a limit, whose memory is not swapped; its
# directory is in $group.  1: there can be none, and stderr says why.
memory_group_make() {
    local root=/sys/fs/cgroup
    group=''
    if [ -e $root/memory/memory.limit_in_bytes ]; then
        root+=/memory
    elif grep -qsw memory $root/cgroup.controllers; then
        # It refuses where processes are in the root of a container's groups.
        grep -qw memory $root/cgroup.subtree_control ||
            echo +memory >$root/cgroup.subtree_control || return 1
    else
        echo "$root has no memory controller" >&2
        return 1
    fi
    group=$(mktemp -d "$root/quickmine.XXXXXXXX") || return 1
    if [ -e "$group/memory.swappiness" ]; then
        echo 0 >"$group/memory.swappiness"
    elif [ -e "$group/memory.swap.max" ]; then
        echo 0 >"$group/memory.swap.max"
    else
        [ "$(wc -l </proc/swaps)" -le 1 ]
    fi && return
    echo "the group's memory could be swapped" >&2
    memory_group_remove
    return 1
}

# memory_group_limit BYTES: of $group.
memory_group_limit() {
    if [ -e "$group/memory.max" ]; then
        echo "$1" >"$group/memory.max"
    else
        echo "$1" >"$group/memory.limit_in_bytes"
    fi
}

# memory_group_remove: its processes have ended; they may be a moment in leaving it.
memory_group_remove() {
    local i
    [ -n "$group" ] || return 0
    for ((i = 0; i < 100; i++)); do
        ! rmdir "$group" 2>/dev/null || { group=''; return 0; }
        sleep .1
    done
    rmdir "$group"
}
