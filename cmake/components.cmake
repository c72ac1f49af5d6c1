# SPDX-License-Identifier: BSD-3-Clause
# qm_component(NAME WHAT PACKAGES VARIABLE...): decides whether a component is built, and
# sets QM_WITH_NAME.  It needs Debian's PACKAGES, and has them if all VARIABLEs are true.  A
# VARIABLE may be written as VARIABLE=PACKAGE, so that the missing package is named.  What is
# left out is said at configure time, and why.
option(QM_REQUIRE_ALL "Take a component that cannot be built for an error" OFF)
set_property(GLOBAL PROPERTY QM_LEFT_OUT "")

function(qm_component name what packages)
  set(QM_${name} AUTO CACHE STRING
      "Build ${what}: ON, OFF, or AUTO (if what it needs is installed)")
  set_property(CACHE QM_${name} PROPERTY STRINGS AUTO ON OFF)
  set(with ON)
  set(missing "")
  foreach(needed ${ARGN})
    string(REGEX REPLACE "=.*" "" variable ${needed})
    if(NOT ${variable})
      set(with OFF)
      if(needed MATCHES "=(.*)")
        list(APPEND missing ${CMAKE_MATCH_1})
      endif()
    endif()
  endforeach()
  list(JOIN missing ", " missing)
  if(missing)
    set(missing "; missing: ${missing}")
  endif()
  if(QM_${name} STREQUAL "AUTO")
    if(NOT with AND QM_REQUIRE_ALL)
      message(FATAL_ERROR "For ${what}, these packages are needed: ${packages}${missing}")
    endif()
    if(NOT with)
      message(STATUS "Left out: ${what} (it needs the packages ${packages}${missing})")
    endif()
  elseif(NOT QM_${name})
    set(with OFF)
    message(STATUS "Left out: ${what} (QM_${name} is OFF)")
  elseif(NOT with)
    message(FATAL_ERROR
            "For ${what}, these packages are needed: ${packages}${missing}")
  endif()
  if(NOT with)
    set_property(GLOBAL APPEND PROPERTY QM_LEFT_OUT ${name})
  endif()
  set(QM_WITH_${name} ${with} PARENT_SCOPE)
endfunction()

# What several components need.
pkg_check_modules(JANSSON IMPORTED_TARGET jansson)
pkg_check_modules(LIBNBD IMPORTED_TARGET libnbd>=1.14)
pkg_check_modules(NBDKIT IMPORTED_TARGET nbdkit>=1.32)
pkg_check_modules(URCU IMPORTED_TARGET liburcu-bp liburcu-cds)
pkg_check_modules(ZLIB IMPORTED_TARGET zlib)
pkg_check_modules(ZSTD IMPORTED_TARGET libzstd)
pkg_check_modules(JEMALLOC IMPORTED_TARGET jemalloc)
find_path(XXHASH_INCLUDE_DIR xxhash.h)
find_path(UTHASH_INCLUDE_DIR uthash.h)
find_path(DB_INCLUDE_DIR db.h)
find_library(DB_LIBRARY db-5.3)
find_library(RBD_LIBRARY rbd)
find_library(RADOS_LIBRARY rados)
find_path(RBD_INCLUDE_DIR rbd/librbd.h)

# cache/, mining/ and trace/, which the filter and the command are made of.
set(core_packages "liburcu-dev, libxxhash-dev, zlib1g-dev, libzstd-dev")
set(core_needs URCU_FOUND=liburcu-dev XXHASH_INCLUDE_DIR=libxxhash-dev
               ZLIB_FOUND=zlib1g-dev ZSTD_FOUND=libzstd-dev)

qm_component(FILTER "the filter" "nbdkit-plugin-dev, libjansson-dev, ${core_packages}"
             NBDKIT_FOUND=nbdkit-plugin-dev JANSSON_FOUND=libjansson-dev ${core_needs})
if(QM_WITH_FILTER)
  pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd>=0.9.75)
  qm_component(HTTP "the filter's statistics over HTTP" libmicrohttpd-dev
               MICROHTTPD_FOUND=libmicrohttpd-dev)
endif()
qm_component(CLIENTS "libqmctx and all clients that use it" libnbd-dev
             LIBNBD_FOUND=libnbd-dev)
# Sanitizers have an allocator of their own.
if(QM_SANITIZE)
  set(JEMALLOC_FOUND ON)
