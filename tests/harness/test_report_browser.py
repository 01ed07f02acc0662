"""The pages in a real browser, where one is installed: script, links, filters, looks on a phone."""

from __future__ import annotations

import re
from pathlib import Path

import browser
import built_pages
import pytest

pytestmark = pytest.mark.skipif(browser.FOUND is None, reason="no chromium here")

CLAIMS = 24
SHOWN = "[...document.querySelectorAll('#claim-table tbody tr')].filter(r=>!r.hidden)"
RESTING = "!document.querySelector('.dim,[aria-sort],.hit')"


@pytest.fixture
def built() -> dict[str, Path]:
    """Front page -> folder of the report of a run, and of a site of two machines."""
    return built_pages.built()


@pytest.fixture
def page() -> browser.Browser:
    """A browser for all tests."""
    return built_pages.page()


def fronts(built) -> list[Path]:
    """Pages with the claims of all papers: a run's own front page, and one of a site's."""
    return [built["report.html"] / "report.html", built["index.html"] / "claims.html"]


def papers(built) -> list[Path]:
    return [folder / "papers" / "toy.html" for folder in built.values()]


def ids(page) -> list[str]:
    return page.js(f"{SHOWN}.map(r=>r.id)")


def fill(page, name: str, value: str) -> None:
    """Type into or choose in a field of the filters."""
    page.js(
        f"{{const f=document.forms.filters.elements.{name};f.value={value!r};"
        "f.dispatchEvent(new Event('input',{bubbles:true}))}"
    )


def test_pages_load_from_disk_without_a_word_in_the_console(page, built):
    kinds = set()
    for path in built_pages.one_of_each():
        page.open(path)
        page.js("document.querySelectorAll('img').forEach(i=>{i.loading='eager'});"
                "Promise.all([...document.images].map(i=>i.decode().catch(()=>0)))")  # fmt: skip
        assert page.said == [], path
        assert all(url.startswith(("file:", "data:")) for url in page.asked), path
        bad = page.js("[...document.images].filter(i=>!i.naturalWidth||i.alt.length<20)"
                      ".map(i=>i.outerHTML)")  # fmt: skip
        assert bad == [], path
        assert page.js("document.querySelectorAll('h1').length") == 1, path
        assert page.js("document.querySelectorAll('nav [aria-current=page]').length") == 1, path
        assert page.js("[...document.querySelectorAll('th')].every(t=>t.scope)"), path
        assert page.js("[...document.querySelectorAll('table')].every(t=>t.caption)"), path
        kinds.add(path.parent.name)
    assert {"papers", "runs"} <= kinds


def test_chips_rows_and_cells_count_the_same_also_filtered(page, built):
    for path in (*fronts(built), *papers(built)):
        page.open(path)
        chips = page.js("[...document.querySelectorAll('.chip')].map(c=>[c.dataset.glyph,"
                        "+c.querySelector('b').textContent])")  # fmt: skip
        assert sum(n for glyph, n in chips if glyph != "!") == CLAIMS
        assert len(ids(page)) == CLAIMS == page.js("document.querySelectorAll('.cells a').length")
        for glyph, number in chips:
            page.js(f"document.querySelector('.chip[data-glyph=\"{glyph}\"]').click()")
            shown = ids(page)
            assert len(shown) == number, (path, glyph)
            lit = page.js("[...document.querySelectorAll('.cells a:not(.dim)')]"
                          ".map(a=>a.hash.slice(1))")  # fmt: skip
            assert sorted(lit) == sorted(shown)
            assert page.js("document.querySelector('#filters output').textContent") == (
                f"{number} of {CLAIMS}"
            )
            assert page.js("document.querySelector('.none').hidden") == (number > 0)
            page.js(f"document.querySelector('.chip[data-glyph=\"{glyph}\"]').click()")
        assert len(ids(page)) == CLAIMS
        assert page.js(RESTING)


def test_free_text_takes_all_words_and_clearing_brings_all_back(page, built):
    page.open(built["report.html"] / "report.html")
    fill(page, "q", "TOY-fig1- claimed")
    assert ids(page) == ["toy-fig1-what-is-claimed"]
    assert page.js("location.hash") == "#?q=TOY-fig1-%20claimed"
    fill(page, "q", "toy-fig1 nowhere-to-be-found")
    assert ids(page) == []
    assert not page.js("document.querySelector('.none').hidden")
    page.js("document.querySelector('.none button').click()")
    assert len(ids(page)) == CLAIMS
    assert page.js("location.hash") == ""
    assert page.js("document.activeElement.name") == "q"


def test_every_filter_leaves_rows_that_say_so(page, built):
    path = built["index.html"] / "claims.html"
    page.open(path)
    for name in ("g", "e", "t", "m"):
        options = page.js(
            f"[...document.forms.filters.elements.{name}.options].map(o=>o.value)"
        )[1:]  # fmt: skip
        assert options
        for option in options:
            fill(page, name, option)
            fits = f"r=>r.dataset.{name}.split(' ').includes('{option}')"
            right = page.js(f"[...document.querySelector('#claim-table').tBodies[0].rows]"
                            f".filter({fits}).length")  # fmt: skip
            assert page.js(f"{SHOWN}.every({fits})")
            assert len(ids(page)) == right
        fill(page, name, "")


