/* SPDX-License-Identifier: BSD-3-Clause */
/* sim-tier.c - see sim-tier.h. */
#include "cli/sim-tier.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sim-timed.h"

void sim_tier_size(struct argp_state *state, struct sim_tier *t, const char *word)
{
    uint64_t *sizes = reallocarray(t->sizes, t->many_sizes + 1, sizeof *sizes);

    if (!sizes) {
        argp_failure(state, CLI_FAILED, ENOMEM, "--tier-size");
        return;
    }
    t->sizes = sizes;
    t->sizes[t->many_sizes++] = cli_size(state, "--tier-size", word, 0, INT64_MAX);
}

/* The tier that the shared object in the first len bytes of word has.  It stays loaded
 * until the program ends. */
static const struct qm_sim_tier_ops *load_other(struct argp_state *state,
                                                const char *word, size_t len)
{
    char *path = strndup(word, len);
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct qm_sim_tier_ops *ops =
        library ? dlsym(library, QM_SIM_TIER_SYMBOL) : NULL;

    if (!path)
        argp_failure(state, CLI_FAILED, ENOMEM, "--tier-admit");
    else if (!library)
        argp_failure(state, CLI_FAILED, 0, "--tier-admit: %s", dlerror());
    else if (!ops)
        argp_failure(state, CLI_FAILED, 0, "--tier-admit: %s has no symbol %s", path,
                     QM_SIM_TIER_SYMBOL);
    free(path);
    return ops;
}

void sim_tier_admit(struct argp_state *state, struct sim_tier *t, const char *word)
{
    const char *colon = strrchr(word, ':');
    const struct qm_sim_tier_ops *own = NULL, **owns;
    char **admits;

    if (colon && memchr(word, '/', (size_t)(colon - word))) {
        own = load_other(state, word, (size_t)(colon - word));
        word = colon + 1;
    } else if (!qm_sim_tier_is_word(word)) {
        argp_error(state,
                   "--tier-admit must be one of %s, or DIRECTORY/LIBRARY:WORD, not "
                   "'%s'",
                   qm_sim_tier_words(), word);
    }
    admits = reallocarray(t->admits, t->many_admits + 1, sizeof *admits);
    if (admits)
        t->admits = admits;
    owns = reallocarray(t->owns, t->many_admits + 1, sizeof *owns);
    if (owns)
        t->owns = owns;
    if (admits)
        t->admits[t->many_admits] = strdup(word);
    if (!admits || !owns || !t->admits[t->many_admits])
        argp_failure(state, CLI_FAILED, ENOMEM, "--tier-admit");
    else
        t->owns[t->many_admits++] = own;
}

bool sim_tier_any(const struct sim_tier *t)
{
    for (size_t i = 0; i < t->many_sizes; i++)
        if (t->sizes[i] > 0)
            return true;
    return false;
}

void sim_tier_device(struct argp_state *state, struct sim_tier *t, const char *arg)
{
    uint64_t size = 0;

    free(t->words);
    t->words = sim_timed_parse(state, "--tier-device", arg, &t->settings, &size);
    if (size > 0)
        argp_error(state, "--tier-device has no key 'size': that is --tier-size");
}

void sim_tier_check(struct argp_state *state, struct sim_tier *t, bool timed)
{
    char err[200];
    bool none;

    if (t->words && !timed)
        argp_error(state,
                   "--tier-device is for reads that take time: say --device, too");
    if (!t->words)
        qm_device_settings_set(&t->settings, "device", "ssd");
    qm_device_settings_complete(&t->settings, &t->device, &none, err, sizeof err);
    if (t->many_sizes == 0 && (t->many_admits > 0 || t->write_rate.set || t->words))
        argp_error(state, "how large is the tier? Say --tier-size, too");
    if (t->many_admits == 0)
        sim_tier_admit(state, t, "auto");
}

/* Without a tier, there is nothing to admit to: one configuration for a size of 0. */
static size_t admits_of(const struct sim_tier *t, size_t size)
{
    return t->sizes[size] > 0 ? t->many_admits : 1;
}

size_t sim_tier_count(const struct sim_tier *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->many_sizes; i++)
        n += admits_of(t, i);
    return n > 0 ? n : 1;
}

struct qm_sim_tier_config sim_tier_get(const struct sim_tier *t, size_t i,
                                       uint64_t volume)
{
    struct qm_sim_tier_config config = {
        .volume = volume, .write_rate = t->write_rate.value, .device = &t->device};
    size_t size = 0;

    if (t->many_sizes == 0)
        return config;
    while (i >= admits_of(t, size))
        i -= admits_of(t, size++);
    config.size = t->sizes[size];
    config.admit = t->admits[i];
    config.own = t->owns[i];
    return config;
}

void sim_tier_free(struct sim_tier *t)
{
    for (size_t i = 0; i < t->many_admits; i++)
        free(t->admits[i]);
    free(t->admits);
    free(t->owns);
    free(t->sizes);
    free(t->words);
}
