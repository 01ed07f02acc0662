"""Pages in a browser: load from disk, filter, sort, link to claims and fit on a phone.

Chromium speaks its DevTools protocol over two pipes (descriptors 3 and 4): texts in JSON that end
with a zero byte, so a driver needs the standard library alone.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import test_site

from dgbench.harness.claims.verdict import GLYPHS

CHROMIUM = shutil.which("google-chrome") or shutil.which("chromium")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here"),
]
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
         "--disable-background-networking", "--remote-debugging-pipe")  # fmt: skip
PIPES = 'exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'
PHONE = 375
FRAMES = "new Promise(f=>requestAnimationFrame(()=>requestAnimationFrame(f)))"
IMAGES = ("document.querySelectorAll('img').forEach(i=>{i.loading='eager'});"
          "Promise.all([...document.images].map(i=>i.decode()))")  # fmt: skip
CLAIMS = "[...document.querySelectorAll('#claim-table tbody tr')]"
world = test_site.world  # reports of two runs and their site


class Browser:
    """One page of a Chromium without a window.

    Attributes:
        console: messages, errors and exceptions since the last `open`.
        requests: addresses that were asked for since the last `open`.
    """

    def __init__(self, profile: Path) -> None:
        words = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(["sh", "-c", PIPES, *words], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)  # fmt: skip
        self.number, self.rest, self.loaded = 0, b"", False
        self.console: list[str] = []
        self.requests: list[str] = []
        self.more: dict[str, Any] = {}
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        answer = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self.more = {"sessionId": answer["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params, **self.more}
        self.process.stdin.write(json.dumps(message).encode() + b"\0")
        self.process.stdin.flush()
        while (answer := self.receive()).get("id") != self.number:
            pass
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def receive(self) -> dict[str, Any]:
        """Return the next message; what is an event is noted."""
        while b"\0" not in self.rest:
            piece = self.process.stdout.read1()
            assert piece, "the browser has ended"
            self.rest += piece
        text, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(text)
        method, params = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(str(params))
        return message

    def open(self, page: Path, anchor: str = "", width: int = 1440) -> None:
        """Show a page and wait until it is there; below 700 pixels on a phone."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 700)  # fmt: skip
        for address in ("about:blank", page.as_uri() + anchor):  # an anchor alone loads nothing
            self.loaded, self.console, self.requests = False, [], []
            self.call("Page.navigate", url=address)
            while not self.loaded:
                self.receive()
        self.js(FRAMES)

    def js(self, text: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True,
                           awaitPromise=True)  # fmt: skip
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A browser for all tests."""
    browser = Browser(tmp_path_factory.mktemp("profile"))
    with browser.process:
        yield browser
        browser.process.terminate()


@pytest.fixture(params=["report", "site"])
def front(request, world):
    """A page with all claims."""
    pages = {"report": world.first / "report.html", "site": world.out / "claims.html"}
    return pages[request.param]


def pages(world) -> list[Path]:
    return sorted(p for folder in (world.first, world.out) for p in folder.rglob("*.html"))


def shown(page, rows: str) -> list[str]:
    """Ids of the rows that can be seen."""
    return page.js(f"{rows}.filter(r=>r.checkVisibility()).map(r=>r.id)")


def texts(page, rows: str, node: str) -> dict[str, str]:
    """Text of a node of each row `r` by the row's id, shown or not."""
    return dict(page.js(f"{rows}.map(r=>[r.id,({node}).textContent.trim()])"))


def choose(page, form: str, name: str, value: str) -> str:
    """Choose in a field of a filter and return the count that it says."""
    return page.js(
        f"{{const f=document.getElementById('{form}'),e=f.elements.{name};e.value={value!r};"
        "e.dispatchEvent(new Event('input',{bubbles:true}));f.querySelector('output').textContent}"
    )


def test_pages_load_from_disk_with_an_empty_console_and_no_network(page, world):
    for path in pages(world):
        page.open(path)
        page.js(IMAGES)
        page.js(FRAMES)
        assert page.console == [], path
        assert page.requests[0] == path.as_uri()
        assert all(url.startswith(("file:", "data:")) for url in page.requests), path


def test_no_page_scrolls_sideways_on_a_phone(page, world):
    for path in pages(world):
        page.open(path, width=PHONE)
        page.js("document.querySelectorAll('details').forEach(d=>{d.open=true})")
        assert page.js("document.documentElement.scrollWidth") <= PHONE, path


def test_chips_and_verdicts_show_the_rows_that_they_name(page, front, world):
    page.open(front)
    verdicts = texts(page, CLAIMS, "r.cells[0].childNodes[1]")  # without its tolerance
    root = world.first if world.first in front.parents else world.out
    counts = {GLYPHS[g]: n for g, n in test_site.facts_of(root)["counts"].items() if n}
    assert Counter(verdicts.values()) == counts
    assert shown(page, CLAIMS) == list(verdicts)
    chips = page.js("[...document.querySelectorAll('.chip')].map(c=>c.textContent.trim())")
    assert sorted(chips) == sorted(f"{n} {name}" for name, n in counts.items())
    for place, chip in enumerate(chips):
        number, name = chip.split(" ", 1)
        click = f"document.querySelectorAll('.chip')[{place}].click()"
        page.js(click)
        assert shown(page, CLAIMS) == [i for i, verdict in verdicts.items() if verdict == name]
        count = page.js("document.querySelector('#filters output').textContent")
        assert count == f"{number} of {len(verdicts)}"
        page.js(click)
        assert shown(page, CLAIMS) == list(verdicts)
    choose(page, "filters", "q", "FIG1- claimed")
    assert shown(page, CLAIMS) == ["toy-fig1-what-is-claimed"]


def test_headings_sort_numbers_as_numbers_and_the_missing_last(page, front, world):
    claims = json.loads((world.first / "claims.json").read_text())
    measured = {c["id"]: c["measured"] for c in claims if isinstance(c["measured"], float)}
    assert len(set(measured.values())) > 2
    page.open(front)
    before = shown(page, CLAIMS)
    missing = [i for i in before if i not in measured]
    for down in (False, True):
        page.js("document.querySelectorAll('#claim-table th button')[3].click()")
        numbers = sorted((i for i in before if i in measured), key=measured.get, reverse=down)
        assert shown(page, CLAIMS) == numbers + missing  # equal ones in the order of the page


def test_a_link_to_a_claim_shows_it_also_under_a_filter(page, front):
    claim = "toy-fig16-what-is-claimed"
    seen = (f"(()=>{{const r=document.getElementById('{claim}'),b=r.getBoundingClientRect();"
            "return r.checkVisibility()&&b.top>=0&&b.top<innerHeight})()")  # fmt: skip
    page.open(front, f"#{claim}", width=PHONE)
    assert page.js(seen)
    page.open(front, "#?g=R", width=PHONE)
    under = shown(page, CLAIMS)
    assert under
    assert claim not in under
    page.js(f"location.hash='{claim}'")
    page.js(FRAMES)
    assert page.js(seen)
    assert sorted(shown(page, CLAIMS)) == sorted([*under, claim])
