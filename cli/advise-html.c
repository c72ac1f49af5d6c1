/* SPDX-License-Identifier: BSD-3-Clause */
/* advise-html.c - the advice of quickmine advise as a page: one file, with nothing from
 * elsewhere and no script, light or dark as the reader's device wants it.
 *
 * Names of classes come from a database's clients, and file names from anybody: all
 * text goes through put_text(), which leaves nothing that HTML or an attribute could
 * see; and the page's policy (CSP) lets nothing be loaded or run.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/advise.h"
#include "cli/cli.h"
#include "trace/text.h"

enum { CLASSES_SHOWN = 50 };

#define TITLE "<title>QuickMine: advice</title>"

static const char HEAD[] =
    "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
    "style-src 'unsafe-inline'; img-src data:\">\n" TITLE
    "\n<link rel=\"icon\" href=\"data:,\">\n<style>\n"
    ":root { --page: #f7f8fa; --card: #fff; --text: #1b2430; --dim: #5b6675;\n"
    "  --line: #dde2e8; --plain: #b4561c; --ahead: #2f7ebc; --good: #1f7d54;\n"
    "  --bad: #b4471c; }\n"
    "@media (prefers-color-scheme: dark) { :root { --page: #12161b; --card: #1b2128;\n"
    "  --text: #e4e9ee; --dim: #98a4b1; --line: #323b45; --plain: #ee8c58;\n"
    "  --ahead: #5aa9e6; --good: #4cc38f; --bad: #f09a6a; } }\n"
    "* { box-sizing: border-box; }\n"
    "body { margin: 0; background: var(--page); color: var(--text);\n"
    "  font: 15px/1.45 system-ui, -apple-system, \"Segoe UI\", Roboto, sans-serif; }\n"
    "main { max-width: 1100px; margin: 0 auto; padding: 16px; }\n"
    "h1 { font-size: 21px; margin: 0 0 12px; overflow-wrap: anywhere; }\n"
    "h2 { font-size: 15px; margin: 0 0 8px; }\n"
    "section, .card { background: var(--card); border: 1px solid var(--line);\n"
    "  border-radius: 8px; padding: 12px; margin-bottom: 10px; }\n"
    ".verdict { border-left: 6px solid var(--bad); font-size: 17px; }\n"
    ".verdict.pays { border-left-color: var(--good); }\n"
    ".cards, .charts { display: grid; gap: 10px; }\n"
    ".cards { grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }\n"
    ".charts { grid-template-columns: repeat(auto-fit, minmax(min(100%, 340px), 1fr)); "
    "}\n"
    ".card b { display: block; font-size: 20px; }\n"
    ".card span, .note { color: var(--dim); font-size: 13px; }\n"
    "svg { display: block; width: 100%; height: auto; }\n"
    "svg text { fill: var(--dim); font-size: 11px; }\n"
    ".grid { stroke: var(--line); }\n"
    ".mark { stroke: var(--dim); stroke-dasharray: 3 3; }\n"
    ".curve { fill: none; stroke-width: 2; stroke-linejoin: round; }\n"
    ".plain { stroke: var(--plain); } .ahead { stroke: var(--ahead); }\n"
    "circle.plain { fill: var(--plain); } circle.ahead { fill: var(--ahead); }\n"
    ".legend { font-size: 13px; color: var(--dim); }\n"
    ".legend i { display: inline-block; width: 12px; height: 3px; margin: 0 5px 3px 0; "
    "}\n"
    ".legend i + i, .legend .b { margin-left: 14px; }\n"
    "i.plain { background: var(--plain); } i.ahead { background: var(--ahead); }\n"
    ".scroll { overflow-x: auto; }\n"
    "table { border-collapse: collapse; width: 100%;\n"
    "  font-variant-numeric: tabular-nums; font-size: 14px; }\n"
    "th, td { text-align: right; padding: 4px 8px; white-space: nowrap;\n"
    "  border-bottom: 1px solid var(--line); }\n"
    "th { color: var(--dim); font-weight: 500; font-size: 13px; }\n"
    "td.name, th.name { text-align: left; white-space: normal; overflow-wrap: "
    "anywhere;\n"
    "  min-width: 130px; }\n"
    "tr.advised td { font-weight: 600; }\n"
    ".gains { color: var(--good); } .loses { color: var(--bad); }\n"
    "@media (max-width: 560px) { main { padding: 10px; } .wide { display: none; }\n"
    "  .cards { grid-template-columns: 1fr 1fr; } th, td { padding: 4px 5px; } }\n"
    "</style>\n</head>\n<body>\n<main>\n";

static const char TAIL[] =
    "<p class=\"note\">These figures are simulated: the server's own cache and mining "
    "code, in the time of a model of the backend, with the reads as they were "
    "recorded. "
    "Writes are not simulated. Plain caching is the best "
    "of several eviction policies without prefetching; memory includes metadata and "
    "rules.</p>\n</main>\n</body>\n</html>\n";

/* Any text, as text: also within an attribute. */
static void put_text(FILE *to, const char *text)
{
    size_t len = strlen(text);
    char *copy = malloc(len + 1);

    if (!copy) {
        fputc('?', to);
        return;
    }
    len = qm_text_clean(copy, text, len, false);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)copy[i];

        if (strchr("&<>\"'`=", c) && c)
            fprintf(to, "&#%u;", c);
        else
            fputc(c, to);
    }
    free(copy);
}