def test_headings_sort_numbers_as_numbers_and_missing_values_last(page, built):
    page.open(built["report.html"] / "report.html")
    first = ids(page)
    key = f"{SHOWN}.map(r=>r.cells[3].dataset.sort)"
    click = "document.querySelectorAll('#claim-table th button')[3].click()"
    for way, down in (("ascending", False), ("descending", True)):
        page.js(click)
        keys = page.js(key)
        numbers = [float(k) for k in keys if k]
        assert len(set(numbers)) > 2
        assert numbers == sorted(numbers, reverse=down)
        assert all(not k for k in keys[len(numbers) :])
        assert any(not k for k in keys)
        sorts = page.js("[...document.querySelectorAll('[aria-sort]')].map(t=>t.ariaSort)")
        assert sorts == [way]
    assert page.js("location.hash") == "#?sort=3d"
    page.js("document.querySelectorAll('#claim-table th button')[1].click()")
    assert ids(page) == first


def test_a_view_in_the_address_comes_back(page, built):
    page.open(built["report.html"] / "report.html", "#?g=R&sort=1d")
    shown = ids(page)
    assert shown
    assert shown == [i for i in reversed(_ledger(page)) if i in shown]
    assert page.js(f"{SHOWN}.every(r=>r.dataset.g==='R')")
    assert page.js("document.querySelector('.chip[data-glyph=R]').ariaPressed") == "true"
    page.open(built["report.html"] / "report.html", "#?q=%E0%A4%A")
    assert page.said == []


def _ledger(page) -> list[str]:
    return page.js("[...document.querySelectorAll('#claim-table tbody tr')]"
                   ".sort((a,b)=>a.place-b.place).map(r=>r.id)")  # fmt: skip


def test_a_link_to_a_claim_opens_marks_and_shows_it(page, built):
    claim = "toy-fig8-what-is-claimed"
    visible = (f"(()=>{{const r=document.getElementById('{claim}'),b=r.getBoundingClientRect();"
               "return [r.hidden,r.classList.contains('hit'),r.querySelector('details').open,"
               "b.top>=0&&b.top<innerHeight]})()")  # fmt: skip
    for path in (*fronts(built), *papers(built)):
        page.open(path, f"#{claim}")
        assert page.js(visible) == [False, True, True, True], path
    fill(page, "g", "R")
    assert page.js(visible)[0], "the claim has no verdict, so the filter hides it"
    page.js(f"location.hash='{claim}'")
    page.frames()
    assert page.js(visible) == [False, True, True, True]


def test_rows_can_be_found_sorted_and_linked_to(page, built):
    for folder in built.values():
        path = next((folder / "runs").glob("[!i]*.html"))
        page.open(path)
        rows = "[...document.querySelectorAll('#row-table tbody tr')].filter(r=>!r.hidden)"
        total = page.js(f"{rows}.length")
        assert page.js("document.querySelector('#row-table').tBodies[0].rows[0].dataset.s") != "ok"
        page.js("{const s=document.querySelector('form.filters').elements.s;s.value='oom';"
                "s.dispatchEvent(new Event('input',{bubbles:true}))}")  # fmt: skip
        assert 0 < page.js(f"{rows}.length") < total
        assert page.js(f"{rows}.every(r=>r.textContent.includes('out of memory'))")
        page.js("document.querySelector('form.filters [type=reset]').click()")
        page.js("document.querySelectorAll('#row-table th button')[5].click()")
        times = [float(t) for t in page.js(f"{rows}.map(r=>r.cells[5].dataset.sort)") if t]
        assert times == sorted(times)
        anchor = page.js(f"{rows}.at(-1).id")
        page.open(path, f"#{anchor}")
        assert page.js(f"document.getElementById('{anchor}').classList.contains('hit')")


def test_commands_can_be_copied(page, built):
    page.open(built["report.html"] / "papers" / "toy.html")
    page.js("document.querySelector('.experiment .copy').focus()")
    page.key("Enter")
    page.js("new Promise(f=>setTimeout(f,100))")
    assert page.js("document.activeElement.textContent") in ("copied", "selected")
    assert page.js("document.activeElement.previousElementSibling.textContent").startswith(
        "dgbench run toy/"
    )


def test_pages_are_whole_without_script(page, built):
    page.script(False)
    try:
        for path in (*fronts(built), *papers(built)):
            page.open(path)
            text = path.read_text("utf-8")
            rows = re.findall(r'<tr id="toy-[^>]*>', text)
            assert len(rows) == CLAIMS
            assert not any("hidden" in row for row in rows)
            assert "tabindex" not in "".join(re.findall(r'<a class="g[^>]*>', text))
            shown = page.js("[...document.querySelectorAll('.filters,.hint,.copy')]"
                            ".filter(e=>e.offsetParent).length")  # fmt: skip
            assert shown == 0, "controls that need script are not shown without it"
    finally:
        page.script(True)


def test_print_shows_what_is_open_and_no_controls(page, built):
    page.open(built["report.html"] / "papers" / "toy.html")
    folded = page.js("document.querySelectorAll('details:not([open])').length")
    assert folded
    page.js("dispatchEvent(new Event('beforeprint'))")
    page.call("Emulation.setEmulatedMedia", media="print")
    try:
        assert page.js("document.querySelectorAll('details:not([open])').length") == folded
        assert page.js("[...document.querySelectorAll('img')].every(i=>i.loading==='eager')")
        shown = (
            "[...document.querySelectorAll('nav,.filters,.chips,.copy')].filter(e=>e.offsetParent)"
        )
        assert page.js(f"{shown}.length") == 0
        exact = "getComputedStyle(document.querySelector('.g')).printColorAdjust"
        assert page.js(exact) == "exact"
    finally:
        page.call("Emulation.setEmulatedMedia", media="")
