# SPDX-License-Identifier: BSD-3-Clause
"""readahead.py SOCKET DATABASE-SOCKET FLAG - what each rule reads ahead, by redis-py.

FLAG: while that file is there, what is read ahead does not come from the database.
"""
import itertools
import json
import os
import subprocess
import sys
import time

import redis

PATH, DATABASE, FLAG = sys.argv[1:]
r = redis.Redis(unix_socket_path=PATH, decode_responses=True)


def sql(text):
    return subprocess.run(["mariadb", "--no-defaults", "-S", DATABASE, "-u", "root", "-BNe", text],
                          check=True, capture_output=True, text=True).stdout.strip()


def number(name):
    return int(r.info()[name])


def rule(name, what):
    return number(f"readahead_{name}_{what}")


def wait_for(condition, what, step=None):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        if step:
            step()
        time.sleep(.02)


def value(key):
    return json.loads(r.get(key))["v"]


def fails(text, *words):
    try:
        answer = r.execute_command(*words)
    except redis.exceptions.RedisError as error:
        assert text in str(error), (text, str(error))
        return
    raise AssertionError((words, answer))


far = itertools.count(1000, 500)


def start(rules, preset="seer"):
    """Only these rules, all counters as they are, and nothing kept."""
    r.config_set("readahead", "off")
    r.config_set("rules", rules)
    assert r.config_get("rules") == {"rules": rules}
    r.flushdb()
    r.config_set("readahead", preset)
    assert r.config_get("readahead") == {"readahead": preset}


def settings():
    assert r.config_get("readahead") == {"readahead": "auto"}
    assert r.config_get("rules") == {"rules": "sa,ta,fa,mined"}
    fails("argument must be one of off seer auto", "CONFIG", "SET", "readahead", "on")
    for wrong in ("", "sa,", "sa,sa", "sa, ta", "xa", "SA", "sa,ta,fa,sa"):
        fails("argument must be some of sa,ta,fa,mined", "CONFIG", "SET", "rules", wrong)
    assert r.config_get("rules") == {"rules": "sa,ta,fa,mined"}
    r.config_set("readahead", "off")


def off():
    for i in range(1, 201):
        assert value(f"item:{i}") == i
    assert number("database_queries") == number("keyspace_misses") == 200
    for name in "sa", "ta", "fa":
        assert rule(name, "asked") == rule(name, "fetched") == rule(name, "stored") == 0


def read_ahead(name, read):
    """Reads something new until that rule has stored rows; returns what read() did last."""
    before, last = rule(name, "stored"), []
    wait_for(lambda: rule(name, "stored") > before, f"{name} reads nothing ahead",
             lambda: last.append(read()))
    # All of it, of the last one.
    wait_for(lambda: rule(name, "stored") + number("raced") >= rule(name, "fetched"), f"{name}: not stored")
    return last


def read_far():
    i = next(far)
    assert value(f"item:{i}") == i
    return i


def all_kept(keys):
    """Each is there without asking MariaDB."""
    before = number("keyspace_misses")
    for key in keys:
        assert r.get(key) is not None, key
    return number("keyspace_misses") == before


def spatial():
    start("sa")
    read = read_ahead("sa", read_far)
    used = rule("sa", "used")
    # Of each read all of its neighbours, until some are read by all_kept(), which may miss.
    assert rule("sa", "fetched") % 100 == 0, rule("sa", "fetched")
    # The read whose neighbours were read ahead: one of the last.
    of = [i for i in read if all_kept([f"item:{i + 1}"])][-1]
    assert all_kept(f"item:{i}" for i in range(of - 50, of + 51)), of
    assert rule("sa", "used") == used + 100, (used, rule("sa", "used"))
    assert rule("ta", "asked") == rule("fa", "asked") == 0
    # What a change drops is wasted.
    read_ahead("sa", read_far)
    wasted = rule("sa", "wasted")
    sql(f"UPDATE shop.item SET v = -1 WHERE id < {next(far)}")
    wait_for(lambda: rule("sa", "wasted") > wasted, "nothing is wasted")
    # Nothing beyond the table's ends, and no table whose key is no integer.
    asked = rule("sa", "asked")
    for i in range(1, 101):
        assert value(f"code:c{i}") == i
    assert rule("sa", "asked") == asked
    sql("INSERT INTO shop.parent VALUES (0, 0)")


