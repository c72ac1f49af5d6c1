# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# s3.sh - an object store on loopback, and a block device in it, for tests and benchmarks;
# to be sourced after testing.sh and ceph.sh.
#
# The store is Ceph's own S3 server over the cluster that ceph_start has started; the
# device is s3backer's, a FUSE file each of whose blocks is an object.  Both are Debian's.

S3_PACKAGES=(radosgw s3backer curl)
S3_ACCESS=ACCESS0123456789ABCD
S3_SECRET=SECRET0123456789ABCDEFGHIJ0123456789ABCD

s3_missing() {
    local program
    for program in radosgw radosgw-admin s3backer curl; do
        command -v "$program" >/dev/null || { printf '%s\n' "$program"; return 0; }
    done
    return 1
}

# s3_start: the server; its address is in $S3_URL.
s3_start() {
    local PORT
    hold_port || return 1
    S3_URL=http://127.0.0.1:$PORT/
    mkdir -p "$CEPH_DIR/rgw"
    cat >>"$CEPH_CONF" <<END
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:$PORT tcp_nodelay=1
rgw data = $CEPH_DIR/rgw
rgw run sync thread = false
rgw enable gc threads = false
rgw enable lc threads = false
rgw dynamic resharding = false
END
    ceph auth get-or-create client.rgw mon 'allow *' osd 'allow *' >>"$CEPH_DIR/keyring" &&
        timeout 120 radosgw-admin user create --uid=user --display-name=user \
            --access-key="$S3_ACCESS" --secret-key="$S3_SECRET" >"$CEPH_DIR/rgw.out" 2>&1 ||
        { cat "$CEPH_DIR/rgw.out" >&2; return 1; }
    background radosgw -f -n client.rgw >>"$CEPH_DIR/rgw.out" 2>&1
    wait_for 60 curl -sf "$S3_URL" || { cat "$CEPH_DIR/rgw.out" >&2; return 1; }
    # The sum is that of no bytes.
    curl -sS --fail-with-body -X PUT --aws-sigv4 aws:amz:us-east-1:s3 \
        -H "x-amz-content-sha256: $(printf '' | sha256sum | cut -d' ' -f1)" \
        --user "$S3_ACCESS:$S3_SECRET" "${S3_URL}device" >>"$CEPH_DIR/rgw.out" 2>&1 ||
        { tail -n 5 "$CEPH_DIR/rgw.out" >&2; return 1; }
}

# s3_device DIR SIZE_MB BLOCK_BYTES: the file DIR/device, which keeps nothing in memory;
# DIR/stats says what it has asked of the store.
s3_device() {
    mkdir -p "$1"
    background s3backer -f --baseURL="$S3_URL" --accessId="$S3_ACCESS" \
        --accessKey="$S3_SECRET" --authVersion=aws4 --blockSize="$3" \
        --size="$2M" --filename=device --statsFilename=stats --blockCacheSize=0 \
        --md5CacheSize=0 --md5CacheTime=0 --minWriteDelay=0 --directIO --quiet --listBlocks \
        device "$1" >"$CEPH_DIR/s3backer.out" 2>&1
    S3_PID=$PID
    QM_PIDS+=("m:$1")
    wait_for 60 test -e "$1/device" || { cat "$CEPH_DIR/s3backer.out" >&2; return 1; }
}
