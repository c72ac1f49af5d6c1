/* SPDX-License-Identifier: BSD-3-Clause */
/* gtid.c - positions in a binary log; see gtid.h. */
#include "rowcache/follow/gtid.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool number(const char **at, const char *end, uint64_t most, uint64_t *value)
{
    const char *start = *at;

    *value = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        unsigned digit = (unsigned)(**at - '0');

        if (*value > (most - digit) / 10)
            return false;
        *value = *value * 10 + digit;
    }
    return *at > start;
}

static bool one(const char **at, const char *end, struct qm_gtid *gtid)
{
    uint64_t part[3];

    for (int i = 0; i < 3; i++) {
        if (i > 0 && (*at == end || *(*at)++ != '-'))
            return false;
        if (!number(at, end, i < 2 ? UINT32_MAX : UINT64_MAX, &part[i]))
            return false;
    }
    *gtid = (struct qm_gtid){(uint32_t)part[0], (uint32_t)part[1], part[2]};
    return true;
}

static void skip_blanks(const char **at, const char *end)
{
    while (*at < end && (**at == ' ' || **at == '\n' || **at == '\t'))
        ++*at;
}

bool qm_gtid_parse(struct qm_gtid_list *list, const char *text, size_t length)
{
    const char *at = text, *end = text + length;

    list->count = 0;
    skip_blanks(&at, end);
    if (at == end)
        return true;
    for (;;) {
        struct qm_gtid gtid;

        skip_blanks(&at, end);
        if (!one(&at, end, &gtid) || !qm_gtid_set(list, gtid))
            return false;
        skip_blanks(&at, end);
        if (at == end)
            return true;
        if (*at++ != ',')
            return false;
    }
}

char *qm_gtid_print(const struct qm_gtid_list *list, char *text)
{
    size_t n = 0;

    text[0] = '\0';
    for (unsigned i = 0; i < list->count; i++)
        n += (size_t)snprintf(text + n, QM_GTID_TEXT - n,
                              "%s%" PRIu32 "-%" PRIu32 "-%" PRIu64, i ? "," : "",
                              list->last[i].domain, list->last[i].server,
                              list->last[i].sequence);
    return text;
}

/* Where that domain is, or would be. */
static unsigned place(const struct qm_gtid_list *list, uint32_t domain)
{
    unsigned i = 0;

    while (i < list->count && list->last[i].domain < domain)
        i++;
    return i;
}

bool qm_gtid_set(struct qm_gtid_list *list, struct qm_gtid gtid)
{
    unsigned i = place(list, gtid.domain);

    if (i == list->count || list->last[i].domain != gtid.domain) {
        if (list->count == QM_GTID_DOMAINS)
            return false;
        memmove(list->last + i + 1, list->last + i,
                (list->count - i) * sizeof list->last[0]);
        list->count++;
    }
    list->last[i] = gtid;
    return true;
}

bool qm_gtid_raise(struct qm_gtid_list *list, const struct qm_gtid_list *other)
{
    for (unsigned i = 0; i < other->count; i++)
        if (!qm_gtid_covers_one(list, other->last[i]) &&
            !qm_gtid_set(list, other->last[i]))
            return false;
    return true;
}

bool qm_gtid_covers_one(const struct qm_gtid_list *list, struct qm_gtid gtid)
{
    unsigned i = place(list, gtid.domain);

    return i < list->count && list->last[i].domain == gtid.domain &&
           list->last[i].sequence >= gtid.sequence;
}

bool qm_gtid_covers(const struct qm_gtid_list *list, const struct qm_gtid_list *other)
{
    for (unsigned i = 0; i < other->count; i++)
        if (!qm_gtid_covers_one(list, other->last[i]))
            return false;
    return true;
}

bool qm_gtid_went_back(const struct qm_gtid_list *before,
                       const struct qm_gtid_list *now)
{
    for (unsigned i = 0; i < before->count; i++) {
        const struct qm_gtid *old = before->last + i;
        unsigned j = place(now, old->domain);

        if (j == now->count || now->last[j].domain != old->domain ||
            (now->last[j].server == old->server &&
             now->last[j].sequence < old->sequence))
            return true;
    }
    return false;
}