def grown():
    """A table's ends move with it."""
    start("sa")
    rows = itertools.cycle(range(1, 11))

    def read_one():
        r.flushdb()
        assert r.get(f"low:{next(rows)}") is not None

    before = number("invalidations")
    wait_for(lambda: number("invalidations") > before, "not applied",
             lambda: sql("UPDATE shop.low SET v = v + 1"))  # the first one is told of the whole table
    read_ahead("sa", read_one)
    before = number("invalidations")
    sql("INSERT INTO shop.low SELECT seq, 1 FROM shop.seq_11_to_1000")
    sql("INSERT INTO shop.low SELECT -seq, 1 FROM shop.seq_1_to_1000")
    wait_for(lambda: number("invalidations") >= before + 1990, "not applied")
    for sign in 1, -1:
        rows = iter(range(500, 1000))
        read_ahead("sa", lambda: value(f"low:{sign * next(rows)}"))


def dropped():
    """What DEL and FLUSHDB take away is not taken for kept."""
    start("sa")
    before = [rule("sa", what) for what in ("fetched", "used", "wasted")]
    read = read_ahead("sa", read_far)
    gone = sum(r.delete(f"item:{i + 5}") for i in read)
    assert gone > 0 and rule("sa", "wasted") >= before[2] + gone, (gone, before)

    def none_left():
        fetched, used, wasted = (rule("sa", what) - b for what, b in zip(("fetched", "used", "wasted"), before))
        return fetched == used + wasted

    wait_for(none_left, "FLUSHDB does not tell read-ahead", r.flushdb)


def foreign():
    start("fa")
    children = itertools.count(1)

    def read_child():
        i = next(children)
        assert json.loads(r.get(f"child:{i}"))["parent"] == i * 100
        return i

    dropped = number("readahead_dropped")
    read = read_ahead("fa", read_child)
    # On a busy machine more may have been asked for meanwhile.
    wait_for(lambda: rule("fa", "asked") == rule("fa", "fetched") + number("readahead_dropped") - dropped,
             "not all that was asked for comes")
    used, asked = rule("fa", "used"), rule("fa", "asked")
    assert asked <= 10 * len(read), asked
    assert any(all_kept([f"parent:{i * 100}"]) for i in read), read
    assert rule("fa", "used") == used + 1
    # A key that references another column than the primary key says no row's number.
    start("sa,fa")
    asked, rows = rule("fa", "asked"), itertools.count(1, 3)

    def read_by_code():
        r.flushdb()
        assert r.get(f"by_code:{next(rows)}") is not None

    for _ in range(4):
        read_ahead("sa", read_by_code)
    assert rule("fa", "asked") == asked


def temporal():
    start("ta")
    asked = [rule(name, "asked") for name in ("sa", "fa")]
    read_far()

    def change_and_read():
        sql("UPDATE shop.item SET v = v + 1 WHERE id = 199999")
        read_far()

    used = rule("ta", "used")
    wait_for(lambda: r.get("item:199999") and rule("ta", "used") > used, "what ta reads is never used",
             lambda: read_ahead("ta", change_and_read))
    wait_for(lambda: value("item:199999") == int(sql("SELECT v FROM shop.item WHERE id = 199999")), "stale")
    assert asked == [rule(name, "asked") for name in ("sa", "fa")]


def overtaken():
    """A commit between the SELECT of a read-ahead and its store."""
    start("sa")
    read_ahead("sa", read_far)
    held = FLAG + ".held"
    if os.path.exists(held):
        os.unlink(held)
    open(FLAG, "w").close()
    read = []
    wait_for(lambda: os.path.exists(held), "nothing is held up", lambda: read.append(read_far()))
    # MariaDB has answered with the rows as they were.
    low, high = min(read) - 50, max(read) + 50
    raced, invalidations = number("raced"), number("invalidations")
    sql(f"UPDATE shop.item SET v = -7 WHERE id BETWEEN {low} AND {high}")
    wait_for(lambda: number("invalidations") >= invalidations + high - low + 1, "not applied")
    os.unlink(FLAG)
    wait_for(lambda: number("raced") >= raced + 50, "what a commit overtook is not thrown away")
    for i in (near for i in read for near in range(i - 50, i + 51)):
        assert value(f"item:{i}") == -7, i


