/* SPDX-License-Identifier: BSD-3-Clause */
/* serve-reload.c - gives a running server what has changed in its file, of quickmine
 * serve.
 *
 * The server says which parameters can be changed; of those, the ones in the file are
 * set in one request, which the server carries out as a whole or not at all.  What has
 * left the file stays as it is: only a restart brings a default back.
 */
#include "cli/cli.h"
#include "cli/serve.h"
#include "cli/server.h"

/* A policy that is replaced may first learn for five seconds and save its rules. */
enum { TIMEOUT_S = 120 };

int serve_reload(const struct serve_server *server)
{
    const struct serve_file *file = server->file;
    json_t *answer, *values, *wanted = json_object(), *change;
    size_t i;

    if (!server->control) {
        cli_fail("%s: with control = none nothing can be changed", file->path);
        json_decref(wanted);
        return -1;
    }
    answer = cli_ask(server->control, json_pack("{s:[]}", "get"), CLI_SERVER_TIMEOUT_S);
    values = answer ? json_object_get(answer, "values") : NULL;
    if (answer && !values)
        cli_fail("%s: the answer has no values", server->control);
    for (i = 0; values && i < file->n; i++)
        if (json_object_get(values, file->settings[i].key))
            json_object_set_new(wanted, file->settings[i].key,
                                json_string(file->settings[i].value));
    json_decref(answer);
    if (!values) {
        json_decref(wanted);
        return -1;
    }
    if (json_object_size(wanted) == 0) {
        json_decref(wanted);
        printf("the file gives none of the parameters that can be changed\n");
        return 0;
    }
    answer = cli_ask(server->control, json_pack("{s:o}", "set", wanted), TIMEOUT_S);
    if (!answer)
        return -1;
    json_array_foreach(json_object_get(answer, "changed"), i, change)
    {
        printf("%s: ", cli_text(change, "key"));
        printf("%s -> ", cli_text(change, "old"));
        printf("%s\n", cli_text(change, "new"));
    }
    json_decref(answer);
    return 0;
}
