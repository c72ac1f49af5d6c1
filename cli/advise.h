/* SPDX-License-Identifier: BSD-3-Clause */
/* advise.h - what quickmine advise found out about a trace, for its printers. */
#ifndef QM_CLI_ADVISE_H
#define QM_CLI_ADVISE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mining/core/context.h"
#include "sim/advise.h"
#include "sim/virtual.h"

/* What a backend of which only the latency is known is taken for: reads at a time, and
 * the spread of their times. */
enum { ADVISE_PARALLEL = 16 };
#define ADVISE_SIGMA 0.3

/* What is computed, if nobody says: of a request by client and server, half each, over
 * a Unix socket; in the server for a read of the backend; to learn a block. */
#define ADVISE_REQUEST_NS UINT64_C(40000)
#define ADVISE_SERVER_NS  UINT64_C(20000) /* the server's half */
#define ADVISE_READ_NS    UINT64_C(20000)
#define ADVISE_BLOCK_NS   UINT64_C(2000)

/* The policies are compared on backends that are that much slower and faster, too. */
enum { ADVISE_OTHERS = 2 };
#define ADVISE_OFF 0.2

enum { ADVISE_TIERS = 4, ADVISE_MEMORIES = 32, ADVISE_LEVELS = 8, ADVISE_PLAIN = 3 };

/* What is asked for. */
struct advise_request {
    const char *file;    /* the trace, which can be read again */
    const char *name;    /* of it, for people */
    uint64_t block_size; /* 0: the trace's */
    uint64_t most_reads; /* requests that are simulated, at most */
    uint64_t memories[ADVISE_MEMORIES];
    size_t memory_count;          /* 0: from the footprint */
    uint64_t tiers[ADVISE_TIERS]; /* sizes of a second tier, in bytes */
    size_t tier_count;
    struct qm_device_config tier_device;
    struct qm_device_config device;
    uint64_t device_size; /* 0: where the last request ends */
    const char *backend;  /* where the device's times come from, for people */
    struct qm_virtual_processor processor;
    const char *processor_from; /* where these come from, for people */
    unsigned clients;           /* 0: as many as read at a time in the trace */
    bool think_set;             /* else as in the trace */
    uint64_t think_us;          /* between a client's requests */
    unsigned sample; /* the trace has one in `sample` of its contexts; 0: all */
    unsigned jobs;
};

struct advise_level {
    enum qm_level level;
    struct qm_advise_cost cost;
};

struct advise_class {
    char *name; /* any text; NULL: all that have none */
    uint64_t requests;
    uint64_t plain_blocks, plain_misses, ahead_blocks, ahead_misses;
    double plain_us, ahead_us; /* in all */
};

struct advise_report {
    const struct advise_request *request;
    /* Of the trace: */
    uint64_t block_size, reads, writes, untagged, blocks, footprint; /* bytes */
    double seconds;
    /* What was simulated of it: its last read requests, the second half of which
     * counts. */
    uint64_t simulated, simulated_footprint;
    unsigned clients;
    uint64_t think_us;
    uint64_t probe; /* memory at which levels were compared */
    struct advise_level levels[ADVISE_LEVELS];
    size_t level_count, level; /* how many were tried; the best of them */
    struct qm_advise_point points[ADVISE_MEMORIES];
    /* With a tier of that size below each memory, by the default policy. */
    struct qm_advise_cost tiers[ADVISE_TIERS][ADVISE_MEMORIES];
    struct qm_advise_other others[ADVISE_OTHERS];
    struct qm_advise_input input;
    struct qm_advice advice;
    uint64_t class_memory;        /* at which classes were counted */
    struct advise_class *classes; /* by the time saved, most first */
    size_t class_count;
};

/* A recording by a live server. */
struct advise_live {
    const char *socket; /* its control socket */
    unsigned seconds, sample;
    int fd; /* of the trace; -1: none */
    char path[64], backend[160], processor[160];
};

/* Has the server record, and sets what of *request depends on it: the trace, which
 * stays until fd is closed, and what was not asked for: memories, and the backend as
 * the server measured it.  Prints what goes wrong; returns an exit status. */
int advise_live_record(struct advise_live *live, struct advise_request *request);

/* The times of a processor in words, and where they come from. */
void advise_processor(const struct qm_virtual_processor *processor, const char *from,
                      char text[160]);

/* Before any work: whether the memories are large enough for the trace's blocks. */
int advise_check(const struct advise_request *request);

/* Simulates, and fills in *report, to be freed with advise_report_free() in any case.
 * Prints what goes wrong; returns an exit status. */
int advise_make(const struct advise_request *request, struct advise_report *report);
void advise_report_free(struct advise_report *report);

void advise_print(const struct advise_report *report, size_t classes);
/* An object; NULL: memory is out. */
json_t *advise_json(const struct advise_report *report);

/* A page that is to be written.  That it can be is seen before the work; what was there
 * stays until the new one is whole, whatever ends this program. */
struct advise_html {
    char *path; /* NULL: none */
    unsigned mode;
};

/* Both print what goes wrong, and return an exit status. */
int advise_html_open(const char *path, struct advise_html *html);
int advise_html_write(struct advise_html *html, const struct advise_report *reports,
                      size_t count);
void advise_html_close(struct advise_html *html);

#endif
