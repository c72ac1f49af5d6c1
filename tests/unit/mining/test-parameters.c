/* SPDX-License-Identifier: BSD-3-Clause */
/* test-parameters.c - the table of parameters says what the defaults, the limits and
 * the prefetchers are. */
#include "testing.h"

#include <errno.h>

#include "mining/core/parameters.h"

/* A number as the table writes it: 4096, 8M, on. */
static uint64_t number(const char *text)
{
    char *end;
    uint64_t n = strtoull(text, &end, 10);

    if (strcmp(text, "on") == 0)
        return 1;
    return *end == 'M' ? n << 20 : n;
}

/* What help calls the default is the default, of the preset too. */
TEST(test_defaults)
{
    struct qm_mining_config defaults, paper;

    qm_mining_defaults(&defaults);
    qm_mining_paper(&paper);
    for (unsigned id = 0; id < QM_PARAMETERS; id++) {
        const struct qm_parameter *p = qm_parameter((enum qm_parameter_id)id);

        assert_ptr_equal(qm_parameter_find(p->name), p);
        if (p->kind == QM_FILE || p->kind == QM_WORD || p->check == QM_CHECKED_OR_0)
            continue;
        assert_int_equal(qm_parameter_get(p, &defaults), number(p->fallback));
        assert_int_equal(qm_parameter_get(p, &paper),
                         number(p->paper ? p->paper : p->fallback));
    }
    assert_null(qm_parameter_find("luck"));
}

static void assert_other_fields(const struct qm_mining_config *config)
{
    struct qm_mining_config defaults;

    qm_mining_defaults(&defaults);
    for (unsigned id = 0; id < QM_PARAMETERS; id++) {
        const struct qm_parameter *p = qm_parameter((enum qm_parameter_id)id);

        if (p->kind != QM_FILE && p->kind != QM_WORD)
            assert_int_equal(qm_parameter_get(p, config),
                             qm_parameter_get(p, &defaults));
    }
}

/* Each limit can be set, and nothing but its field changes; where it is checked, what
 * is beyond is refused. */
TEST(test_limits)
{
    struct qm_mining_config config;
    char err[256];

    for (unsigned id = 0; id < QM_PARAMETERS; id++) {
        const struct qm_parameter *p = qm_parameter((enum qm_parameter_id)id);
        uint64_t was;

        if (p->kind == QM_FILE || p->kind == QM_WORD)
            continue;
        qm_mining_defaults(&config);
        was = qm_parameter_get(p, &config);
        qm_parameter_set(p, &config, p->min);
        assert_int_equal(qm_parameter_get(p, &config), p->min);
        assert_int_equal(qm_mining_check(&config, err, sizeof err), 0);
        qm_parameter_set(p, &config, p->max);
        assert_int_equal(qm_parameter_get(p, &config), p->max);
        assert_int_equal(qm_mining_check(&config, err, sizeof err), 0);
        if (p->check != QM_UNCHECKED) {
            qm_parameter_set(p, &config, p->max + 1);
            assert_int_equal(qm_mining_check(&config, err, sizeof err), EINVAL);
            assert_non_null(strstr(err, p->name));
        }
        qm_parameter_set(p, &config, was);
        assert_other_fields(&config);
    }
}

/* The help of a parameter names the policies that heed it, and no others. */
TEST(test_policies)
{
    char text[512];

    qm_parameter_help(qm_parameter(QM_RETRAIN), NULL, text, sizeof text);
    assert_non_null(
        strstr(text, "(0 to 100000000; default 0); for policy mithril cminer+"));
    qm_parameter_help(qm_parameter(QM_RULES_MEMORY), "1M", text, sizeof text);
    assert_non_null(strstr(text, "(64K to 1T; default 1M); for policy "));
    qm_parameter_help(qm_parameter(QM_TRAINED), NULL, text, sizeof text);
    assert_non_null(strstr(text, "(default none); for policy cminer cminer+"));
    for (unsigned id = 0; id < QM_PARAMETERS; id++) {
        assert_false(qm_parameter_heeded(qm_parameter((enum qm_parameter_id)id),
                                         qm_prefetcher_find("none")));
        qm_parameter_help(qm_parameter((enum qm_parameter_id)id), NULL, text, 10);
        assert_true(strlen(text) == 9);
    }
}
