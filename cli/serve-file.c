/* SPDX-License-Identifier: BSD-3-Clause */
/* serve-file.c - the file that describes a server, of quickmine serve.
 *
 * A line is empty, a comment (its first character that is not blank is a #) or
 * "KEY = VALUE".  The value is what stands there to the end of the line, without the
 * blanks around it: there are no quotes, no escapes and no comments behind it.  What
 * looks like one of these is refused, since it would silently become a part of the
 * value.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/serve.h"

/* These may be given several times. */
static bool may_repeat(const char *key)
{
    return strcmp(key, "filter") == 0 || strcmp(key, "nbdkit-option") == 0 ||
           strcmp(key, "agent.device") == 0 || strncmp(key, "backend.", 8) == 0;
}

static char *trimmed(char *text)
{
    size_t n;

    while (isspace((unsigned char)*text))
        text++;
    for (n = strlen(text); n > 0 && isspace((unsigned char)text[n - 1]); n--)
        ;
    text[n] = '\0';
    return text;
}

static bool is_key(const char *key)
{
    for (const char *p = key; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("-_.", *p))
            return false;
    return isalpha((unsigned char)key[0]) && key[strlen(key) - 1] != '.';
}

/* What is wrong with the value, or NULL. */
static const char *wrong_value(const char *value)
{
    size_t n = strlen(value);

    if (n > 1 && (value[0] == '"' || value[0] == '\'') && value[n - 1] == value[0])
        return "the quotes would be a part of the value; leave them out";
    if (strstr(value, " #") || strstr(value, "\t#"))
        return "a comment must have a line of its own";
    if (n > 0 && value[n - 1] == '\\')
        return "a line cannot be continued on the next";
    return NULL;
}

static int add(struct serve_file *file, char *text, unsigned line)
{
    char *equals = strchr(text, '='), *key, *value;
    const struct serve_setting *before;
    struct serve_setting *more;
    const char *wrong;

    if (text[0] == '[')
        return cli_fail("%s:%u: there are no sections; a line is KEY = VALUE",
                        file->path, line);
    if (!equals)
        return cli_fail("%s:%u: '%.60s' is not KEY = VALUE", file->path, line, text);
    *equals = '\0';
    key = trimmed(text);
    value = trimmed(equals + 1);
    if (!is_key(key))
        return cli_fail(
            "%s:%u: '%.60s' is not a key: letters, digits, '-', '_' and '.'",
            file->path, line, key);
    wrong = wrong_value(value);
    if (wrong)
        return cli_fail("%s:%u: %s: %s", file->path, line, key, wrong);
    before = serve_find(file, key);
    if (before && !may_repeat(key))
        return cli_fail("%s:%u: %s is given already, in line %u", file->path, line, key,
                        before->line);
    more = realloc(file->settings, (file->n + 1) * sizeof *more);
    if (!more)
        return cli_fail("%s", strerror(errno));
    file->settings = more;
    more[file->n] = (struct serve_setting){strdup(key), strdup(value), line};
    if (!more[file->n].key || !more[file->n].value) {
        free(more[file->n].key);
        free(more[file->n].value);
        return cli_fail("%s", strerror(ENOMEM));
    }
    file->n++;
    return 0;
}

static int name_server(struct serve_file *file)
{
    const char *slash = strrchr(file->path, '/');
    const char *base = slash ? slash + 1 : file->path;
    size_t n = strlen(base);

    if (n > 5 && strcmp(base + n - 5, ".conf") == 0)
        n -= 5;
    file->name = strndup(base, n);
    return file->name ? 0 : cli_fail("%s", strerror(errno));
}

int serve_file_read(struct serve_file *file, const char *path)
{
    FILE *in = fopen(path, "re");
    char *text = NULL;
    size_t room = 0;
    unsigned line = 0;
    ssize_t n;
    int failed = 0;

    *file = (struct serve_file){.path = path};
    if (!in) {
        cli_fail("%s: %s", path, strerror(errno));
        return -1;
    }
    failed = name_server(file);
    errno = 0;
    while (!failed && (n = getline(&text, &room, in)) != -1) {
        char *words;

        line++;
        if (strlen(text) != (size_t)n) {
            failed = cli_fail("%s:%u: there is a zero byte in it", path, line);
            break;
        }
        words = trimmed(text);
        if (words[0] != '\0' && words[0] != '#')
            failed = add(file, words, line);
        errno = 0;
    }
    if (!failed && (ferror(in) || errno))
        failed = cli_fail("%s: %s", path, strerror(errno));
    free(text);
    fclose(in);
    return failed ? -1 : 0;
}

void serve_file_free(struct serve_file *file)
{
    for (size_t i = 0; i < file->n; i++) {
        free(file->settings[i].key);
        free(file->settings[i].value);
    }
    free(file->settings);
    free(file->name);
}

const struct serve_setting *serve_find(const struct serve_file *file, const char *key)
{
    for (size_t i = 0; i < file->n; i++)
        if (strcmp(file->settings[i].key, key) == 0)
            return &file->settings[i];
    return NULL;
}

const char *serve_value(const struct serve_file *file, const char *key,
                        const char *fallback)
{
    const struct serve_setting *setting = serve_find(file, key);

    return setting ? setting->value : fallback;
}

const char *serve_of_group(const struct serve_setting *setting, const char *group)
{
    size_t n = strlen(group);

    if (strncmp(setting->key, group, n) != 0 || setting->key[n] != '.')
        return NULL;
    return setting->key + n + 1;
}

int serve_flag(const struct serve_file *file, const char *key, bool *on)
{
    const struct serve_setting *setting = serve_find(file, key);

    if (!setting)
        return 0;
    *on = strcmp(setting->value, "on") == 0;
    if (*on || strcmp(setting->value, "off") == 0)
        return 0;
    cli_fail("%s:%u: %s must be on or off, not '%s'", file->path, setting->line, key,
             setting->value);
    return -1;
}