endif()
qm_component(COMMAND "the command quickmine and the programs of bench/"
             "libnbd-dev, libjansson-dev, libjemalloc-dev, uthash-dev, ${core_packages}"
             QM_WITH_CLIENTS=libnbd-dev JANSSON_FOUND=libjansson-dev
             JEMALLOC_FOUND=libjemalloc-dev UTHASH_INCLUDE_DIR=uthash-dev ${core_needs})
qm_component(DEVICE "the device model" "nbdkit-plugin-dev, libjansson-dev"
             NBDKIT_FOUND=nbdkit-plugin-dev JANSSON_FOUND=libjansson-dev)
qm_component(RBD "the plugin for Ceph's RBD" "nbdkit-plugin-dev, librbd-dev"
             NBDKIT_FOUND=nbdkit-plugin-dev RBD_INCLUDE_DIR=librbd-dev
             RBD_LIBRARY=librbd-dev RADOS_LIBRARY=librados-dev)
if(QM_WITH_FILTER OR QM_WITH_COMMAND)
  qm_component(BERKELEY_DB "policy quickmine, as in the paper" libdb5.3-dev
               DB_INCLUDE_DIR DB_LIBRARY)
endif()
if(QM_WITH_FILTER OR QM_WITH_COMMAND)
  pkg_check_modules(TIER_RING IMPORTED_TARGET liburing)
  qm_component(TIER_RING "a second tier's reads by io_uring" liburing-dev
               TIER_RING_FOUND=liburing-dev)
endif()
qm_component(STORE "the hybrid key-value store" libxxhash-dev XXHASH_INCLUDE_DIR=libxxhash-dev)
if(QM_WITH_STORE)
  pkg_check_modules(LMDB IMPORTED_TARGET lmdb)
  qm_component(STORE_BDB "the store's disk layer bdb" libdb5.3-dev
               DB_INCLUDE_DIR=libdb5.3-dev DB_LIBRARY)
  qm_component(STORE_LMDB "the store's disk layer lmdb" liblmdb-dev LMDB_FOUND=liblmdb-dev)
endif()
pkg_check_modules(LIBMARIADB IMPORTED_TARGET libmariadb)
qm_component(FOLLOW "the follower of MariaDB's binary log" "libmariadb-dev, zlib1g-dev"
             LIBMARIADB_FOUND=libmariadb-dev ZLIB_FOUND=zlib1g-dev)
pkg_check_modules(LIBEVENT IMPORTED_TARGET libevent)
pkg_check_modules(OPENSSL IMPORTED_TARGET openssl)
pkg_check_modules(HIREDIS IMPORTED_TARGET hiredis)
qm_component(ROWCACHE "the cache of MariaDB's rows, quickmine rowcache"
             "libevent-dev, libhiredis-dev, libssl-dev, uthash-dev, libjemalloc-dev, libmariadb-dev, libxxhash-dev"
             QM_WITH_STORE=libxxhash-dev QM_WITH_FOLLOW=libmariadb-dev LIBEVENT_FOUND=libevent-dev
             HIREDIS_FOUND=libhiredis-dev OPENSSL_FOUND=libssl-dev UTHASH_INCLUDE_DIR=uthash-dev JEMALLOC_FOUND=libjemalloc-dev)
# The interface of its cache, which lsm/ implements, is another in each release.
find_path(ROCKSDB_INCLUDE_DIR rocksdb/db.h)
find_library(ROCKSDB_LIBRARY rocksdb)
if(ROCKSDB_INCLUDE_DIR)
  file(STRINGS ${ROCKSDB_INCLUDE_DIR}/rocksdb/version.h rocksdb_version
       REGEX "define ROCKSDB_(MAJOR|MINOR) ")
  list(JOIN rocksdb_version "." rocksdb_version)
  string(REGEX REPLACE "[^0-9.]" "" rocksdb_version "${rocksdb_version}")
  if(NOT rocksdb_version STREQUAL "7.8" AND NOT DEFINED QM_LSM)
    message(STATUS "RocksDB here is ${rocksdb_version}: lsm/ is for 7.8, Debian 12's")
    set(QM_LSM OFF CACHE STRING "RocksDB is of another version")
  endif()
endif()
qm_component(LSM "the library for RocksDB's block cache" librocksdb-dev
             ROCKSDB_INCLUDE_DIR=librocksdb-dev ROCKSDB_LIBRARY)
