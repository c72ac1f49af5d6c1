# SPDX-License-Identifier: BSD-3-Clause
# namespace.sh - for scripts that run themselves in a mount namespace of their own (unshare
# --mount); to be sourced by bash.

# leave_mounts: what tests that run beside this one have mounted is unmounted in this namespace,
# which has a copy of each.  Else a file system lives on here after its test has unmounted it, and
# the program that serves it does not end.  Called first, before anything is mounted here.
leave_mounts() {
    local where
    mount --make-rprivate / || return
    while read -r where; do
        # not what this script itself lies on
        case ${T:-}/ in "$where"/*) continue ;; esac
        umount -l "$where" 2>/dev/null # one below another is gone with it
    done < <(awk '$5 ~ "/quickmine\\.[A-Za-z0-9]+/" { print $5 }' /proc/self/mountinfo | sort -r)
    return 0
}
