/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-timed.c - see sim-timed.h. */
#include "cli/sim-timed.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sim.h"
#include "engine/params.h"

/* Keys are those of the filter, whose "device-" may be left out; and size. */
static void set_key(struct argp_state *state, const char *option, char *word,
                    struct qm_device_settings *settings, uint64_t *size)
{
    char *value = strchr(word, '='), key[64];

    if (!value)
        argp_error(state, "%s takes a name, and KEY=VALUE after it, not '%s'", option,
                   word);
    *value++ = '\0';
    if (strcmp(word, "size") == 0) {
        *size = cli_size(state, "the device's size", value, 1, QM_TRACE_END_MAX);
        return;
    }
    snprintf(key, sizeof key, "%s%s", strncmp(word, "device-", 7) == 0 ? "" : "device-",
             word);
    if (qm_device_settings_set(settings, key, value) != 0)
        argp_error(state,
                   "%s has no key '%s'; there are: disks, stripe, queue, span, "
                   "parallel, demand-first, scale, seed, size",
                   option, word);
}

char *sim_timed_parse(struct argp_state *state, const char *option, const char *arg,
                      struct qm_device_settings *settings, uint64_t *size)
{
    struct qm_device_config config;
    char *words = strdup(arg), *rest = words, *word, err[200];
    bool none;

    *settings = (struct qm_device_settings){.values = {NULL}};
    if (!words) {
        argp_failure(state, CLI_FAILED, ENOMEM, "%s", option);
        return NULL;
    }
    word = strsep(&rest, ",");
    qm_device_settings_set(settings, "device", word);
    while ((word = strsep(&rest, ",")))
        set_key(state, option, word, settings, size);
    if (qm_device_settings_complete(settings, &config, &none, err, sizeof err) == -1)
        argp_error(state, "%s: %s", option, err);
    if (none)
        argp_error(state, "%s none takes no time: leave %s out", option, option);
    return words;
}

void sim_timed_device(struct argp_state *state, struct sim_timed *t, const char *arg)
{
    free(t->words);
    t->size = 0; /* that of an earlier --device is no longer asked for */
    t->words = sim_timed_parse(state, "--device", arg, &t->settings, &t->size);
}

void sim_timed_clients(struct argp_state *state, struct sim_timed *t, const char *word)
{
    unsigned n =
        (unsigned)cli_number(state, "--clients", word, 1, QM_VIRTUAL_CLIENTS_MAX);
    unsigned *clients = reallocarray(t->clients, t->many + 1, sizeof *clients);

    if (!clients) {
        argp_failure(state, CLI_FAILED, ENOMEM, "--clients");
        return;
    }
    t->clients = clients;
    t->clients[t->many++] = n;
}

static void set_processor(struct argp_state *state, char *word,
                          struct qm_virtual_processor *p)
{
    char *value = strchr(word, '=');
    char option[64];

    if (!value)
        argp_error(state,
                   "--processor takes KEY=VALUE[,KEY=VALUE...], or none, not '%s'",
                   word);
    *value++ = '\0';
    snprintf(option, sizeof option, "--processor: %.32s", word);
    if (strcmp(word, "count") == 0)
        p->count =
            (unsigned)cli_number(state, option, value, 0, QM_VIRTUAL_PROCESSORS_MAX);
    else if (strcmp(word, "request") == 0)
        p->request_ns = cli_microseconds(state, option, value);
    else if (strcmp(word, "read") == 0)
        p->read_ns = cli_microseconds(state, option, value);
    else if (strcmp(word, "block") == 0)
        p->block_ns = cli_microseconds(state, option, value);
    else
        argp_error(
            state,
            "--processor has no key '%s'; there are: count, request, read, block",
            word);
}

void sim_timed_processor(struct argp_state *state, const char *arg,
                         struct qm_virtual_processor *processor)
{
    char *words, *rest, *word;

    if (strcmp(arg, "none") == 0) {
        *processor = (struct qm_virtual_processor){.count = 0};
        return;
    }
    words = rest = strdup(arg);
    if (!words) {
        argp_failure(state, CLI_FAILED, ENOMEM, "--processor");
        return;
    }
    while ((word = strsep(&rest, ",")))
        set_processor(state, word, processor);
    free(words);
}

void sim_timed_check(struct argp_state *state, struct sim_timed *t)
{
    if (!t->words && (t->many > 0 || t->speed_set || t->think_us.set ||
                      t->threads.set || t->queue.set || t->processor_set))
        argp_error(state, "--clients, --speed, --think, --prefetch-threads, "
                          "--prefetch-queue and --processor are for a device: say "
                          "--device, too");
    if (!t->words)
        return;
    if (t->many == 0 && t->speed == 0)
        argp_error(state, "how many clients? Say --clients N, or --speed for requests "
                          "at the trace's own times");
    if (t->think_us.set && t->speed > 0)
        argp_error(state, "either --think, or --speed for the trace's own pauses");
}

static int note_end(void *opaque, const struct qm_event *event)
{
    uint64_t *end = opaque;

    if ((event->type == QM_TRACE_READ || event->type == QM_TRACE_WRITE) &&
        event->offset + event->length > *end)
        *end = event->offset + event->length;
    return 0;
}

int sim_find_end(const char *file, const char *what_else, uint64_t *end)
{
    struct qm_trace_reader *reader;
    int status = CLI_FAILED;

    if (!sim_is_rereadable(file))
        return cli_fail("the trace must be a file%s", what_else);
    *end = 0;
    reader = cli_trace_open(file);
    if (reader)
        status = cli_trace_each(reader, "looking for its end", note_end, end);
    qm_trace_free(reader);
    if (*end == 0)
        *end = 1; /* a trace without requests */
    return status;
}

int sim_timed_make(struct sim_timed *t, const char *file,
                   const struct qm_virtual_config **configs, size_t *count)
{
    struct qm_virtual_config config = {
        .speed = t->speed,
        .think_ns = t->think_us.value * 1000,
        .threads = t->threads.set ? (unsigned)t->threads.value : QM_PREFETCH_AUTO,
        .queue = t->queue.set ? (unsigned)t->queue.value : QM_PREFETCH_AUTO,
        .processor = t->processor,
    };
    char err[200];
    bool none;

    *configs = NULL;
    *count = 1;
    if (!t->words)
        return CLI_OK;
    /* The device ends where the trace's last request does. */
    if (t->size == 0 &&
        sim_find_end(file, ", or how large is the device? Say --device NAME,size=SIZE",
                     &t->size) != CLI_OK)
        return CLI_FAILED;
    config.size = t->size;
    qm_device_settings_complete(&t->settings, &config.device, &none, err, sizeof err);
    *count = t->many > 0 ? t->many : 1;
    t->configs = calloc(*count, sizeof *t->configs);
    if (!t->configs)
        return cli_fail("out of memory");
    for (size_t i = 0; i < *count; i++) {
        t->configs[i] = config;
        t->configs[i].clients = t->many > 0 ? t->clients[i] : 0;
    }
    *configs = t->configs;
    return CLI_OK;
}

void sim_timed_free(struct sim_timed *t)
{
    free(t->words);
    free(t->clients);
    free(t->configs);
}
