/* SPDX-License-Identifier: BSD-3-Clause */
/* rowcache-workloads.c - what the clients of bench/rowcache do; see rowcache-load.h.
 *
 * Of the standards' transactions (TATP 1.0, SmallBank, TPC-C 5.11) here is which rows
 * they read and write by key, with the standards' weights and skew.  A key of several
 * columns is one number; what a transaction inserts or deletes is a row that is there,
 * which it changes; and each statement is a transaction of its own. */
#include <inttypes.h>
#include <stdio.h>

#include "rowcache-load.h"

enum { TABLES = 22, LINES = 4 };

/* A page of a shop that shows an order: the order, its customer, its lines, each with
 * its item.  Half of the pages are of the latest twentieth of the orders.  As many
 * pages as are no reads change the order, too. */
static void shop(struct client *c)
{
    uint64_t orders = UINT64_C(60000) * scale, customers = orders / 2,
             items = orders / 2;
    uint64_t order = draw(c, 2) ? 1 + draw(c, orders)
                                : 1 + orders - orders / 20 + draw(c, orders / 20);

    read_row(c, "orders", order);
    think(c);
    if (draw(c, 100) >= reads_percent) {
        write_row(c, "orders", order);
        think(c);
    }
    read_row(c, "customer", 1 + order * 7919 % customers);
    for (uint64_t i = 0; i < LINES && !is_over(c); i++) {
        uint64_t line = (order - 1) * LINES + 1 + i;

        think(c);
        read_row(c, "line", line);
        think(c);
        read_row(c, "item", 1 + line * 104729 % items);
    }
    think(c);
}

/* The paper's: of the next access .3 are to the table of the last, .3 to one of those
 * that it references, .4 to any other; the row is any.  Table i references those with
 * the numbers 2i and 2i+1, and i+1, in a circle. */
static void paper(struct client *c)
{
    uint64_t rows = UINT64_C(10000) * scale, kind = draw(c, 10);
    char table[8];

    if (kind >= 6)
        c->table = (c->table + 1 + (unsigned)draw(c, TABLES - 1)) % TABLES;
    else if (kind >= 3)
        c->table = (unsigned[]){2 * c->table % TABLES, (2 * c->table + 1) % TABLES,
                                (c->table + 1) % TABLES}[draw(c, 3)];
    snprintf(table, sizeof table, "t%u", c->table);
    if (draw(c, 100) < reads_percent)
        read_row(c, table, 1 + draw(c, rows));
    else
        write_row(c, table, 1 + draw(c, rows));
    think(c);
}

/* --- TATP --- */

/* 35 % the subscriber, 35 % access data, 10 % a destination; 20 % are writes; or, with
 * another share of reads, as many of each kind of reads and of writes in proportion.
 * Subscribers are not drawn uniformly: A is the standard's for up to a million. */
static void tatp(struct client *c)
{
    uint64_t n = UINT64_C(10000) * scale, kind = draw(c, 100);
    uint64_t reads = reads_percent;
    uint64_t s = (draw(c, 65536) | (1 + draw(c, n))) % n, four = 4 * s + 1 + draw(c, 4);
    uint64_t forwarding = 3 * (four - 1) + 1 + draw(c, 3);

    kind = kind < reads ? kind * 80 / reads : 80 + (kind - reads) * 20 / (100 - reads);
    if (kind < 35) {
        read_row(c, "subscriber", 1 + s);
    } else if (kind < 70) {
        read_row(c, "access_info", four);
    } else if (kind < 80) {
        read_row(c, "special_facility", four);
        read_row(c, "call_forwarding", forwarding);
    } else if (kind < 82) { /* update subscriber data */
        write_row(c, "subscriber", 1 + s);
        write_row(c, "special_facility", four);
    } else if (kind < 96) { /* update location */
        write_row(c, "subscriber", 1 + s);
    } else { /* insert, delete call forwarding */
        read_row(c, "subscriber", 1 + s);
        if (kind < 98)
            read_row(c, "special_facility", four);
        write_row(c, "call_forwarding", forwarding);
    }
    think(c);
}

/* --- SmallBank --- */

/* A quarter of the customers that are drawn are of the 100 hot ones. */
static uint64_t customer_of_bank(struct client *c)
{
    uint64_t n = UINT64_C(60000) * scale;

    return draw(c, 4) == 0 ? 1 + draw(c, 100) : 1 + draw(c, n);
}

