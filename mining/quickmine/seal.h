/* SPDX-License-Identifier: BSD-3-Clause */
/* seal.h - a checksum over the whole of a Berkeley DB file.
 *
 * Berkeley DB does not survive reading a damaged file: its page checksums and verify()
 * notwithstanding, a wrong byte or a missing page can have it search for ever.  So it
 * is only given files that are to the last byte what was written.
 *
 * The seal lies in the last 16 bytes of the file's first page, of which Berkeley DB
 * uses the first 512 bytes only: its own tools read a sealed file.  Any program of
 * theirs that writes to it breaks the seal.
 */
#ifndef QM_SEAL_H
#define QM_SEAL_H

/* Seals the file that is open for reading and writing on fd, and syncs it.  Returns 0
 * or an errno value: EINVAL if it has not even a page. */
int qm_seal(int fd);

/* Returns 0; EINVAL if the file is not as it was when it was sealed, or never was; or
 * another errno value if it cannot be read. */
int qm_seal_check(int fd);

#endif
