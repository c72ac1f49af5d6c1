# SPDX-License-Identifier: BSD-3-Clause
# build-lib.sh - the patched MariaDB; to be sourced after scripts/lib/testing.sh.
#
# All of it is kept in $KEPT, so that a second run builds what has changed only:
#
#   pristine/    Debian's source of mariadb, with Debian's patches
#   patched/     the same, with ours; unchanged files are hard links
#   build/       what is built of it
. "$SOURCE_DIR/tests/long/source-package-lib.sh"

: "${KEPT:=${QM_MARIADB_DIR:-$BUILD_DIR/mariadb}}"
PATCH_DIR=$SOURCE_DIR/mysql-patch/mariadb-10.11
MARIADB_VERSION=1:10.11.18-0+deb12u1 # that the patch is made for
JOBS=${QM_JOBS:-2}

# As few plugins as possible; a release build, as assertions of debug builds do not expect
# raw devices.
MARIADB_OPTIONS=(
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS_RELEASE="-O2 -DNDEBUG -DDBUG_OFF"
    -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG -DDBUG_OFF"
    -DMYSQL_MAINTAINER_MODE=OFF -DWITH_WSREP=OFF -DWITH_UNIT_TESTS=OFF
    -DWITH_EMBEDDED_SERVER=OFF -DWITH_SSL=system -DWITH_PCRE=system -DWITH_ZLIB=system
    -DWITH_LIBFMT=system
)
for MARIADB_PLUGIN in ARCHIVE AUDIT_NULL AUTH_GSSAPI AUTH_PAM AUTH_TEST_PLUGIN \
    AWS_KEY_MANAGEMENT BLACKHOLE COLUMNSTORE CONNECT CRACKLIB_PASSWORD_CHECK \
    DEBUG_KEY_MANAGEMENT DIALOG_EXAMPLES DISKS EXAMPLE EXAMPLE_KEY_MANAGEMENT FEDERATED \
    FEDERATEDX FEEDBACK FTEXAMPLE FUNC_TEST HANDLERSOCKET HASHICORP_KEY_MANAGEMENT \
    LOCALES METADATA_LOCK_INFO MROONGA OQGRAPH PASSWORD_REUSE_CHECK PROVIDER_LZ4 \
    PROVIDER_LZMA PROVIDER_LZO PROVIDER_SNAPPY PROVIDER_BZIP2 QA_AUTH_CLIENT \
    QA_AUTH_INTERFACE QA_AUTH_SERVER QUERY_CACHE_INFO QUERY_RESPONSE_TIME ROCKSDB S3 \
    SEQUENCE SERVER_AUDIT SIMPLE_PASSWORD_CHECK SPHINX SPIDER SQL_ERRLOG \
    TEST_SQL_DISCOVERY TEST_SQL_SERVICE TEST_VERSIONING TYPE_MYSQL_JSON TYPE_TEST \
    USER_VARIABLES WSREP_INFO; do
    MARIADB_OPTIONS+=("-DPLUGIN_$MARIADB_PLUGIN=NO")
done
command -v ccache >/dev/null && MARIADB_OPTIONS+=(
    -DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)

# What is missing of what the build needs; empty: nothing.
missing_for_mariadb() {
    local package
    for package in bison cmake ninja-build patch libncurses-dev libpcre2-dev libssl-dev \
        libfmt-dev zlib1g-dev liburing-dev libaio-dev; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null |
            grep -q '^installed' || echo -n "$package "
    done
}

# $KEPT/pristine; returns 1 if there is no way to have it.
mariadb_source() {
    mkdir -p "$KEPT"
    [ ! -e "$KEPT/pristine/.complete" ] || return 0
    if [ -n "${QM_MARIADB_SOURCE:-}" ]; then
        rm -rf "${KEPT:?}/pristine"
        cp -al "$QM_MARIADB_SOURCE" "$KEPT/pristine" 2>/dev/null ||
            cp -r "$QM_MARIADB_SOURCE" "$KEPT/pristine" || return 1
    else
        say "fetching the source package mariadb"
        source_package mariadb "$MARIADB_VERSION" "$KEPT/pristine" || return 1
    fi
    touch "$KEPT/pristine/.complete"
}

# stage_mariadb: what the patch touches or adds, patched, in $T/stage.  $T/touched lists
# the former.
stage_mariadb() {
    local file
    sed -n 's,^+++ b/,,p' "$PATCH_DIR/server.patch" >"$T/touched"
    mkdir -p "$T/stage"
    (cd "$KEPT/pristine" && xargs cp --parents -t "$T/stage" <"$T/touched") ||
        fail "the source lacks a file"
    "$PATCH_DIR/apply" "$T/stage" || fail "the patch does not apply"
}

# configure_mariadb DIRECTORY OPTIONS...: a build of $KEPT/patched.
configure_mariadb() {
    local build=$1; shift
    [ -e "$build/build.ninja" ] ||
        logged configure cmake -G Ninja -S "$KEPT/patched" -B "$build" \
            "${MARIADB_OPTIONS[@]}" "$@"
}

# $KEPT/build: the server, and what mysql-test-run needs.
build_mariadb() {
    stage_mariadb
    patched_tree "$KEPT/pristine" "$T/stage" "$KEPT/patched" ||
        fail "$KEPT/patched cannot be made"
    configure_mariadb "$KEPT/build"
    say "building the patched MariaDB (see $KEPT/build.log)"
    logged build nice ninja -C "$KEPT/build" -j"$JOBS" mariadbd mariadb mariadb-admin \
        mariadb-binlog mariadb-check mariadb-conv mariadb-dump mariadb-import \
        mariadb-plugin mariadb-show mariadb-slap mariadb-test mariadb-tzinfo-to-sql \
        mariadb-upgrade my_print_defaults my_safe_process perror replace innochecksum \
        aria_chk aria_pack myisamchk myisamlog myisampack myisam_ftdump
    # mysql-test-run wants one, and none of our tests uses it.
    [ -e "$KEPT/build/tests/mysql_client_test" ] ||
        ln -s /bin/false "$KEPT/build/tests/mysql_client_test"
}