/* ---- charts */

enum { WIDTH = 360, HEIGHT = 210, LEFT = 56, RIGHT = 14, TOP = 10, BOTTOM = 38 };

/* Of a chart: what of a cost it shows, and how that is written. */
struct chart {
    const char *title;
    double (*value)(const struct qm_advise_cost *cost);
    const char *(*write)(double value, char text[24]);
    double most;
};

static double mean_of(const struct qm_advise_cost *cost)
{
    return cost->mean_us;
}

static double misses_of(const struct qm_advise_cost *cost)
{
    return cost->misses * 100;
}

static const char *write_percent(double value, char text[24])
{
    snprintf(text, 24, value < 10 && value != 0 ? "%.1f %%" : "%.0f %%", value);
    return text;
}

static double x_of(const struct advise_report *r, size_t i)
{
    const struct qm_advise_point *p = r->points;
    const size_t last = r->input.count - 1;
    double width = WIDTH - LEFT - RIGHT;

    if (last == 0)
        return LEFT + width / 2;
    return LEFT + width * log((double)p[i].memory / (double)p[0].memory) /
                      log((double)p[last].memory / (double)p[0].memory);
}

static double y_of(const struct chart *c, double value)
{
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / c->most);
}

/* The next of 1, 2, 5, 10, 20, ... */
static double tidy(double most)
{
    double power = most > 0 ? pow(10, floor(log10(most))) : 1;

    if (most <= power)
        return power;
    return most <= 2 * power ? 2 * power : most <= 5 * power ? 5 * power : 10 * power;
}

static const struct qm_advise_cost *cost_at(const struct advise_report *r, size_t i,
                                            bool ahead)
{
    return ahead ? &r->points[i].ahead : &r->points[i].plain;
}

static void put_curve(FILE *to, const struct advise_report *r, const struct chart *c,
                      bool ahead)
{
    const char *klass = ahead ? "ahead" : "plain";

    fprintf(to, "<polyline class=\"curve %s\" points=\"", klass);
    for (size_t i = 0; i < r->input.count; i++)
        fprintf(to, "%.1f,%.1f ", x_of(r, i), y_of(c, c->value(cost_at(r, i, ahead))));
    fprintf(to, "\"/>\n");
    for (size_t i = 0; i < r->input.count; i++) {
        double value = c->value(cost_at(r, i, ahead));
        char size[24], text[24];

        fprintf(to,
                "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>%s, %s: "
                "%s</title></circle>\n",
                klass, x_of(r, i), y_of(c, value),
                qm_advise_size(r->points[i].memory, size),
                ahead ? r->input.policy : "plain", c->write(value, text));
    }
}

