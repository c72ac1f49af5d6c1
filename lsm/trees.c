/* SPDX-License-Identifier: BSD-3-Clause */
/* trees.c - see trees.h.
 *
 * Reads the file; masks.c evaluates.  A node is one child's of a node before it, and a
 * leaf likewise: so it is a tree, whatever the file says. */
#include "lsm/trees.h"
#include "lsm/masks.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEAVES       65536u /* of a tree */
#define DEFAULT_LEFT 2u

struct trees {
    double sigmoid[TREES_STEPS];
    uint32_t n; /* models */
    struct masks *masks;
};

/* What is being read. */
struct reader {
    char *at, *end;
    unsigned long line;
    uint32_t features;
    struct tree *trees; /* of all models */
    uint32_t n, room;
    uint32_t begin[TREES_STEPS + 1]; /* of each model, its first tree */
    locale_t locale;
    char *err;
    size_t err_len;
};

__attribute__((format(printf, 2, 3))) static int wrong(struct reader *r,
                                                       const char *format, ...)
{
    va_list list;
    int n = snprintf(r->err, r->err_len, "line %lu: ", r->line);

    if (n >= 0 && (size_t)n < r->err_len) {
        va_start(list, format);
        vsnprintf(r->err + n, r->err_len - (size_t)n, format, list);
        va_end(list);
    }
    return -1;
}

/* The next line, without its end; NULL behind the last. */
static char *next_line(struct reader *r)
{
    char *line = r->at, *end;

    if (line >= r->end)
        return NULL;
    end = memchr(line, '\n', (size_t)(r->end - line));
    if (!end)
        end = r->end;
    r->at = end + 1;
    r->line++;
    if (end > line && end[-1] == '\r')
        end[-1] = '\0';
    *end = '\0';
    return line;
}

/* The value of a line key=value, or NULL. */
static char *value_of(char *line, const char *key)
{
    size_t len = strlen(key);

    return strncmp(line, key, len) == 0 && line[len] == '=' ? line + len + 1 : NULL;
}

static int integer(struct reader *r, char **at, long low, long high, long *out)
{
    char *end;

    errno = 0;
    *out = strtol(*at, &end, 10);
    if (end == *at || errno || *out < low || *out > high || (*end && *end != ' '))
        return wrong(r, "not a number from %ld to %ld", low, high);
    *at = end + strspn(end, " ");
    return 0;
}

static int one_integer(struct reader *r, char *at, long low, long high, long *out)
{
    if (integer(r, &at, low, high, out) != 0)
        return -1;
    return *at ? wrong(r, "more than one number") : 0;
}

static int real(struct reader *r, char **at, double *out)
{
    char *end;

    *out = strtod_l(*at, &end, r->locale);
    if (end == *at || isnan(*out) || (*end && *end != ' '))
        return wrong(r, "not a number");
    *at = end + strspn(end, " ");
    return 0;
}

enum { FEATURE, THRESHOLD, DECISION, LEFT, RIGHT, LEAF, ARRAYS };
static const char *const arrays[] = {"split_feature", "threshold",   "decision_type",
                                     "left_child",    "right_child", "leaf_value"};

/* One of the lines of numbers. */
static int read_array(struct reader *r, struct tree *t, int which, char *at)
{
    uint32_t n = which == LEAF ? t->n : t->n - 1;

    for (uint32_t i = 0; i < n; i++) {
        struct node *node = &t->nodes[which == LEAF ? t->n - 1 + i : i];
        long x = 0;
        int e;
        switch (which) {
        case FEATURE:
            e = integer(r, &at, 0, (long)r->features - 1, &x);
            node->feature = (uint32_t)x;
            break;
        case THRESHOLD:
            e = real(r, &at, &node->threshold);
            break;
        case DECISION:
            e = integer(r, &at, 0, 255, &x);
            if (e == 0 && (x & 1 || x >> 2 > MISSING_NAN))
                e = wrong(r, "a decision that is not by numbers");
            node->missing = (uint8_t)(x >> 2);
            node->default_right = !(x & DEFAULT_LEFT);
            break;
        case LEFT:
        case RIGHT:
            e = integer(r, &at, -(long)t->n, (long)n - 1, &x);
            if (e == 0 && x >= 0 && x <= (long)i)
                e = wrong(r, "a child that is not behind its parent");
            /* The file has -1 for leaf 0, -2 for leaf 1. */
            node->child[which == RIGHT] = (uint32_t)(x >= 0 ? x : (long)n - 1 - x);
            if (e == 0 && t->nodes[node->child[which == RIGHT]].parents++ > 0)
                e = wrong(r, "a child of two nodes");
            break;
        default:
            e = real(r, &at, &node->threshold);
            if (e == 0 && isinf(node->threshold))
                e = wrong(r, "a leaf that is not finite");
            break;
        }
        if (e != 0)
            return -1;
    }
    return *at ? wrong(r, "%s has more numbers than the tree", arrays[which]) : 0;
}

