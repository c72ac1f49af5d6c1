/* SPDX-License-Identifier: BSD-3-Clause */
/* commands.c - the table of commands; see server.h. */
#include <string.h>
#include <strings.h>

#include "rowcache/server/server.h"

#define FREE  COMMAND_BEFORE_AUTH
#define READ  COMMAND_READS
#define WRITE COMMAND_WRITES
#define ROWS  cmd_plain_only

const struct command qm_commands[] = {
    {"get", 2, READ, cmd_get, plain_get, "string", "A row as JSON; a key's value"},
    {"mget", -2, READ, cmd_mget, plain_mget, "string", "Several rows; values"},
    {"exists", -2, READ, cmd_exists, plain_exists, "generic", "How many are there"},
    {"hget", 3, READ, cmd_hget, cmd_rows_only, "hash", "A column of a row"},
    {"hmget", -3, READ, cmd_hmget, cmd_rows_only, "hash", "Columns of a row"},
    {"hgetall", 2, READ, cmd_hgetall, cmd_rows_only, "hash", "All columns of a row"},
    {"hkeys", 2, READ, cmd_hkeys, cmd_rows_only, "hash", "The columns' names"},
    {"hvals", 2, READ, cmd_hvals, cmd_rows_only, "hash", "The columns' values"},
    {"hlen", 2, READ, cmd_hlen, cmd_rows_only, "hash", "How many columns a row has"},
    {"hexists", 3, READ, cmd_hexists, cmd_rows_only, "hash", "Whether a row has it"},
    {"strlen", 2, READ, cmd_strlen, plain_strlen, "string", "The length of a value"},
    {"ttl", 2, READ, cmd_ttl, plain_ttl, "generic", "Seconds that are left"},
    {"pttl", 2, READ, cmd_ttl, plain_ttl, "generic", "Milliseconds that are left"},
    {"type", 2, READ, cmd_type, plain_type, "generic", "hash, string or none"},
    {"del", -2, WRITE, cmd_del, plain_del, "generic", "Drops rows from the cache"},
    {"unlink", -2, WRITE, cmd_del, plain_del, "generic", "As DEL"},
    {"flushdb", -1, WRITE, cmd_flushdb, plain_flushdb, "server", "Drops all"},
    {"flushall", -1, WRITE, cmd_flushall, NULL, "server", "Drops all of both"},
    {"dbsize", 1, READ, cmd_dbsize, NULL, "server", "How many keys are kept"},
    {"scan", -2, READ, cmd_scan, NULL, "generic", "The keys that are kept"},
    {"waitgtid", 2, 0, cmd_waitgtid, NULL, "rowcache", "Later reads are as new"},
    {"rowcache.sync", 2, 0, cmd_waitgtid, NULL, "rowcache", "As WAITGTID"},
    {"set", -3, WRITE, ROWS, plain_set, "string", "Sets a key"},
    {"setnx", 3, WRITE, ROWS, plain_setnx, "string", "Sets a key that is not there"},
    {"setex", 4, WRITE, ROWS, plain_setex, "string", "Sets a key for a time"},
    {"psetex", 4, WRITE, ROWS, plain_setex, "string", "Sets a key for a time"},
    {"mset", -3, WRITE, ROWS, plain_mset, "string", "Sets keys"},
    {"getset", 3, WRITE, ROWS, plain_getset, "string",
     "Sets a key, gives the old value"},
    {"getdel", 2, WRITE, ROWS, plain_getdel, "string",
     "Deletes a key, gives its value"},
    {"append", 3, WRITE, ROWS, plain_append, "string", "Lengthens a value"},
    {"incr", 2, WRITE, ROWS, plain_incr, "string", "Adds 1"},
    {"decr", 2, WRITE, ROWS, plain_incr, "string", "Subtracts 1"},
    {"incrby", 3, WRITE, ROWS, plain_incr, "string", "Adds"},
    {"decrby", 3, WRITE, ROWS, plain_incr, "string", "Subtracts"},
    {"expire", 3, WRITE, ROWS, plain_expire, "generic", "Ends a key's life"},
    {"pexpire", 3, WRITE, ROWS, plain_expire, "generic", "Ends a key's life"},
    {"expireat", 3, WRITE, ROWS, plain_expire, "generic", "Ends a key's life"},
    {"pexpireat", 3, WRITE, ROWS, plain_expire, "generic", "Ends a key's life"},
    {"persist", 2, WRITE, ROWS, plain_persist, "generic", "A key's life has no end"},
    {"ping", -1, FREE, cmd_ping, NULL, "connection", "PONG"},
    {"echo", 2, 0, cmd_echo, NULL, "connection", "The same back"},
    {"hello", -1, FREE, cmd_hello, NULL, "connection", "Chooses the protocol"},
    {"auth", -2, FREE, cmd_auth, NULL, "connection", "Says the password"},
    {"select", 2, 0, cmd_select, NULL, "connection", "0: rows; 1: plain keys"},
    {"quit", -1, FREE, cmd_quit, NULL, "connection", "Closes the connection"},
    {"reset", 1, FREE, cmd_reset, NULL, "connection", "As a new connection"},
    {"client", -2, 0, cmd_client, NULL, "connection", "Of connections"},
    {"command", -1, 0, cmd_command, NULL, "server", "Of commands"},
    {"config", -2, 0, cmd_config, NULL, "server", "Settings"},
    {"info", -1, 0, cmd_info, NULL, "server", "Statistics"},
    {"time", 1, 0, cmd_time, NULL, "server", "The time"},
    {"object", -2, 0, cmd_object, plain_object, "generic", "ENCODING of a key"},
    {"memory", -2, 0, cmd_memory, NULL, "server", "Refused: see INFO store"},
    {"watch", -2, 0, cmd_multi, NULL, "transactions", "Refused"},
    {"unwatch", 1, 0, cmd_multi, NULL, "transactions", "Refused"},
    {"multi", 1, 0, cmd_multi, NULL, "transactions", "Refused"},
    {"exec", 1, 0, cmd_no_multi, NULL, "transactions", "Refused"},
    {"discard", 1, 0, cmd_no_multi, NULL, "transactions", "Refused"},
    {0},
};

bool qm_command_has_key(const struct command *of)
{
    return of->flags & (READ | WRITE) && strcmp(of->group, "server") != 0 &&
           strcmp(of->name, "scan") != 0;
}

bool qm_command_has_keys(const struct command *of)
{
    return qm_command_has_key(of) && of->arity == -2;
}

const struct command *qm_command_find(const char *name, size_t length)
{
    for (const struct command *c = qm_commands; c->name; c++)
        if (strlen(c->name) == length && strncasecmp(c->name, name, length) == 0)
            return c;
    return NULL;
}