static void smallbank(struct client *c)
{
    uint64_t kind = draw(c, 100), a = customer_of_bank(c), b = customer_of_bank(c);

    read_row(c, "accounts", a);
    if (kind < 15) { /* amalgamate */
        read_row(c, "accounts", b);
        read_row(c, "savings", a);
        read_row(c, "checking", a);
        write_row(c, "savings", a);
        write_row(c, "checking", a);
        write_row(c, "checking", b);
    } else if (kind < 30) { /* balance */
        read_row(c, "savings", a);
        read_row(c, "checking", a);
    } else if (kind < 45) { /* deposit checking */
        write_row(c, "checking", a);
    } else if (kind < 70) { /* send payment */
        read_row(c, "accounts", b);
        read_row(c, "checking", a);
        write_row(c, "checking", a);
        write_row(c, "checking", b);
    } else if (kind < 85) { /* transact savings */
        read_row(c, "savings", a);
        write_row(c, "savings", a);
    } else { /* write check */
        read_row(c, "savings", a);
        read_row(c, "checking", a);
        write_row(c, "checking", a);
    }
    think(c);
}

/* --- TPC-C --- */

enum { DISTRICTS = 10, CUSTOMERS = 600, ORDERS = 600, OF_ORDER = 10, ITEMS = 20000 };

/* The standard's NURand, from 0 on. */
static uint64_t nurand(struct client *c, uint64_t a, uint64_t n)
{
    return (draw(c, a + 1) | draw(c, n)) % n;
}

static void read_order(struct client *c, uint64_t order)
{
    read_row(c, "orders", order);
    for (uint64_t i = 0; i < OF_ORDER && !is_over(c); i++)
        read_row(c, "order_line", (order - 1) * OF_ORDER + 1 + i);
}

static void new_order(struct client *c, uint64_t w, uint64_t district,
                      uint64_t customer)
{
    read_row(c, "warehouse", 1 + w);
    read_row(c, "customer", customer);
    read_row(c, "district", district);
    write_row(c, "district", district);
    for (int i = 0; i < OF_ORDER && !is_over(c); i++) {
        uint64_t item = nurand(c, 8191, ITEMS);

        read_row(c, "item", 1 + item);
        read_row(c, "stock", w * ITEMS + 1 + item);
        write_row(c, "stock", w * ITEMS + 1 + item);
    }
}

static void tpcc(struct client *c)
{
    uint64_t kind = draw(c, 100), w = draw(c, 2 * (uint64_t)scale);
    uint64_t d = w * DISTRICTS + draw(c, DISTRICTS), newest = (d + 1) * ORDERS;
    uint64_t customer = d * CUSTOMERS + 1 + nurand(c, 1023, CUSTOMERS);

    if (kind < 45) {
        new_order(c, w, d + 1, customer);
    } else if (kind < 88) { /* payment */
        read_row(c, "warehouse", 1 + w);
        write_row(c, "warehouse", 1 + w);
        read_row(c, "district", d + 1);
        write_row(c, "district", d + 1);
        read_row(c, "customer", customer);
        write_row(c, "customer", customer);
    } else if (kind < 92) { /* order status */
        read_row(c, "customer", customer);
        read_order(c, newest - draw(c, ORDERS));
    } else if (kind < 96) { /* delivery: of the oldest that are new */
        uint64_t order = newest - 180 - draw(c, 20);

        read_order(c, order);
        write_row(c, "orders", order);
        write_row(c, "customer", customer);
    } else { /* stock level: of the last 20 orders */
        read_row(c, "district", d + 1);
        for (uint64_t i = 0; i < 20 && !is_over(c); i++) {
            read_order(c, newest - i);
            for (int j = 0; j < 3 && !is_over(c); j++)
                read_row(c, "stock", w * ITEMS + 1 + nurand(c, 8191, ITEMS));
        }
    }
    think(c);
}

/* --- faces --- */

/* SEER-MCache's cameras, as far as it describes them: people of one community are in
 * one table, by their addresses, and refer to people whom they know.  A frame shows
 * people of the community where the camera is: some live near each other, some know
 * each other.  How many is the paper's: 5.4 (39 % of the frames) or 22.4; the shares
 * are made up: half of the people live within 50 rows of the first, three in ten are
 * known to the one before, the others are any of the community. */
static void faces(struct client *c)
{
    uint64_t n = UINT64_C(10000) * scale, first = 1 + draw(c, n), last = first;
    unsigned people =
        draw(c, 100) < 39 ? 1 + (unsigned)draw(c, 9) : 10 + (unsigned)draw(c, 25);
    char table[16];

    if (draw(c, 20) == 0) /* the camera goes elsewhere */
        c->table = (unsigned)draw(c, TABLES);
    snprintf(table, sizeof table, "t%u", c->table);
    for (unsigned i = 0; i < people && !is_over(c); i++) {
        uint64_t kind = draw(c, 10), person;

        if (i == 0)
            person = first;
        else if (kind < 5)
            person = (first + n - 51 + draw(c, 101)) % n + 1;
        else if (kind < 8)
            person = 1 + last * 7919 % n; /* whom that row's column a refers to */
        else
            person = 1 + draw(c, n);
        read_row(c, table, person);
        last = person;
    }
    think(c);
}

const struct workload workloads[] = {
    {"shop", shop}, {"paper", paper}, {"tatp", tatp}, {"smallbank", smallbank},
    {"tpcc", tpcc}, {"faces", faces}, {NULL, NULL},
};
