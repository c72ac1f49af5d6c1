/* SPDX-License-Identifier: BSD-3-Clause */
/* no-memory.c - to be preloaded: an allocation that the filter, or a library on its
 * behalf, asks for fails, when a test says so.
 *
 * The test and the program share the file that QM_NO_MEMORY names: how many allocations
 * still succeed (-1: all), how many fail after that, and how many there were.  Only
 * those count whose caller lies in a library that QM_NO_MEMORY_OF names (parts of their
 * names, separated by spaces); what nbdkit asks for itself never fails.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct control {
    _Atomic int64_t succeed, fail, asked, failed;
};

#define LIBRARIES_MAX 8

static struct control *control;
static _Atomic(uintptr_t) ranges[LIBRARIES_MAX][2]; /* of code */
static atomic_uint range_count;
static char names[500];

static int add_range(struct dl_phdr_info *info, size_t size, void *opaque)
{
    const char *base = strrchr(info->dlpi_name, '/');
    char copy[sizeof names], *rest, *name;
    bool wanted = false;

    memcpy(copy, names, sizeof copy);
    for (name = strtok_r(copy, " ", &rest); name; name = strtok_r(NULL, " ", &rest))
        wanted = wanted || (base && strstr(base, name));
    for (int i = 0; wanted && i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        unsigned n = atomic_load(&range_count);

        if (p->p_type != PT_LOAD || !(p->p_flags & PF_X) || n == LIBRARIES_MAX)
            continue;
        atomic_store(&ranges[n][0], info->dlpi_addr + p->p_vaddr);
        atomic_store(&ranges[n][1], info->dlpi_addr + p->p_vaddr + p->p_memsz);
        atomic_store(&range_count, n + 1);
    }
    return 0;
}

static void __attribute__((constructor)) begin(void)
{
    const char *path = getenv("QM_NO_MEMORY"), *of = getenv("QM_NO_MEMORY_OF");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p;

    if (fd == -1 || !of || strlen(of) >= sizeof names)
        return;
    strcpy(names, of);
    p = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (p != MAP_FAILED)
        control = p;
}

/* nbdkit loads the filter later than this; it is looked for whenever something else is
 * loaded. */
void *dlopen(const char *path, int flags)
{
    static void *(*next)(const char *, int);
    void *library;

    if (!next)
        next = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    library = next(path, flags);
    if (control && atomic_load(&range_count) == 0)
        dl_iterate_phdr(add_range, NULL);
    return library;
}

static bool refuse(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;
    unsigned n = atomic_load_explicit(&range_count, memory_order_acquire);
    bool counts = false;

    for (unsigned i = 0; i < n; i++)
        counts = counts || (at >= ranges[i][0] && at < ranges[i][1]);
    if (!counts)
        return false;
    atomic_fetch_add(&control->asked, 1);
    if (atomic_load(&control->succeed) < 0 ||
        atomic_fetch_sub(&control->succeed, 1) > 0)
        return false;
    atomic_store(&control->succeed, 0);
    if (atomic_fetch_sub(&control->fail, 1) <= 0) {
        atomic_store(&control->succeed, -1);
        return false;
    }
    atomic_fetch_add(&control->failed, 1);
    errno = ENOMEM;
    return true;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    return refuse(__builtin_return_address(0)) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return refuse(__builtin_return_address(0)) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return refuse(__builtin_return_address(0)) ? NULL : __libc_realloc(p, size);
}

void *reallocarray(void *p, size_t n, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return refuse(__builtin_return_address(0)) ? NULL : __libc_realloc(p, bytes);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return refuse(__builtin_return_address(0)) ? NULL
                                               : __libc_memalign(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
    void *memory =
        refuse(__builtin_return_address(0)) ? NULL : __libc_memalign(alignment, size);

    if (!memory)
        return ENOMEM;
    *p = memory;
    return 0;
}

/* glibc's own would ask for memory in its own name. */
char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = refuse(__builtin_return_address(0)) ? NULL : __libc_malloc(n);

    return copy ? memcpy(copy, text, n) : NULL;
}

char *strndup(const char *text, size_t max)
{
    size_t n = strnlen(text, max);
    char *copy = refuse(__builtin_return_address(0)) ? NULL : __libc_malloc(n + 1);

    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}
