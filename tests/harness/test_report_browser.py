"""The pages in a real browser, where one is installed: script, links, width of a phone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import fake_run
import pytest

from dgbench.harness.report import build_report

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium here")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    path = fake_run.make_run(folder)
    build_report(path, [fake_run.toy_paper(folder)])
    return path


def dump(page: Path, anchor: str, profile: Path) -> str:
    """The page after its scripts ran; fails on a message in the console."""
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-quic", "--enable-logging=stderr", f"--user-data-dir={profile}",
         "--window-size=1440,900", "--virtual-time-budget=2000", "--dump-dom",
         page.as_uri() + anchor],
        capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    return done.stdout


def test_a_link_to_a_claim_opens_it(built, tmp_path):
    text = dump(built / "report.html", "#toy-fig3-what-is-claimed", tmp_path)
    row = re.search(r'<tr id="toy-fig3-what-is-claimed"[^>]*>.*?</tr>', text, re.S)
    assert 'class="hit"' in row[0]
    assert re.search(r"<details open", row[0])


def test_a_filter_in_the_address_counts_right(built, tmp_path):
    text = dump(built / "report.html", "#?fv=R", tmp_path)
    rows = re.findall(r'<tr id="toy-[^>]*>', text)
    shown = [row for row in rows if "hidden" not in row]
    assert all('data-v="R"' in row for row in shown)
    assert f"{len(shown)} of 24</output>" in text
    dimmed = re.findall(r'class="g [^"]*dim"', text)
    assert len(dimmed) == 24 - len(shown)


def test_no_page_is_wider_than_a_phone(built, tmp_path):
    tell = (
        '<script>addEventListener("load",function(){parent.postMessage('
        'document.documentElement.scrollWidth,"*")})</script></body>'
    )
    frames = ""
    names = ("report.html", "papers/toy.html", "runs.html", "how-to-read.html")
    for name in names:
        copy = built / name.replace(".html", "-probe.html")
        copy.write_text((built / name).read_text("utf-8").replace("</body>", tell), "utf-8")
        frames += f'<iframe src="{copy.as_uri()}" width="390" height="800"></iframe>'
    frame = built / "frame.html"
    frame.write_text(
        f"<html><body>{frames}<script>var w=[];addEventListener('message',function(e)"
        "{w.push(e.data);document.body.setAttribute('data-w',w.join(' '))})</script></body></html>"
    )
    widths = re.search(r'data-w="([\d ]+)"', dump(frame, "", tmp_path))[1].split()
    assert len(widths) == len(names)
    assert all(int(width) <= 390 for width in widths)
