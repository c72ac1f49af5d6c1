/* SPDX-License-Identifier: BSD-3-Clause */
/* test-steady.c - virtual columns, as MariaDB prints their expressions. */
#include "tests/harness.h"

#include "rowcache/fill/steady.h"

TEST(test_steady)
{
    static const char *const steady[] = {
        "`id` + 1",
        "abs(`a`)",
        "yearweek(`d`,0)",
        "CONCAT(`a`,'b')",
        "cast(json_value(`j`,'$.a') as decimal(9,2))",
        "cast(`s` as char(3) charset utf8mb3)",
        "st_x(point(1,2))",
        "case `a` when 1 then 2 else 3 end",
        "(1,`a`) in ((1,2),(3,4))",
        "timestampdiff(DAY,`d`,TIMESTAMP'2020-01-01 01:01:01') DIV 7",
        "unix_timestamp(`created`)",
        "substring_index(`email`,'@',-1)",
        "concat(`uuid`,`now(`,`a``rand(`)", /* what is quoted is no call */
        "'now()'",
        "concat('it''s now()','\\'rand()','\\\\')",
        "`a\\` + 1",
        "",
    };
    static const char *const varying[] = {
        "current_timestamp(6)",
        "RAND()",
        "concat('a',uuid())",
        "@`x`",
        "@@max_allowed_packet",
        "unix_timestamp()",
        "concat('a''',user(),'')",
        "concat('\\\\',curdate())",
        "concat(`a\\`,curdate())",
        "version()",
        "wsrep_last_seen_gtid()",
        "a_loaded_function(`a`)",
        "st_now(`a`)",
        "json_later(`a`)",
        "a_function_whose_name_is_longer_than_any(`a`)",
        "current_date",
        "localtime",
        "sysdate",
        "utc_time",
        "year(cast('1:1:1' as time))", /* of today */
        "TIME'10:00:00'",
        "sec_to_time(`a`)",
        "str_to_date(`s`,'%H:%i')",
        "concat('a", /* cut off */
        NULL,
    };

    for (unsigned i = 0; i < sizeof steady / sizeof steady[0]; i++)
        if (!qm_is_steady(steady[i]))
            fail_msg("%s", steady[i]);
    for (unsigned i = 0; i < sizeof varying / sizeof varying[0]; i++)
        if (qm_is_steady(varying[i]))
            fail_msg("%s", varying[i] ? varying[i] : "NULL");
}
