/* SPDX-License-Identifier: BSD-3-Clause */
/* uris.c - see uris.h. */
#include "clients/libqmctx/uris.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The comma before the next URI; NULL if there is none. */
static char *find_end(char *text)
{
    for (char *c = strchr(text, ','); c; c = strchr(c + 1, ','))
        if (strncmp(c + 1, "nbd", 3) == 0)
            return c;
    return NULL;
}

int qm_uris_init(struct qm_uris *uris, const char *text)
{
    char *at, *end;

    *uris = (struct qm_uris){.text = strdup(text)};
    if (!uris->text)
        return ENOMEM;
    for (at = uris->text; at; at = end) {
        if (uris->count == QM_URIS_MAX)
            return EINVAL;
        end = find_end(at);
        if (end)
            *end++ = '\0';
        uris->list[uris->count++] = at;
    }
    return 0;
}

void qm_uris_free(struct qm_uris *uris)
{
    free(uris->text);
    uris->text = NULL;
}

const char *qm_uris_next(struct qm_uris *uris)
{
    uris->at = (uris->at + 1) % uris->count;
    return uris->list[uris->at];
}
