"""Who can use the pages: keyboard, phone, low contrast, forced colours. In a real browser."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import browser
import built_pages
import pytest

from dgbench.harness.figures.colour import contrast
from dgbench.harness.figures.palette import VERDICTS
from dgbench.harness.report.words import cell_class

STYLE = files("dgbench.harness.report").joinpath("templates/style.css").read_text("utf-8")
in_browser = pytest.mark.skipif(browser.FOUND is None, reason="no chromium here")


@pytest.fixture
def built() -> Path:
    return built_pages.built()["report.html"]


@pytest.fixture
def page() -> browser.Browser:
    return built_pages.page()


def focused(page) -> str:
    return page.js("document.activeElement.getAttribute('href')||document.activeElement.tagName")


@in_browser
def test_the_board_is_one_stop_with_arrows_inside(page, built):
    page.open(built / "report.html")
    stops = "[...document.querySelectorAll('.cells a')].filter(a=>a.tabIndex===0).length"
    assert page.js(stops) == 1
    page.key("Tab")
    assert focused(page) == "#claims", "the skip link comes first"
    seen = []
    for _ in range(40):
        page.key("Tab")
        seen.append(focused(page))
        if page.js("!!document.activeElement.closest('.cells')"):
            break
    cells = page.js("[...document.querySelectorAll('.cells a')].map(a=>a.getAttribute('href'))")
    assert seen[-1] == cells[0]
    page.key("ArrowRight")
    page.key("ArrowRight")
    assert focused(page) == cells[2]
    label = page.js("document.activeElement.ariaLabel")
    assert page.js("document.getElementById('hint').textContent").startswith(label)
    page.key("ArrowLeft")
    assert focused(page) == cells[1]
    page.key("End")
    page.key("ArrowRight")
    assert focused(page) == cells[-1]
    page.key("Home")
    assert focused(page) == cells[0]
    assert page.js(stops) == 1
    page.key("Tab")
    assert focused(page) not in cells, "the next stop lies behind the board"
    page.key("Tab", shift=True)
    assert focused(page) == cells[0]
    page.key("Enter")
    page.frames()
    assert page.js("location.hash") == cells[0]
    assert page.js("document.querySelector('.hit').id") == cells[0][1:]


@in_browser
def test_arrows_go_up_and_down_by_lines(page, built):
    page.open(built / "report.html", width=390, height=800)
    page.js("document.querySelector('.cells a').focus()")
    page.key("ArrowDown")
    across = page.js("(()=>{const a=[...document.querySelectorAll('.cells a')],b=document"
                     ".activeElement;return [b.offsetTop>a[0].offsetTop,b.offsetLeft===a[0]"
                     ".offsetLeft]})()")  # fmt: skip
    assert across == [True, True]
    page.key("ArrowUp")
    assert page.js("document.activeElement===document.querySelector('.cells a')")


@in_browser
def test_everything_that_can_be_clicked_can_be_reached_and_seen(page, built):
    for name in ("report.html", "papers/toy.html", "how-to-read.html"):
        page.open(built / name)
        wanted = page.js("[...document.querySelectorAll('button,select,input,summary')].filter("
                         "e=>e.checkVisibility()&&e.tabIndex<0).map(e=>e.outerHTML)")  # fmt: skip
        assert wanted == [], name
        page.key("Tab")
        for _ in range(12):
            page.key("Tab")
            style = page.js("(s=>[s.outlineStyle,parseFloat(s.outlineWidth)])"
                            "(getComputedStyle(document.activeElement))")  # fmt: skip
            assert style[0] == "solid", (name, focused(page))
            assert style[1] >= 2.9


@in_browser
def test_fields_and_links_have_names(page, built):
    for name in ("report.html", "papers/toy.html", "runs/index.html"):
        page.open(built / name)
        tree = page.call("Accessibility.getFullAXTree")["nodes"]
        roles = {"link", "button", "combobox", "searchbox", "textbox", "table", "image", "img"}
        nameless = [
            node["role"]["value"]
            for node in tree
            if not node.get("ignored") and node["role"]["value"] in roles
            and not node.get("name", {}).get("value")
        ]  # fmt: skip
        assert nameless == [], name


@in_browser
def test_no_page_is_wider_than_a_phone(page, built):
    for path in built_pages.one_of_each():
        page.open(path, width=390, height=844)
        page.js("document.querySelectorAll('details').forEach(d=>{d.open=true})")
        assert page.js("document.documentElement.scrollWidth") <= 390, path
        wide = page.js("[...document.querySelectorAll('main *')].filter(e=>e.getClientRects()"
                       ".length&&e.getBoundingClientRect().right>391&&!e.closest('.scroll,figure,svg,thead'))"
                       ".map(e=>e.outerHTML.slice(0,200))")  # fmt: skip
        assert wide == [], path


@in_browser
def test_targets_are_large_enough(page, built):
    """24 pixels, or text inside a sentence, or a cell of the board, whose row has a large link."""
    small = ("[...document.querySelectorAll('button,select,input,summary,nav a')].filter(e=>"
             "e.checkVisibility()&&e.getClientRects().length&&"
             "(e.getBoundingClientRect().height<24||e.getBoundingClientRect().width<24))"
             ".map(e=>e.outerHTML)")  # fmt: skip
    for name in ("report.html", "papers/toy.html", "runs/index.html"):
        for width in (1440, 390):
            page.open(built / name, width=width)
            assert page.js(small) == [], (name, width)
    page.open(built / "report.html", width=390)
    chips = page.js("[...document.querySelectorAll('.chip')].map(c=>c.getBoundingClientRect())"
                    ".map(b=>[b.left,b.height])")  # fmt: skip
    assert all(height >= 44 for _, height in chips)
    assert len({round(left) for left, _ in chips}) == 2, "chips stand two by two"


@in_browser
def test_the_whole_board_is_on_the_first_screen(page, built):
    page.open(built / "report.html")
    assert page.js("[...document.querySelectorAll('.cells a')].at(-1).getBoundingClientRect()"
                   ".bottom") <= 900  # fmt: skip


@in_browser
def test_marks_keep_their_colours_where_colours_are_forced(page, built):
    colour = "getComputedStyle(document.querySelector('.gS,.gR')).backgroundColor"
    page.open(built / "report.html")
    before = page.js(colour)
    page.call("Emulation.setEmulatedMedia",
              features=[{"name": "forced-colors", "value": "active"}])  # fmt: skip
    try:
        assert page.js("matchMedia('(forced-colors: active)').matches")
        assert page.js(colour) == before
    finally:
        page.call("Emulation.setEmulatedMedia", features=[])


@in_browser
def test_text_stands_out_from_what_is_behind_it(page, built):
    """4.5:1 for all text, from the colours that the browser computes."""
    pairs = ("[...new Set([...document.querySelectorAll('main *,nav *,footer *')].filter(e=>"
             "e.checkVisibility()&&!e.closest('svg,.fail')&&[...e.childNodes].some(n=>n.nodeType"
             "===3&&n.data.trim())).map(e=>{let b=e;while(b&&getComputedStyle(b).backgroundColor"
             "==='rgba(0, 0, 0, 0)')b=b.parentElement;return getComputedStyle(e).color+'|'+"
             "(b?getComputedStyle(b).backgroundColor:'rgb(255, 255, 255)')}))]")  # fmt: skip
    for name in ("report.html", "papers/toy.html", "runs/index.html", "how-to-read.html"):
        page.open(built / name)
        for pair in page.js(pairs):
            ink, ground = (_hex(part) for part in pair.split("|"))
            assert contrast(ink, ground) >= 4.5, (name, pair)


def _hex(colour: str) -> str:
    return "#" + "".join(f"{int(n):02X}" for n in re.findall(r"\d+", colour)[:3])


def test_constants_of_the_style_sheet_have_enough_contrast():
    schemes = re.findall(r":root\{([^}]*)\}", STYLE)
    assert len(schemes) == 2, "a light and a dark one"
    for scheme in schemes:
        found = dict(re.findall(r"--([a-z]+):(#[0-9A-Fa-f]{3,6})", scheme))
        named = {name: "#FFFFFF" if value == "#fff" else value for name, value in found.items()}
        for name in ("ink", "quiet", "link"):
            for ground in ("paper", "tint", "warm", "chosen"):
                assert contrast(named[name], named[ground]) >= 4.5, (name, ground)
        for name in ("edge", "focus", "red", "blue"):
            assert contrast(named[name], named["paper"]) >= 3, name


def test_marks_wear_the_colours_of_the_figures():
    for glyph in VERDICTS:
        name = cell_class({"glyph": glyph, "twin": False}).split()[1]
        edge = VERDICTS[glyph].edge
        assert re.search(rf"\.{name}\{{[^}}]*border-color:{edge}", STYLE, re.I), name
        assert contrast(edge, "#FFFFFF") >= 3


def test_nothing_is_fetched_by_the_style_or_the_script():
    script = files("dgbench.harness.report").joinpath("templates/script.js").read_text("utf-8")
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert not re.search(r"https?:|fetch\(|XMLHttp|import\(", script)
    lean = "\n".join(line.strip() for line in script.splitlines()
                     if not line.strip().startswith("//"))  # fmt: skip
    assert len(STYLE) + len(lean) < 25_000
