/* SPDX-License-Identifier: BSD-3-Clause */
/* steady.c - virtual columns that stay the same; see steady.h.
 *
 * A function that is not in the list may be of a later MariaDB, or a loaded one: rows
 * that are read each time cost less than a row that is wrong.
 */
#include "rowcache/fill/steady.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WORD 32 /* no function that is known has a longer name */

/* Not str_to_date(), maketime(), sec_to_time() and timediff(), whose values can be of
 * type TIME. */
static const char known[] =
    " abs acos addtime ascii asin atan binary bit_count bit_length cast"
    " ceiling char char_length coalesce column_add column_check"
    " column_create column_delete column_exists column_get column_json"
    " column_list compress concat concat_operator_oracle concat_ws conv"
    " convert cos cot crc32 crc32c date_format datetime dayname dayofmonth"
    " dayofweek dayofyear decimal decode_oracle degrees double elt exp"
    " export_set extract extractvalue field find_in_set floor format"
    " from_base64 from_days from_unixtime get_format greatest hex hour if"
    " ifnull in inet6_aton inet6_ntoa inet_aton inet_ntoa insert interval"
    " is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6 json_array"
    " json_array_append json_array_insert json_compact json_contains"
    " json_contains_path json_depth json_detailed json_equals json_exists"
    " json_extract json_insert json_keys json_length json_loose"
    " json_merge_patch json_merge_preserve json_normalize json_object"
    " json_overlaps json_query json_quote json_remove json_replace"
    " json_search json_set json_type json_unquote json_valid json_value"
    " last_day lcase least left length ln locate log log10 log2 lpad"
    " lpad_oracle ltrim ltrim_oracle make_set makedate md5 microsecond"
    " minute month monthname natural_sort_key nullif nvl2 octet_length ord"
    " period_add period_diff pi point pow quarter quote radians regexp_instr"
    " regexp_replace regexp_substr repeat replace replace_oracle reverse"
    " right round rpad rpad_oracle rtrim rtrim_oracle second sformat sha"
    " sha2 sign sin soundex space sqrt st_area st_astext st_contains"
    " st_distance st_geometryfromtext st_length st_srid st_within st_x st_y"
    " strcmp substr substr_oracle substring_index subtime tan time_format"
    " time_to_sec timestamp timestampdiff to_base64 to_char to_days"
    " to_seconds trim trim_oracle truncate ucase uncompress"
    " uncompressed_length unhex unix_timestamp updatexml varchar week"
    " weekday weight_string year yearweek"
    " ";

/* What is called, in lower case; at is behind the parenthesis. */
static bool is_known(const char *word, const char *at)
{
    char between[WORD + 2];

    if (strcmp(word, "unix_timestamp") == 0 && *at == ')') /* of now */
        return false;
    snprintf(between, sizeof between, " %s ", word);
    return strstr(known, between);
}

/* What stands without parentheses: a type, a unit, an operator, or the time. */
static bool is_plain(const char *word)
{
    return strcmp(word, "time") != 0 && strncmp(word, "current_", 8) != 0 &&
           strncmp(word, "local", 5) != 0 && strcmp(word, "sysdate") != 0 &&
           strncmp(word, "utc_", 4) != 0;
}

/* Behind what is quoted, a text or a name; NULL: it does not end. */
static const char *skip_quoted(const char *at)
{
    char quote = *at++;

    for (; *at && *at != quote; at++)
        if (*at == '\\' && quote != '`' && at[1])
            at++;
    return *at ? at + 1 : NULL;
}

static bool is_of_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c > 127;
}

/* Takes a word, at *at, and what is behind it as far as it is needed. */
static bool is_steady_word(const char **at)
{
    const char *begin = *at;
    char word[WORD];
    size_t length;

    while (is_of_word(**at))
        ++*at;
    length = (size_t)(*at - begin);
    if (length >= sizeof word)
        return false;
    for (size_t i = 0; i < length; i++)
        word[i] = (char)tolower((unsigned char)begin[i]);
    word[length] = '\0';
    if (**at == '(' && isalpha((unsigned char)*word))
        return is_known(word, *at + 1);
    return is_plain(word);
}

bool qm_is_steady(const char *expression)
{
    const char *at = expression;

    while (at && *at) {
        if (*at == '\'' || *at == '`' || *at == '"')
            at = skip_quoted(at);
        else if (*at == '@')
            return false;
        else if (!is_of_word(*at))
            at++;
        else if (!is_steady_word(&at))
            return false;
    }
    return at != NULL;
}
