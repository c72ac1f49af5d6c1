# SPDX-License-Identifier: BSD-3-Clause
"""page.py load SOCKET STOP: reads in contexts until the file STOP is there.
page.py watch URL DIR TIER: opens the page in a browser meanwhile, and looks whether it shows
what it should, at two moments, and after the second tier's file was cut to nothing; leaves
screenshots in DIR.
"""
import base64
import json
import os
import random
import re
import select
import subprocess
import sys
import time
from html.parser import HTMLParser

BLOCK = 16384
NAMES = ["SELECT c_first, c_middle, c_last, c_balance FROM customer WHERE c_w_id = ?",
         "SELECT s_quantity FROM stock WHERE s_i_id = ?",
         "</td><script>document.title='broken'</script>", "INSERT INTO order_line VALUES (?)"]


def load(path, stop):
    import client
    c = client.Tagged(path)
    rng = random.Random(1)
    paths = [[rng.randrange(4096) for _ in range(12)] for _ in range(400)]
    c.begin(c.first, kind=client.CONNECTION, klass=100, name=b"app@localhost")
    while not os.path.exists(stop):
        k = rng.randrange(len(NAMES))
        c.begin(c.first + 1, parent=c.first, klass=k + 1, name=NAMES[k].encode())
        blocks = [rng.randrange(4096) for _ in range(4)] if k == 1 else \
            paths[min(len(paths) - 1, int(rng.expovariate(0.02)))]
        for block in blocks:
            c.pread(BLOCK, block * BLOCK, c.first + 1)
        c.end(c.first + 1)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.text, self.id, self.rows, self.depth, self.scripts = {}, None, [], 0, 0
        self.paths, self.cell, self.title = [], None, ""
        self.tag = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tag = tag
        self.id = attrs.get("id")
        self.scripts += tag == "script"
        for name in ("src", "href", "srcset", "data", "action"):
            value = attrs.get(name, "")
            assert value in ("", "data:,", "/metrics", "/api/stats"), (tag, value)
        if tag == "path":
            self.paths.append(attrs["d"])
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.cell = True

    def handle_endtag(self, tag):
        self.id = None
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        if self.id:
            self.text[self.id] = self.text.get(self.id, "") + data
        if self.cell:
            self.rows[-1][-1] += data
        if self.tag == "title":
            self.title += data.strip()


def number(text):
    value, unit = re.fullmatch(r"([0-9.]+) ?([kMG]?)", text.strip()).groups()
    return float(value) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit]


class Browser:
    """Headless Chromium, by its DevTools over a pair of pipes."""

    def __init__(self, home):
        to_it, self.to = os.pipe()
        self.of, from_it = os.pipe()

        def pipes():  # it reads from 3 and writes to 4
            a, b = os.dup(to_it), os.dup(from_it)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", f"--user-data-dir={home}", "--remote-debugging-pipe",
             "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "about:blank"],
            preexec_fn=pipes, close_fds=False, stdout=subprocess.DEVNULL)
        os.close(to_it)
        os.close(from_it)
        self.rest, self.number, self.session, self.said = b"", 0, None, []
        target = self("Target.createTarget", url="about:blank")["targetId"]
        self.session = self("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self(f"{domain}.enable")

    def message(self):
        end = time.monotonic() + 60
        while b"\0" not in self.rest:
            assert select.select([self.of], [], [], max(0, end - time.monotonic()))[0], "no answer"
            part = os.read(self.of, 1 << 20)
            assert part, "the browser has ended"
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def __call__(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while (m := self.message()).get("id") != self.number:
            if m["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown",
                               "Log.entryAdded"):
                self.said.append(m)
        assert "error" not in m, m
        return m["result"]

    def get(self, script):
        return self("Runtime.evaluate", expression=script)["result"].get("value") # none yet: None

    def wait(self, script):
        end = time.monotonic() + 60
        while not self.get(script):
            assert time.monotonic() < end, f"never: {script}; {self.said}"
            time.sleep(0.1)

    def look(self, width, height, phone, scheme):
        self("Emulation.setDeviceMetricsOverride", width=width, height=height,
             deviceScaleFactor=1, mobile=phone)
        self("Emulation.setEmulatedMedia",
             features=[{"name": "prefers-color-scheme", "value": scheme}])
        assert self.get("document.documentElement.scrollWidth") <= width, "it must be scrolled"
        png = base64.b64decode(self("Page.captureScreenshot")["data"])
        return png, self.get("getComputedStyle(document.body).backgroundColor")

    def end(self):
        self.session = None
        self("Browser.close")
        self.process.wait(60)


def watch(url, directory, tier):
    b = Browser(directory + "/home")
    b("Page.navigate", url=url)
    texts, colours = [], set()
    for points in (4, 8):
        b.wait(f"document.title === 'QuickMine' && history_points() >= {points}")
        texts.append(b.get("document.documentElement.outerHTML"))
    for width, height, phone in ((1280, 900, False), (390, 1500, True)):
        for scheme in ("light", "dark"):
            png, colour = b.look(width, height, phone, scheme)
            colours.add(colour)
            with open(f"{directory}/page-{width}-{scheme}.png", "wb") as f:
                f.write(png)
    assert len(colours) == 2, colours
    shown = "!document.getElementById('tier-card').hidden && document.getElementById('tier').textContent"
    b.wait(f"/^[0-9.]+ %$/.test({shown})")
    os.truncate(tier, 0)
    b.wait(f"({shown}) === 'detached' && document.getElementById('tier-note').textContent.length > 10")
    # What the browser says is an error, or a violation of the page's policy.
    assert not b.said, b.said
    check(texts)
    b.end()


def check(texts):
    seen = []
    for text in texts:
        page = Page(text)
        assert page.title == "QuickMine" and page.scripts == 1, (page.title, page.scripts)
        assert page.text["state"] == "live", page.text["state"]
        assert "policy auto" in page.text["about"], page.text["about"]
        assert number(page.text["reads"]) > 0, page.text
        for name in ("ratio", "used", "l-hit", "l-p50", "l-p99", "device", "cache"):
            assert re.match(r"[0-9]", page.text[name]), (name, page.text[name])
        # Three areas and three lines, each of more than a point.
        assert len(page.paths) == 6 and all(p.count(",") > 2 for p in page.paths), page.paths
        rows = {row[0]: row for row in page.rows}
        for name in NAMES + ["app@localhost"]:
            assert name in rows, (name, list(rows))
        assert rows[NAMES[1]][8] in ("on", "reduced", "off"), rows[NAMES[1]]
        assert "5 classes" in page.text["classes-note"], page.text["classes-note"]
        seen.append((number(rows["app@localhost"][2]), page.text["reads"], page.paths))
    assert seen[1][0] > seen[0][0], "the blocks of a class do not grow"
    assert seen[1][1:] != seen[0][1:], "nothing changes"


{"load": load, "watch": watch}[sys.argv[1]](*sys.argv[2:])
