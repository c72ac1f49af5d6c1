/* SPDX-License-Identifier: BSD-3-Clause */
/* test-tls.c - which options of TLS a connection to MariaDB is given. */
#include <mysql.h>

#include "tests/harness.h"

#include "rowcache/follow/follow.h"

static char ca[] = "/ca", cert[] = "/cert", key[] = "/key";

static const char *text(MYSQL *mysql, enum mysql_option option)
{
    const char *value = NULL;

    assert_int_equal(mysql_get_optionv(mysql, option, &value), 0);
    return value ? value : "none";
}

static bool verifies(MYSQL *mysql)
{
    my_bool value = 0;

    assert_int_equal(mysql_get_optionv(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &value),
                     0);
    return value;
}

/* What is set, and whether the certificate is verified; the library's own choice may
 * have been the opposite. */
static void expect(const struct qm_tls *tls, const char *files[3], bool library,
                   bool verified)
{
    MYSQL *mysql = mysql_init(NULL);
    my_bool before = library;

    assert_non_null(mysql);
    mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &before);
    qm_tls_set(mysql, tls);
    assert_string_equal(text(mysql, MYSQL_OPT_SSL_CA), files[0]);
    assert_string_equal(text(mysql, MYSQL_OPT_SSL_CERT), files[1]);
    assert_string_equal(text(mysql, MYSQL_OPT_SSL_KEY), files[2]);
    assert_int_equal(verifies(mysql), verified);
    mysql_close(mysql);
}

TEST(test_none)
{
    static const char *files[] = {"none", "none", "none"};
    struct qm_tls tls = {.verify = true};

    /* The library's choice stays, unless the file has one. */
    expect(&tls, files, false, false);
    expect(&tls, files, true, true);
    tls.verify_given = true;
    expect(&tls, files, false, true);
    tls.verify = false;
    expect(&tls, files, true, false);
}

TEST(test_files)
{
    static const struct {
        struct qm_tls tls;
        const char *files[3];
    } cases[] = {
        {{.ca = ca}, {"/ca", "none", "none"}},
        {{.cert = cert}, {"none", "/cert", "none"}},
        {{.cert = cert, .key = key}, {"none", "/cert", "/key"}},
        {{.ca = ca, .cert = cert, .key = key}, {"/ca", "/cert", "/key"}},
    };

    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qm_tls tls = cases[i].tls;

        for (int verify = 0; verify < 2; verify++) {
            tls.verify = verify;
            expect(&tls, (const char **)cases[i].files, !verify, verify);
        }
    }
}