/* Counts leaves below each node, and those to the left of it. */
static void count_leaves(struct tree *t)
{
    struct node *nodes = t->nodes;

    for (uint32_t i = 2 * t->n - 1; i-- > 0;)
        nodes[i].leaves = i >= t->n - 1 ? 1
                                        : nodes[nodes[i].child[0]].leaves +
                                              nodes[nodes[i].child[1]].leaves;
    for (uint32_t i = 0; i < t->n - 1; i++) {
        struct node *left = &nodes[nodes[i].child[0]];
        left->first = nodes[i].first;
        nodes[nodes[i].child[1]].first = nodes[i].first + left->leaves;
    }
}

/* Behind the line Tree=; up to the empty one. */
static int read_tree(struct reader *r, struct tree *t)
{
    unsigned seen = 0, needed;
    char *line, *value;
    long n;

    while ((line = next_line(r)) && *line) {
        if ((value = value_of(line, "num_leaves"))) {
            if (t->n > 0 || one_integer(r, value, 1, LEAVES, &n) != 0)
                return wrong(r, "num_leaves is not one number from 1 to %u", LEAVES);
            t->n = (uint32_t)n;
            t->nodes = calloc(2 * t->n - 1, sizeof *t->nodes);
            if (!t->nodes)
                return wrong(r, "no memory");
        } else if ((value = value_of(line, "num_cat")) && strcmp(value, "0") != 0) {
            return wrong(r, "trees with categories are not supported");
        } else if ((value = value_of(line, "is_linear")) && strcmp(value, "0") != 0) {
            return wrong(r, "linear trees are not supported");
        }
        for (int i = 0; i < ARRAYS; i++) {
            if (!(value = value_of(line, arrays[i])))
                continue;
            if (t->n == 0 || seen & 1u << i)
                return wrong(r, "%s comes twice or before num_leaves", arrays[i]);
            if ((t->n > 1 || i == LEAF) && read_array(r, t, i, value) != 0)
                return -1;
            seen |= 1u << i;
        }
    }
    needed = t->n > 1 ? (1u << ARRAYS) - 1 : 1u << LEAF;
    if ((seen & needed) != needed || t->n == 0)
        return wrong(r, "the tree is not whole");
    count_leaves(t);
    return 0;
}

static struct tree *add_tree(struct reader *r)
{
    if (r->n == r->room) {
        uint32_t room = r->room ? r->room * 2 : 64;
        struct tree *trees = realloc(r->trees, room * sizeof *trees);
        if (!trees)
            return NULL;
        r->trees = trees;
        r->room = room;
    }
    memset(&r->trees[r->n], 0, sizeof *r->trees);
    return &r->trees[r->n++];
}

static int objective(struct reader *r, double *sigmoid, char *value)
{
    static const char binary[] = "binary sigmoid:";
    char *at = value + sizeof binary - 1;

    if (strncmp(value, binary, sizeof binary - 1) != 0)
        return wrong(r, "the objective is not binary");
    if (real(r, &at, sigmoid) != 0 || *at || !(*sigmoid > 0) || isinf(*sigmoid))
        return wrong(r, "sigmoid is not a number above 0");
    return 0;
}

/* Behind the line "tree", up to "end of trees". */
static int read_model(struct reader *r, double *sigmoid)
{
    bool version = false, whole = false, features = false;
    char *line, *value;
    uint32_t before = r->n;
    struct tree *t;
    long n;

    while (!whole && (line = next_line(r))) {
        if ((value = value_of(line, "version"))) {
            version = strcmp(value, "v3") == 0 || strcmp(value, "v4") == 0;
            if (!version)
                return wrong(r, "version %.20s is neither v3 nor v4", value);
        } else if ((value = value_of(line, "num_class")) ||
                   (value = value_of(line, "num_tree_per_iteration"))) {
            if (strcmp(value, "1") != 0)
                return wrong(r, "several classes are not supported");
        } else if ((value = value_of(line, "max_feature_idx"))) {
            if (one_integer(r, value, 0, INT32_MAX - 1, &n) != 0)
                return -1;
            if (n + 1 != (long)r->features)
                return wrong(r, "the model is of %ld features, not %u", n + 1,
                             r->features);
            features = true;
        } else if ((value = value_of(line, "objective"))) {
            if (objective(r, sigmoid, value) != 0)
                return -1;
        } else if (strcmp(line, "tree") == 0) {
            return wrong(r, "the model before this one is not whole");
        } else if (strcmp(line, "average_output") == 0) {
            return wrong(r, "random forests are not supported");
        } else if (value_of(line, "Tree")) {
            if (!(t = add_tree(r)))
                return wrong(r, "no memory");
            if (!features || read_tree(r, t) != 0)
                return features ? -1 : wrong(r, "max_feature_idx is missing");
        } else {
            whole = strcmp(line, "end of trees") == 0;
        }
    }
    if (!whole || !version || !features || !(*sigmoid > 0) || r->n == before)
        return wrong(r, "the model is not whole");
    return 0;
}

