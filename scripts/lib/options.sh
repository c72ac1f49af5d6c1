# SPDX-License-Identifier: BSD-3-Clause
# options.sh - values of a script's options; to be sourced.  $PROGRAM is the script's name.
# Each check ends the script with a sentence that says what is allowed, or leaves the
# value in $value.

wrong() {
    echo "$PROGRAM: $*" >&2
    echo "Try '$PROGRAM --help'." >&2
    exit 2
}

# next TAKING ARGUMENT...: the first argument as $option; if it is of TAKING, options in one word,
# what follows it as $value, which may also stand behind a =.  $used: how many arguments these are.
# Prints the script's usage for --help; false without arguments.
next() {
    local taking=" $1 "
    shift
    [ $# -gt 0 ] || return 1
    option=$1 value='' used=1
    case $option in
    -h | --help) usage; exit 0 ;;
    --*=*)
        option=${1%%=*} value=${1#*=}
        [[ $taking == *" $option "* ]] || wrong "there is no option '$option'"
        ;;
    *)
        [[ $taking == *" $option "* ]] || return 0
        [ $# -ge 2 ] || wrong "$option needs a value"
        value=$2 used=2
        ;;
    esac
}

# number OPTION VALUE LEAST MOST
number() {
    [[ $2 =~ ^[0-9]{1,9}$ ]] && [ "$((10#$2))" -ge "$3" ] && [ "$((10#$2))" -le "$4" ] ||
        wrong "$1 must be a number from $3 to $4, not '$2'"
    value=$((10#$2))
}

# decimal OPTION VALUE MOST: above 0, like 1 or 0.25.
decimal() {
    [[ $2 =~ ^([0-9]{1,5}|[0-9]{0,5}\.[0-9]{1,4})$ ]] &&
        awk -v v="$2" -v most="$3" 'BEGIN { exit !(v > 0 && v <= most) }' ||
        wrong "$1 must be a number above 0 and at most $3, not '$2'"
    value=$2
}

# size OPTION VALUE
size() {
    [[ $2 =~ ^[1-9][0-9]{0,5}[KMG]$ ]] ||
        wrong "$1 must be a size like 16M, not '$2'"
    value=$2
}
