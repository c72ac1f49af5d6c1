/* SPDX-License-Identifier: BSD-3-Clause */
/* trees.c against LightGBM's own answers, to the last bit, and against files that are
 * not as LightGBM writes them.
 *
 * test-trees DIRECTORY: what make-model.py wrote there; without, the one of the tree.
 */
#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lsm/trees.h"

#define FEATURES 18

static const char *directory = MODEL;

static char *whole(const char *name, size_t *len)
{
    char path[4096], *text = malloc(TREES_BYTES);
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(text);
    *len = fread(text, 1, TREES_BYTES - 1, file);
    text[*len] = '\0';
    fclose(file);
    return text;
}

static void compare_all(const struct trees *t)
{
    size_t len;
    char *text = whole("answers.txt", &len), *at = text, *line;
    int rows = 0;

    while ((line = strsep(&at, "\n")) && *line) {
        double row[FEATURES + 4];
        locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        for (int i = 0; i < FEATURES + 4; i++)
            row[i] = strtod_l(line, &line, c);
        freelocale(c);
        for (uint32_t step = 0; step < 2; step++) {
            double score = trees_score(t, step, row),
                   probability = trees_probability(t, step, 1, row);
            assert_memory_equal(&score, &row[FEATURES + 2 * step], sizeof score);
            assert_memory_equal(&probability, &row[FEATURES + 2 * step + 1],
                                sizeof score);
        }
        rows++;
    }
    assert_true(rows > 100);
    free(text);
}

static void test_answers(void **state)
{
    char path[4096], err[200];
    struct trees *t;

    snprintf(path, sizeof path, "%s/model.txt", directory);
    for (int i = 0; i < 2; i++) {
        if (i == 1 && !setlocale(LC_ALL, "de_DE.UTF-8")) /* writes 0,5 */
            break;
        t = trees_read(path, FEATURES, err, sizeof err);
        assert_non_null(t);
        assert_int_equal(trees_steps(t), 2);
        compare_all(t);
        trees_free(t);
    }
    setlocale(LC_ALL, "C");
    assert_null(trees_read("/dev/null", FEATURES, err, sizeof err));
    assert_non_null(strstr(err, "regular"));
    assert_null(trees_read("/nowhere/at/all", FEATURES, err, sizeof err));
    assert_non_null(strstr(err, "/nowhere"));
}

/* One word of the text replaced by another. */
static void expect(const char *old, const char *new, const char *says)
{
    size_t len;
    char *text = whole("model.txt", &len), *at = strstr(text, old), err[200] = "",
         *changed = malloc(len + strlen(new) + 1);
    struct trees *t;

    assert_non_null(at);
    *at = '\0';
    sprintf(changed, "%s%s%s", text, new, at + strlen(old));
    t = trees_parse(changed, strlen(changed), FEATURES, err, sizeof err);
    if (t || !strstr(err, says))
        fail_msg("%s -> %s: '%s', not '%s'", old, new, err, says);
    free(changed);
    free(text);
}

static void test_refused(void **state)
{
    char err[200];
    size_t len;
    char *text = whole("model.txt", &len);

    assert_null(trees_parse(text, len, 17, err, sizeof err));
    assert_non_null(strstr(err, "18 features, not 17"));
    assert_null(trees_parse("", 0, FEATURES, err, sizeof err));
    assert_null(trees_parse("a\0b", 3, FEATURES, err, sizeof err));
    free(text);
    expect("version=v4", "version=v9", "v9");
    expect("num_class=1", "num_class=3", "classes");
    expect("objective=binary sigmoid:1", "objective=regression", "binary");
    expect("objective=binary sigmoid:1", "objective=binary sigmoid:-1", "sigmoid");
    expect("objective=binary sigmoid:1", "", "whole");
    expect("num_leaves=8", "num_leaves=999999", "num_leaves");
    expect("num_leaves=8", "num_leaves=7", "");
    expect("num_leaves=8", "num_leaves=9", "");
    expect("num_leaves=8", "num_leaves=8\nnum_leaves=8", "num_leaves");
    expect("num_cat=0", "num_cat=1", "categories");
    expect("is_linear=0", "is_linear=1", "linear");
    expect("left_child=1 ", "left_child=0 ", "behind");
    expect("left_child=1 ", "left_child=-9 ", "from -8 to 6");
    expect("left_child=1 -1", "left_child=1 -2", "two nodes");
    expect("split_feature=", "split_feature=18 ", "from 0 to 17");
    expect("decision_type=", "decision_type=1 ", "numbers");
    expect("threshold=", "threshold=nan ", "not a number");
    expect("leaf_value=", "leaf_value=inf ", "finite");
    expect("leaf_value=", "leaf_value=0 ", "more numbers");
    expect("leaf_value=", "leaf_none=", "not whole");
    expect("end of trees", "end", "before this one is not whole");
    expect("feature_names=", "average_output\nfeature_names=", "forests");
}

/* Each beginning of a model, and each with one byte changed, is read or refused. */
static void test_damaged(void **state)
{
    static const char bytes[] = "0-9 =\n.ex";
    char err[200];
    size_t len;
    char *text = whole("model.txt", &len);
    double row[FEATURES] = {3};

    if (len > 9000)
        len = 9000;
    for (size_t i = 0; i < len; i++) {
        char old = text[i];
        struct trees *t = trees_parse(text, i, FEATURES, err, sizeof err);
        trees_free(t);
        text[i] = bytes[i % (sizeof bytes - 1)];
        t = trees_parse(text, len, FEATURES, err, sizeof err);
        for (uint32_t step = 0; t && step < trees_steps(t); step++)
            trees_score(t, step, row);
        trees_free(t);
        text[i] = old;
    }
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest own[] = {cmocka_unit_test(test_answers),
                                     cmocka_unit_test(test_refused),
                                     cmocka_unit_test(test_damaged)},
                            given[] = {cmocka_unit_test(test_answers)};

    if (argc > 1) {
        directory = argv[1];
        return cmocka_run_group_tests(given, NULL, NULL);
    }
    return cmocka_run_group_tests(own, NULL, NULL);
}
