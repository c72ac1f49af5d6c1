/* SPDX-License-Identifier: BSD-3-Clause */
/* class-of.c - prints the class and the template of each line of standard input; for
 * the plugin's tests. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "mysql-patch/plugin/template.h"

int main(void)
{
    static struct qm_template t;
    char *line = NULL;
    size_t size = 0;
    ssize_t len;

    while ((len = getline(&line, &size, stdin)) > 0) {
        qm_template_make(line, (size_t)len, &t);
        printf("%016" PRIx64 " %s\n", qm_template_class(&t), t.text);
    }
    free(line);
    return 0;
}
