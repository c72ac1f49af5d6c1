/* SPDX-License-Identifier: BSD-3-Clause */
/* test-fair.c - turns and shares, without anything around them; numbers of clients. */
#include "tests/harness.h"

#include "engine/fair.h"
#include "server/clients.h"

#define ITEMS 4000

static struct qm_fair fair;
static struct qm_fair_item items[ITEMS];
static unsigned used;

static struct qm_fair_item *push(unsigned client, uint64_t cost)
{
    struct qm_fair_item *item = &items[used++];

    assert_true(used <= ITEMS);
    item->client = client;
    item->cost = cost;
    qm_fair_push(&fair, item);
    return item;
}

static unsigned serve(void)
{
    struct qm_fair_item *item = qm_fair_next(&fair);
    unsigned client = item->client;

    qm_fair_serve(&fair, item);
    return client;
}

static int setup(void **state)
{
    qm_fair_init(&fair);
    used = 0;
    return 0;
}

TEST_WITH(test_one_client_is_a_queue, setup, NULL)
{
    for (unsigned i = 0; i < 10; i++)
        push(3, 1 + i % 3);
    for (unsigned i = 0; i < 10; i++) {
        assert_ptr_equal(qm_fair_next(&fair), &items[i]);
        assert_int_equal(serve(), 3);
    }
    assert_null(qm_fair_next(&fair));
}

/* While several have something waiting, they get the same, by cost. */
TEST_WITH(test_equal_service, setup, NULL)
{
    uint64_t got[4] = {0};

    for (unsigned i = 0; i < 1000; i++)
        push(1, 1);
    for (unsigned i = 0; i < 300; i++)
        push(2, 7);
    for (unsigned i = 0; i < 100; i++)
        push(3, 30);
    for (unsigned i = 0; fair.busy_count == 3; i++) {
        struct qm_fair_item *item = qm_fair_next(&fair);

        got[item->client] += item->cost;
        serve();
        for (unsigned c = 1; c < 4; c++)
            assert_in_range(got[c] + 30, got[1], got[1] + 60);
    }
    assert_int_equal(got[1], 1000);
}

/* Who comes late, or comes back, has his turn at once, and no more than that. */
TEST_WITH(test_late_comer, setup, NULL)
{
    unsigned first = 0;

    push(2, 1);
    assert_int_equal(serve(), 2);
    for (unsigned i = 0; i < 300; i++)
        push(1, 1);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(serve(), 1);
    for (unsigned i = 0; i < 100; i++)
        push(2, 1);
    for (unsigned i = 0; i < 100; i++)
        first += serve() == 1;
    assert_in_range(first, 49, 51);
}

/* What is removed has not been served. */
TEST_WITH(test_removed, setup, NULL)
{
    push(1, 100);
    push(2, 1);
    qm_fair_remove(&fair, &items[0]);
    push(1, 1);
    assert_int_equal(serve() + serve(), 3);
    assert_null(qm_fair_next(&fair));
    assert_int_equal(fair.busy_count, 0);
}

/* A client asks for room in a queue of `room`; tells who yields, 0: nobody. */
static unsigned ask(unsigned client, uint64_t cost, uint64_t room)
{
    struct qm_fair_item *item = qm_fair_yields(&fair, client, cost, room);

    return item ? item->client : 0;
}

TEST_WITH(test_yielding, setup, NULL)
{
    struct qm_fair_item *newest;

    for (unsigned i = 0; i < 12; i++)
        newest = push(1, 1);
    assert_int_equal(ask(1, 1, 12), 0);
    assert_int_equal(ask(2, 6, 12), 1);
    assert_int_equal(ask(2, 7, 12), 0); /* more than half */
    assert_ptr_equal(qm_fair_yields(&fair, 2, 1, 12), newest);
    qm_fair_remove(&fair, newest);
    push(2, 1);
    assert_int_equal(ask(2, 5, 12), 1);
    assert_int_equal(ask(2, 6, 12), 0);
    assert_int_equal(ask(3, 4, 12), 1);
    assert_int_equal(ask(3, 5, 12), 0); /* more than a third */
}

/* Whatever many do, who asks for less than his share never finds no room. */
TEST_WITH(test_nobody_is_kept_out, setup, NULL)
{
    enum { ROOM = 60, CLIENTS = 7 };
    uint64_t waiting[CLIENTS + 1] = {0}, all = 0;

    srandom(2);
    for (unsigned i = 0; i < ITEMS - 1; i++) {
        unsigned client = 1 + random() % CLIENTS, n = 0;
        uint64_t cost = 1 + random() % 5, own = waiting[client];

        for (unsigned c = 1; c <= CLIENTS; c++)
            n += c == client || waiting[c] > 0;
        while (all + cost > ROOM) {
            struct qm_fair_item *item = qm_fair_yields(&fair, client, cost, ROOM);

            if (!item)
                break;
            assert_int_not_equal(item->client, client);
            assert_true(waiting[item->client] > ROOM / CLIENTS);
            waiting[item->client] -= item->cost;
            all -= item->cost;
            qm_fair_remove(&fair, item);
        }
        if (all + cost <= ROOM) {
            push(client, cost);
            waiting[client] += cost;
            all += cost;
        } else {
            assert_true(own + cost > ROOM / n);
        }
        if (random() % 8 == 0) {
            struct qm_fair_item *item = qm_fair_next(&fair);

            waiting[item->client] -= item->cost;
            all -= item->cost;
            serve();
        }
    }
}

TEST(test_numbers)
{
    struct qms_clients clients;
    unsigned first, again;

    qms_clients_init(&clients, NULL);
    first = qms_client_enter(&clients);
    qms_client_leave(&clients, first);
    /* A number comes back as late as can be; and is shared when there are no others. */
    for (unsigned i = 1; i < QM_FAIR_CLIENTS - 1; i++) {
        unsigned n = qms_client_enter(&clients);

        assert_in_range(n, 1, QM_FAIR_CLIENTS - 1);
        assert_int_not_equal(n, first);
        assert_int_equal(clients.users[n], 1);
    }
    assert_int_equal(qms_client_enter(&clients), first);
    again = qms_client_enter(&clients);
    assert_int_equal(clients.users[again], 2);
    qms_client_leave(&clients, again);
    assert_int_equal(clients.users[QMS_CLIENT_NONE], 0);
    qms_clients_destroy(&clients);
}