static void put_chart(FILE *to, const struct advise_report *r, struct chart *c)
{
    const size_t count = r->input.count, every = count <= 4 ? 1 : (count + 2) / 4;
    char text[24];

    c->most = 0;
    for (size_t i = 0; i < count; i++)
        c->most = fmax(c->most, fmax(c->value(cost_at(r, i, false)),
                                     c->value(cost_at(r, i, true))));
    c->most = tidy(c->most);
    fprintf(to,
            "<section><h2>%s</h2>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"%s by memory\">\n",
            c->title, WIDTH, HEIGHT, c->title);
    for (int i = 0; i <= 2; i++) {
        double y = y_of(c, c->most * i / 2);

        fprintf(to,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                LEFT, WIDTH - RIGHT, y, y, LEFT - 5, y + 4,
                i == 0 ? "0" : c->write(c->most * i / 2, text));
    }
    fprintf(to, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n",
            x_of(r, r->advice.advised), x_of(r, r->advice.advised), TOP,
            HEIGHT - BOTTOM);
    for (size_t i = 0; i < count; i++)
        if ((count - 1 - i) % every == 0)
            fprintf(to, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                    x_of(r, i), HEIGHT - BOTTOM + 15,
                    i == count - 1 && count > 1 ? "end" : "middle",
                    qm_advise_size(r->points[i].memory, text));
    fprintf(to, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">memory</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6);
    put_curve(to, r, c, false);
    put_curve(to, r, c, true);
    fprintf(to,
            "</svg>\n<div class=\"legend\"><i class=\"plain\"></i>plain caching"
            "<i class=\"ahead b\"></i>policy=%s (dashed: advised)</div></section>\n",
            r->input.policy);
}

/* ---- tables */

static void put_gain(FILE *to, double gain)
{
    fprintf(to, "<td class=\"%s\">%.1f %%</td>",
            gain >= QM_ADVISE_GAIN    ? "gains"
            : gain <= -QM_ADVISE_GAIN ? "loses"
                                      : "",
            100 * gain);
}

static void put_points(FILE *to, const struct advise_report *r)
{
    char size[24], a[24], b[24], c[24];

    fprintf(
        to,
        "<section><h2>By memory</h2><div class=\"scroll\"><table>\n<tr><th "
        "class=\"name\">memory</th><th class=\"wide\">misses, plain</th><th "
        "class=\"wide\">%s</th><th>mean read, "
        "plain</th><th>%s</th><th class=\"wide\">99 %%, plain</th><th "
        "class=\"wide\">%s</th><th class=\"wide\">best plain</th><th>gain</th></tr>\n",
        r->input.policy, r->input.policy, r->input.policy);
    fprintf(to,
            "<tr><td class=\"name\">no cache</td><td class=\"wide\">%.1f %%</td><td "
            "class=\"wide\"></td><td>%s</td>"
            "<td></td><td class=\"wide\">%s</td><td class=\"wide\"></td><td "
            "class=\"wide\"></td><td></td></tr>\n",
            100 * r->input.none.misses, qm_advise_time(r->input.none.mean_us, a),
            qm_advise_time(r->input.none.p99_us, b));
    for (size_t i = 0; i < r->input.count; i++) {
        const struct qm_advise_point *p = &r->points[i];

        fprintf(to,
                "<tr%s><td class=\"name\">%s</td><td class=\"wide\">%.1f %%</td><td "
                "class=\"wide\">%.1f %%</td>",
                i == r->advice.advised ? " class=\"advised\"" : "",
                qm_advise_size(p->memory, size), 100 * p->plain.misses,
                100 * p->ahead.misses);
        fprintf(to, "<td>%s</td><td>%s</td><td class=\"wide\">%s</td>",
                qm_advise_time(p->plain.mean_us, a),
                qm_advise_time(p->ahead.mean_us, b),
                qm_advise_time(p->plain.p99_us, c));
        fprintf(to, "<td class=\"wide\">%s</td><td class=\"wide\">%s</td>",
                qm_advise_time(p->ahead.p99_us, a), p->plain.eviction);
        put_gain(to, qm_advise_gain(&p->plain, &p->ahead));
        fprintf(to, "</tr>\n");
    }
    fprintf(to, "</table></div></section>\n");
}

static double per(double part, uint64_t whole)
{
    return whole ? part / (double)whole : 0;
}

static void put_classes(FILE *to, const struct advise_report *r)
{
    size_t n = r->class_count < CLASSES_SHOWN ? r->class_count : CLASSES_SHOWN;
    char size[24], a[24], b[24];

    if (n == 0)
        return;
    fprintf(
        to,
        "<section><h2>What classes gain, with %s</h2><div class=\"scroll\"><table>\n"
        "<tr><th class=\"name\">class</th><th class=\"wide\">reads</th><th "
        "class=\"wide\">misses, "
        "plain</th><th class=\"wide\">%s</th><th>mean read, plain</th>"
        "<th>%s</th><th>gain</th></tr>\n",
        qm_advise_size(r->class_memory, size), r->input.policy, r->input.policy);
    for (size_t i = 0; i < n; i++) {
        const struct advise_class *c = &r->classes[i];

        fprintf(to, "<tr><td class=\"name\">");
        put_text(to, c->name ? c->name : "(none)");
        fprintf(to,
                "</td><td class=\"wide\">%" PRIu64
                "</td><td class=\"wide\">%.1f %%</td><td class=\"wide\">%.1f %%</td>"
                "<td>%s</td><td>%s</td>",
                c->requests, 100 * per((double)c->plain_misses, c->plain_blocks),
                100 * per((double)c->ahead_misses, c->ahead_blocks),
                qm_advise_time(per(c->plain_us, c->requests), a),
                qm_advise_time(per(c->ahead_us, c->requests), b));
        put_gain(to, c->plain_us > 0 ? 1 - c->ahead_us / c->plain_us : 0);
        fprintf(to, "</tr>\n");
    }
    fprintf(to, "</table></div>");
    if (n < r->class_count)
        fprintf(to, "<p class=\"note\">and %zu more</p>", r->class_count - n);
    fprintf(to, "</section>\n");
}

/* ---- the page */

static void put_card(FILE *to, const char *what, const char *value, const char *note)
{
    fprintf(to, "<div class=\"card\"><span>%s</span><b>", what);
    put_text(to, value);
    fprintf(to, "</b><span>");
    put_text(to, note);
    fprintf(to, "</span></div>\n");
}

static void put_cards(FILE *to, const struct advise_report *r)
{
    const struct qm_advice *a = &r->advice;
    const struct qm_advise_point *p = &r->points[a->advised];
    const struct qm_advise_cost *c = a->prefetch ? &p->ahead : &p->plain;
    char value[24], other[24], note[64];

    fprintf(to, "<div class=\"cards\">\n");
    snprintf(note, sizeof note, "knee at %s",
             qm_advise_size(r->points[a->knee].memory, other));
    put_card(to, "Memory advised", qm_advise_size(p->memory, value), note);
    snprintf(note, sizeof note, "level %s, eviction %s", r->input.level, c->eviction);
    put_card(to, "Policy", a->prefetch ? r->input.policy : "none", note);
    snprintf(note, sizeof note, "%s without a cache",
             qm_advise_time(r->input.none.mean_us, other));
    put_card(to, "Mean read", qm_advise_time(c->mean_us, value), note);
    write_percent(100 * c->misses, value);
    snprintf(note, sizeof note, "%.2f blocks from the backend for one", c->device);
    put_card(to, "Misses", value, note);
    fprintf(to, "</div>\n");
}

static void put_report(FILE *to, const struct advise_report *r)
{
    struct chart mean = {"Mean time of a read", mean_of, qm_advise_time, 0};
    struct chart misses = {"Blocks missed", misses_of, write_percent, 0};
    char all[24], part[24], think[24];

    fprintf(to, "<h1>");
    put_text(to, r->request->name);
    fprintf(to, "</h1>\n<section class=\"verdict%s\">QuickMine ",
            r->advice.pays ? " pays" : "");
    put_text(to, r->advice.sentence);
    fprintf(to, ".</section>\n");
    put_cards(to, r);
    fprintf(to, "<div class=\"charts\">\n");
    put_chart(to, r, &mean);
    put_chart(to, r, &misses);
    fprintf(to, "</div>\n");
    put_points(to, r);
    put_classes(to, r);
    fprintf(
        to,
        "<p class=\"note\">%" PRIu64 " reads and %" PRIu64
        " writes in %.0f s; what was read is %s. Simulated: the last %" PRIu64
        " reads, of %s, the second half of which counts; %u clients, %s between their "
        "reads. Backend: ",
        r->reads, r->writes, r->seconds, qm_advise_size(r->footprint, all),
        r->simulated, qm_advise_size(r->simulated_footprint, part), r->clients,
        qm_advise_time((double)r->think_us, think));
    put_text(to, r->request->backend);
    fprintf(to, ".</p>\n");
}

/* The name of a file beside the page, to be made by mkstemp(); NULL: out of memory. */
static char *name_beside(const char *path)
{
    char *name;

    return asprintf(&name, "%s.XXXXXX", path) == -1 ? NULL : name;
}

/* Whether what is there may be replaced: it is empty, or such a page. */
static bool is_page(const char *path)
{
    char text[1024];
    FILE *from = fopen(path, "re");
    size_t n = from ? fread(text, 1, sizeof text, from) : 1;

    if (from)
        fclose(from);
    return n == 0 || (from && memmem(text, n, TITLE, strlen(TITLE)));
}

/* Whether the page can be put in its place later. */
static int try_beside(const char *path)
{
    char *name = name_beside(path);
    int fd = name ? mkstemp(name) : -1, error = name ? errno : ENOMEM;

    if (fd != -1) {
        close(fd);
        unlink(name);
    }
    free(name);
    return fd == -1 ? cli_fail("%s: %s", path, strerror(error)) : CLI_OK;
}

int advise_html_open(const char *path, struct advise_html *html)
{
    struct stat st;

    html->mode = 0600;
    if (stat(path, &st) == -1 && errno == ENOENT) {
        html->path = strdup(path);
    } else {
        /* What a link leads to is replaced, not the link. */
        html->path = realpath(path, NULL);
        if (!html->path || stat(html->path, &st) == -1)
            return cli_fail("%s: %s", path, strerror(errno));
        if (!S_ISREG(st.st_mode))
            return cli_fail("--html %s: not a regular file", path);
        if (!is_page(path))
            return cli_fail("--html %s: it holds something else than a page of "
                            "quickmine advise; give another path",
                            path);
        html->mode = st.st_mode & 0777;
    }
    return html->path ? try_beside(html->path) : cli_fail("out of memory");
}

int advise_html_write(struct advise_html *html, const struct advise_report *reports,
                      size_t count)
{
    char *name = name_beside(html->path);
    int fd = name ? mkostemp(name, O_CLOEXEC) : -1, error = 0;
    FILE *to = fd == -1 ? NULL : fdopen(fd, "w");

    if (!to) {
        error = name ? errno : ENOMEM;
    } else {
        fputs(HEAD, to);
        for (size_t i = 0; i < count; i++)
            put_report(to, &reports[i]);
        fputs(TAIL, to);
        if (ferror(to) || fflush(to) != 0 || fchmod(fd, html->mode) == -1)
            error = errno ? errno : EIO;
        if (fclose(to) != 0 && error == 0)
            error = errno;
        if (error == 0 && rename(name, html->path) == -1)
            error = errno;
        if (error != 0)
            unlink(name);
    }
    free(name);
    return error == 0 ? CLI_OK : cli_fail("%s: %s", html->path, strerror(error));
}

void advise_html_close(struct advise_html *html)
{
    free(html->path);
    html->path = NULL;
}
