/* SPDX-License-Identifier: BSD-3-Clause */
/* trees.c against LightGBM's own answers, to the last bit, against trees of many sizes
 * that the test itself walks, and against files that are not as LightGBM writes them.
 *
 * test-trees DIRECTORY: what make-model.py wrote there; without, the one of the tree.
 */
#include <locale.h>
#include <math.h>
#include <stdio.h>

#include "tests/harness.h"

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

#define MOST 65536

/* A tree as in the file: a child below 0 is a leaf, -1 the first. */
struct walked {
    int n, feature[MOST], decision[MOST], child[2][MOST];
    double threshold[MOST], leaf[MOST];
};

static uint32_t any(uint32_t n)
{
    static uint64_t x = 1;

    x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(x >> 33) % n;
}

/* Zeros, numbers that are taken for zeros, those beside them, and others. */
static double any_number(void)
{
    static const double zeros[] = {0, -0., 1e-35f, -1e-35f, 1e-36, 1, -1, 0.5};
    double x = any(3) ? zeros[any(8)] : (double)any(40) - 10;

    return any(4) ? x : nextafter(x, any(2) ? INFINITY : -INFINITY);
}

/* Splits any leaf, as LightGBM does: the left part keeps its number. */
static void grow(struct walked *w, int leaves)
{
    int parent[MOST] = {0};

    w->n = leaves;
    for (int i = 0; i < leaves; i++)
        w->leaf[i] = any(1000000) / 1e6 - .5;
    for (int i = 0; i < leaves - 1; i++) {
        int leaf = (int)any((uint32_t)i + 1);
        for (int side = 0; i > 0 && side < 2; side++)
            if (w->child[side][parent[leaf]] == -1 - leaf)
                w->child[side][parent[leaf]] = i;
        parent[leaf] = parent[i + 1] = i;
        w->child[0][i] = -1 - leaf;
        w->child[1][i] = -2 - i;
        w->feature[i] = any(2) ? (int)any(FEATURES - 1) : 0; /* not the last */
        w->decision[i] = (int)any(6) * 2;
        w->threshold[i] = any_number();
    }
}

/* LightGBM's rule, node by node. */
static double walk(const struct walked *w, const double *row)
{
    int i = w->n > 1 ? 0 : -1;

    while (i >= 0) {
        int missing = w->decision[i] >> 2;
        double x = row[w->feature[i]];
        if (isnan(x) && missing != 2)
            x = 0;
        if (missing == 2 ? isnan(x) : missing == 1 && fabs(x) <= (double)1e-35f)
            i = w->child[!(w->decision[i] & 2)][i];
        else
            i = w->child[!(x <= w->threshold[i])][i];
    }
    return w->leaf[-1 - i];
}

static void write_head(FILE *file)
{
    fprintf(file, "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\n"
                  "max_feature_idx=17\nobjective=binary sigmoid:1\n\n");
}

static void write_tree(FILE *file, const struct walked *w)
{
    fprintf(file, "Tree=0\nnum_leaves=%d\nnum_cat=0", w->n);
    if (w->n > 1) {
        fprintf(file, "\nsplit_feature=");
        for (int i = 0; i < w->n - 1; i++)
            fprintf(file, "%d ", w->feature[i]);
        fprintf(file, "\nthreshold=");
        for (int i = 0; i < w->n - 1; i++)
            fprintf(file, "%.17g ", w->threshold[i]);
        fprintf(file, "\ndecision_type=");
        for (int i = 0; i < w->n - 1; i++)
            fprintf(file, "%d ", w->decision[i]);
        for (int side = 0; side < 2; side++) {
            fprintf(file, "\n%s_child=", side ? "right" : "left");
            for (int i = 0; i < w->n - 1; i++)
                fprintf(file, "%d ", w->child[side][i]);
        }
    }
    fprintf(file, "\nleaf_value=");
    for (int i = 0; i < w->n; i++)
        fprintf(file, "%.17g ", w->leaf[i]);
    fprintf(file, "\n\n");
}

static void test_walked(void **state)
{
    static const int leaves[] = {1, 2, 31, 32, 33, 64, 65, 200, 5000, 9};
    enum { MODELS = 3, TREES = 150, ROWS = 300 };
    static double row[ROWS][FEATURES], sum[MODELS][ROWS];
    struct walked *w = malloc(sizeof *w);
    char *text, err[200];
    size_t len;
    FILE *file = open_memstream(&text, &len);
    struct trees *t;

    assert_non_null(w);
    assert_non_null(file);
    for (int i = 0; i < ROWS; i++)
        for (int f = 0; f < FEATURES; f++)
            row[i][f] = any(20)  ? any_number()
                        : any(2) ? (double)NAN
                        : any(2) ? INFINITY
                                 : -INFINITY;
    for (int m = 0; m < MODELS; m++) {
        write_head(file);
        for (int k = 0; k < TREES; k++) {
            /* The first model has but trees of a leaf. */
            grow(w, m == 0 ? 1 : k % 10 ? 31 : leaves[k / 10 % 10]);
            write_tree(file, w);
            for (int i = 0; i < ROWS; i++)
                sum[m][i] += walk(w, row[i]);
        }
        fprintf(file, "end of trees\n\n");
    }
    fclose(file);
    t = trees_parse(text, len, FEATURES, err, sizeof err);
    if (!t)
        fail_msg("%s", err);
    for (int i = 0; i < ROWS; i++) {
        double most = 0;
        for (uint32_t m = 0; m < MODELS; m++) {
            double score = trees_score(t, m, row[i]), p = 1 / (1 + exp(-sum[m][i]));
            assert_memory_equal(&score, &sum[m][i], sizeof score);
            most = m > 0 && p > most ? p : most;
        }
        assert_true(trees_probability(t, 1, MODELS, row[i]) == most);
        assert_true(trees_probability(t, 0, 1, row[i]) == 1 / (1 + exp(-sum[0][i])));
    }
    trees_free(t);
    free(text);
    free(w);
}

/* One tree whose rows would need 65,538 times 8 KiB; one that is a chain, so that each
 * of 8,000 nodes has half of the leaves below it: 8,000 rows times 4,000 leaves each.
 */
static void test_too_large(void **state)
{
    for (int chain = 0; chain < 2; chain++) {
        struct walked *w = malloc(sizeof *w);
        char *text, err[200];
        size_t len;
        FILE *file = open_memstream(&text, &len);

        assert_non_null(w);
        assert_non_null(file);
        grow(w, chain ? 8000 : MOST);
        for (int i = 0; i < w->n - 1; i++) {
            w->feature[i] = 0;
            w->decision[i] = 0;
            w->threshold[i] = i;
            if (chain) {
                w->child[0][i] = -1 - i;
                w->child[1][i] = i + 2 < w->n ? i + 1 : -2 - i;
            }
        }
        write_head(file);
        write_tree(file, w);
        fprintf(file, "end of trees\n");
        fclose(file);
        assert_null(trees_parse(text, len, FEATURES, err, sizeof err));
        assert_non_null(strstr(err, "more than 512 MiB"));
        assert_null(trees_parse(text, len, 33, err, sizeof err));
        assert_non_null(strstr(err, "more than 32 features"));
        free(text);
        free(w);
    }
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
                                     cmocka_unit_test(test_walked),
                                     cmocka_unit_test(test_too_large),
                                     cmocka_unit_test(test_damaged)},
                            given[] = {cmocka_unit_test(test_answers)};

    if (argc > 1) {
        directory = argv[1];
        return cmocka_run_group_tests(given, NULL, NULL);
    }
    return cmocka_run_group_tests(own, NULL, NULL);
}
