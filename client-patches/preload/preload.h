/* preload.h - the library's beginning, and what its parts do when the process forks. */
#ifndef QM_PRELOAD_PRELOAD_H
#define QM_PRELOAD_PRELOAD_H

/* Reads the environment; ends the process with a sentence if it makes no sense. */
void qm_routes_configure(void);

/* As pthread_atfork(3) has it: before, a part takes its locks, so that nobody holds
 * them whom the child does not have; afterwards it lets go of them, and in the child
 * forgets what is the parent's. */
enum qm_fork { QM_FORK_BEFORE, QM_FORK_PARENT, QM_FORK_CHILD };
void qm_routes_fork(enum qm_fork when);
void qm_files_fork(enum qm_fork when);
void qm_aio_fork(enum qm_fork when);
void qm_uring_fork(enum qm_fork when);

#endif