def cut(text, step):
    """Ends the connections whose query has the text, until one has been ended."""
    with open(FLAG + ".new", "w") as file:
        file.write(text)
    os.rename(FLAG + ".new", FLAG + ".cut")
    wait_for(lambda: os.path.exists(FLAG + ".was-cut"), f"nothing asks '{text}'", step)


def mend():
    os.unlink(FLAG + ".cut")
    os.unlink(FLAG + ".was-cut")


def failed():
    """The time of a SELECT that failed is not taken for what its rows cost."""
    start("sa", "auto")
    before = {name: rule("sa", name) for name in ("asked", "fetched")}
    lost = number("readahead_dropped") + number("readahead_kept")
    row = itertools.count(120000)

    def read_next():
        assert r.get(f"item:{next(row)}") is not None

    def done():
        asked, fetched = (rule("sa", name) - before[name] for name in ("asked", "fetched"))
        return 0 < asked == fetched + number("readahead_dropped") + number("readahead_kept") - lost

    wait_for(lambda: rule("sa", "fetched") > before["fetched"], "nothing is read ahead", read_next)
    wait_for(done, "not all that was asked for comes")
    us, failures = float(r.info()["readahead_sa_us"]), number("readahead_failed")
    assert us > 0
    cut(" IN (", read_next)
    wait_for(lambda: number("readahead_failed") > failures, "no SELECT fails")
    assert float(r.info()["readahead_sa_us"]) == us
    mend()
    read_ahead("sa", read_next)
    assert float(r.info()["readahead_sa_us"]) > us


def lost_while_told():
    """The connection is lost between the questions of what a table's keys are: they are asked again."""
    start("fa")
    children = itertools.cycle(range(1, 1001))

    def read_child():
        r.flushdb()
        assert r.get(f"child:{next(children)}") is not None

    for text in "SELECT MIN(`id`)", "KEY_COLUMN_USAGE", "SELECT 1 FROM information_schema.STATISTICS":
        emptied, errors = number("tables_emptied"), number("database_errors")
        sql("ALTER TABLE shop.child COMMENT 'another'")
        wait_for(lambda: number("tables_emptied") > emptied, "not applied")
        cut(text, read_child)
        wait_for(lambda: number("database_errors") > errors, "the loss is no error")
        asked = rule("fa", "asked")
        for _ in range(5):
            read_child()
        assert rule("fa", "asked") == asked, "keys that were not told"
        mend()
        read_ahead("fa", read_child)


def state(table, name):
    return r.info().get(f"readahead_of_shop.{table}", {}).get(name)


def learned():
    """auto: what pays for a table is on there, and what does not is off."""
    start("sa,fa", "auto")
    base, wasted, ta = 150000, rule("sa", "wasted"), rule("ta", "asked")
    used, queries, scan, row = rule("sa", "used"), number("database_queries"), 0, itertools.count(base)

    def read_next():
        nonlocal scan
        i = next(row)
        assert value(f"item:{i}") == i
        scan += 1

    wait_for(lambda: state("item", "sa") == "on", "a scan does not turn sa on", read_next)
    # Beside other programs more rows are asked for before they come.
    ahead, misses, hits = number("readahead_queries"), number("keyspace_misses"), rule("sa", "used")
    while rule("sa", "used") <= used + 300 and scan < 5000:
        for _ in range(500):
            read_next()
    assert rule("sa", "used") > used + 300, (used, rule("sa", "used"), scan)
    # What is found asks for half a band at least, which is two rows of the smallest.
    ahead, misses, hits = (number("readahead_queries") - ahead, number("keyspace_misses") - misses,
                           rule("sa", "used") - hits)
    assert ahead <= misses + hits / 2 + 10, (ahead, misses, hits)
    asked = number("database_queries") - queries
    assert asked < 1.2 * scan, ("more SELECTs than without", asked, scan)
    assert .1 < r.info()["readahead_of_shop.item"]["sa_used"] <= 1
    assert rule("ta", "asked") == ta and rule("sa", "stored") > 300
    # What a change drops is read anew.
    sql(f"UPDATE shop.item SET v = -3 WHERE id BETWEEN {base + scan} AND {base + scan + 60}")
    wait_for(lambda: rule("sa", "wasted") > wasted, "nothing is wasted")
    wait_for(lambda: value(f"item:{base + scan}") == -3, "stale")
    # Rows that nobody reads: fa of one table is watched, and ends.
    children = itertools.cycle(range(1, 1001))

    def read_child():
        assert r.get(f"child:{next(children)}") is not None

    wait_for(lambda: state("child", "fa") == "off", "fa is not used and does not end", read_child)
    # sa of another is watched, and fetches nothing.
    asked, misses = rule("sa", "asked"), number("keyspace_misses")
    for i in range(1000, 60000, 101):
        assert value(f"parent:{i}") == i
    assert number("keyspace_misses") - misses > 500
    assert rule("sa", "asked") == asked
    assert state("parent", "sa") in ("trial", "off")
    assert state("code", "sa") is None