static int read_models(struct reader *r, struct trees *trees)
{
    char *line;

    while ((line = next_line(r))) {
        if (strcmp(line, "tree") != 0)
            continue;
        if (trees->n == TREES_STEPS)
            return wrong(r, "more than %u models", TREES_STEPS);
        if (read_model(r, &trees->sigmoid[trees->n++]) != 0)
            return -1;
        r->begin[trees->n] = r->n;
    }
    if (trees->n == 0)
        return wrong(r, "no model of LightGBM's");
    trees->masks = masks_new(r->trees, r->begin, trees->n, r->features);
    if (!trees->masks && errno == EFBIG)
        return wrong(r, "the trees are too large: more than %u MiB, or seconds to read",
                     MASKS_BYTES >> 20);
    return trees->masks ? 0 : wrong(r, "no memory");
}

struct trees *trees_parse(const char *text, size_t len, uint32_t features, char *err,
                          size_t err_len)
{
    struct reader r = {.features = features, .err = err, .err_len = err_len};
    struct trees *trees = calloc(1, sizeof *trees);
    char *copy = len <= TREES_BYTES ? malloc(len + 1) : NULL;
    int e = -1;

    /* The program's locale may write numbers otherwise. */
    r.locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (len > TREES_BYTES) {
        wrong(&r, "more than %u MiB", TREES_BYTES >> 20);
    } else if (features > MASKS_FEATURES) {
        wrong(&r, "more than %u features", MASKS_FEATURES);
    } else if (!trees || !copy || !r.locale) {
        wrong(&r, "no memory");
    } else if (memchr(text, '\0', len)) {
        wrong(&r, "not a text");
    } else {
        memcpy(copy, text, len);
        r.at = copy;
        r.end = copy + len;
        e = read_models(&r, trees);
    }
    free(copy);
    for (uint32_t i = 0; i < r.n; i++)
        free(r.trees[i].nodes);
    free(r.trees);
    if (r.locale)
        freelocale(r.locale);
    if (e == 0)
        return trees;
    trees_free(trees);
    return NULL;
}

struct trees *trees_read(const char *path, uint32_t features, char *err, size_t err_len)
{
    struct trees *trees = NULL;
    struct stat st;
    size_t have = 0;
    char *text;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd == -1 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        snprintf(err, err_len, "%s: %s", path,
                 fd == -1 ? strerror(errno) : "not a regular file");
        if (fd != -1)
            close(fd);
        return NULL;
    }
    if (st.st_size > (off_t)TREES_BYTES)
        snprintf(err, err_len, "more than %u MiB", TREES_BYTES >> 20);
    text = st.st_size > (off_t)TREES_BYTES ? NULL : malloc((size_t)st.st_size + 1);
    while (text && have < (size_t)st.st_size &&
           (n = read(fd, text + have, (size_t)st.st_size - have)) > 0)
        have += (size_t)n;
    close(fd);
    if (text)
        trees = trees_parse(text, have, features, err, err_len);
    else if (st.st_size <= (off_t)TREES_BYTES)
        snprintf(err, err_len, "no memory");
    free(text);
    return trees;
}

void trees_free(struct trees *trees)
{
    if (trees)
        masks_free(trees->masks);
    free(trees);
}

uint32_t trees_steps(const struct trees *trees)
{
    return trees->n;
}

double trees_score(const struct trees *trees, uint32_t step, const double *features)
{
    uint32_t bins[MASKS_FEATURES];

    masks_bins(trees->masks, features, bins);
    return masks_sum(trees->masks, step, bins);
}

double trees_probability(const struct trees *trees, uint32_t from, uint32_t steps,
                         const double *features)
{
    uint32_t bins[MASKS_FEATURES];
    double most = 0;

    masks_bins(trees->masks, features, bins);
    for (uint32_t i = from; i < from + steps && i < trees->n; i++)
        most = fmax(most, 1. / (1. + exp(-trees->sigmoid[i] *
                                         masks_sum(trees->masks, i, bins))));
    return most;
}
