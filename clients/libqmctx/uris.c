/* SPDX-License-Identifier: BSD-3-Clause */
/* uris.c - see uris.h. */
#include "clients/libqmctx/uris.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The comma before the next URI; NULL if there is none. */
static char *find_end(char *text)
{
    for (char *c = strchr(text, ','); c; c = strchr(c + 1, ','))
        if (strncmp(c + 1, "nbd", 3) == 0)
            return c;
    return NULL;
}

/* Whether at begins a parameter of a URI that is a relative path; *value: where that
 * begins. */
static bool is_relative(const char *at, const char **value)
{
    static const char *const names[] = {
        "socket=", "tls-certificates=", "tls-psk-file="};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        *value = at + strlen(names[i]);
        if (strncasecmp(at, names[i], strlen(names[i])) == 0)
            return **value && !strchr("/&;#", **value) &&
                   strncasecmp(*value, "%2f", 3) != 0;
    }
    return false;
}

/* Whether the path of a socket would be too long with dir: then all there is is the
 * short one. */
static bool is_too_long(const char *dir, const char *value)
{
    const struct sockaddr_un *address = NULL;

    return strlen(dir) + 1 + strcspn(value, "&;#") >= sizeof address->sun_path;
}

/* dir as a URI has it, with a slash at its end. */
static void put_directory(FILE *to, const char *dir)
{
    for (const char *c = dir; *c; c++) {
        if (isalnum((unsigned char)*c) || strchr("/._-", *c))
            fputc(*c, to);
        else
            fprintf(to, "%%%02X", (unsigned char)*c);
    }
    if (*dir && dir[strlen(dir) - 1] != '/')
        fputc('/', to);
}

char *qm_uris_absolute(const char *text)
{
    char *result = NULL, *dir = NULL;
    const char *at = text, *value;
    bool parameters = false;
    size_t size;
    FILE *to = open_memstream(&result, &size);
    int err = 0;

    if (!to)
        return NULL;
    while (*at && !err) {
        if (*at == '#' || (*at == ',' && strncmp(at + 1, "nbd", 3) == 0))
            parameters = false;
        else if (*at == '?')
            parameters = true;
        fputc(*at, to);
        if (!strchr("?&;", *at++) || !parameters || !is_relative(at, &value))
            continue;
        if (!dir && !(dir = getcwd(NULL, 0))) {
            err = errno;
            break;
        }
        fwrite(at, 1, (size_t)(value - at), to);
        if (strncasecmp(at, "socket=", 7) != 0 || !is_too_long(dir, value))
            put_directory(to, dir);
        at = value;
    }
    free(dir);
    if (fclose(to) != 0 && !err)
        err = errno;
    if (!err)
        return result;
    free(result);
    errno = err;
    return NULL;
}

void qm_socket_path(struct sockaddr_un *address, const char *path)
{
    char *dir = path[0] != '/' ? getcwd(NULL, 0) : NULL;
    size_t size = sizeof address->sun_path;
    int n = dir ? snprintf(address->sun_path, size, "%s/%s", dir, path) : -1;

    if (n < 0 || (size_t)n >= size)
        strcpy(address->sun_path, path);
    free(dir);
}

int qm_uris_init(struct qm_uris *uris, const char *text)
{
    char *at, *end;

    *uris = (struct qm_uris){.text = qm_uris_absolute(text)};
    if (!uris->text)
        return errno;
    for (at = uris->text; at; at = end) {
        if (uris->count == QM_URIS_MAX)
            return E2BIG;
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