def lost_log():
    """What goes because the log was lost is not held against the rule that read it ahead."""
    start("sa", "auto")
    row = itertools.count(170000)

    def read_next():
        assert r.get(f"item:{next(row)}") is not None

    def lose():
        r.flushdb()
        began, fetched = time.monotonic(), rule("sa", "fetched")
        wait_for(lambda: rule("sa", "fetched") >= fetched + 40, "nothing is read ahead", read_next)
        # So that the log is behind after the reset, also after an earlier one.
        sql("UPDATE shop.code SET v = v + 1; UPDATE shop.code SET v = v + 1")
        wait_for(lambda: r.info("rowcache")["applied"] == sql("SELECT @@gtid_binlog_pos"), "it is not applied")
        used, gaps, wasted = state("item", "sa_used"), number("gaps"), rule("sa", "wasted")
        sql("RESET MASTER; UPDATE shop.code SET v = v + 1")
        sql("KILL " + sql("SELECT id FROM information_schema.processlist WHERE command = 'Binlog Dump' LIMIT 1"))
        wait_for(lambda: number("gaps") > gaps, "the log is not lost")
        wait_for(lambda: rule("sa", "wasted") > wasted, "what has gone is not wasted")
        # What is out for five seconds counts as not used.
        return time.monotonic() - began < 4 and (used, state("item", "sa_used"))

    shares = []
    wait_for(lambda: shares.append(lose()) or shares[-1], "the log is never lost in time")
    # It is of rows that are out, too, of which those that have gone are not.
    assert shares[-1][1] >= shares[-1][0] > 0, shares


def mined():
    """What one connection reads after another row, whatever that is."""
    start("mined", "auto")
    path = [(i * 7919) % 90000 + 100000 for i in range(20)]

    def read_path():
        changes = number("invalidations")
        sql(f"UPDATE shop.item SET v = v + 1 WHERE id IN ({','.join(map(str, path))})")
        wait_for(lambda: number("invalidations") >= changes + len(path), "not applied")
        for i in path:
            assert r.get(f"item:{i}") is not None

    # Each comes by a SELECT of its own: where processors are busy that does not pay, and is only watched.
    wait_for(lambda: (state("item", "mined_used") or 0) > .5, "what follows is not mined", read_path)
    if state("item", "mined") == "on":
        wait_for(lambda: rule("mined", "used") > 0 or state("item", "mined") != "on", "mined rows are not used", read_path)
        assert rule("mined", "stored") > 0 or state("item", "mined") != "on"


def switched_off():
    r.config_set("readahead", "off")
    asked = [rule(name, "asked") for name in ("sa", "ta", "fa")]
    misses = number("keyspace_misses")
    for _ in range(20):
        read_far()
    assert number("keyspace_misses") - misses == 20
    wait_for(lambda: number("database_queries") - number("readahead_queries") == number("keyspace_misses"),
             "reads that clients did not ask for")
    assert asked == [rule(name, "asked") for name in ("sa", "ta", "fa")]
    assert 0 <= float(r.info()["readahead_cpu_busy"]) <= 1


settings()
off()
spatial()
grown()
dropped()
foreign()
temporal()
overtaken()
failed()
lost_while_told()
learned()
mined()
lost_log()  # tables are told of anew after it
switched_off()
