"""The pages in a real browser, where one is installed: script, links, filters, looks on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import browser
import fake_run
import pytest

from dgbench.harness.report.build import build_report

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(browser.FOUND is None, reason="no chromium here"),
]

CLAIMS = 24
SHOWN = "[...document.querySelectorAll('#claim-table tbody tr')].filter(r=>!r.hidden)"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Folder of the report of an invented run."""
    folder = tmp_path_factory.mktemp("results")
    run = fake_run.make_run(folder)
    build_report(run, [fake_run.light_paper(folder)])
    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[browser.Browser]:
    found = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def fronts(built) -> list[Path]:
    return [built / "report.html", built / "papers" / "toy.html"]


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
    for path in built.rglob("*.html"):
        page.open(path)
        page.js("document.querySelectorAll('img').forEach(i=>{i.loading='eager'});"
                "Promise.all([...document.images].map(i=>i.decode().catch(()=>0)))")  # fmt: skip
        assert page.said == [], path
        assert all(url.startswith(("file:", "data:")) for url in page.asked), path
        bad = page.js("[...document.images].filter(i=>!i.naturalWidth||i.alt.length<20)"
                      ".map(i=>i.outerHTML)")  # fmt: skip
        assert bad == [], path
        kinds.add(path.parent.name)
    assert {"papers", "runs"} <= kinds


def test_chips_rows_and_cells_count_the_same_also_filtered(page, built):
    for path in fronts(built):
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


def test_free_text_takes_all_words_and_clearing_brings_all_back(page, built):
    page.open(built / "report.html")
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


def test_a_view_in_the_address_comes_back(page, built):
    page.open(built / "report.html", "#?g=R&sort=1d")
    shown = ids(page)
    assert shown
    assert page.js(f"{SHOWN}.every(r=>r.dataset.g==='R')")
    assert page.js("document.querySelector('.chip[data-glyph=R]').ariaPressed") == "true"
    page.open(built / "report.html", "#?q=%E0%A4%A")
    assert page.said == []


def test_a_link_to_a_claim_opens_marks_and_shows_it(page, built):
    claim = "toy-fig8-what-is-claimed"
    visible = (f"(()=>{{const r=document.getElementById('{claim}'),b=r.getBoundingClientRect();"
               "return [r.hidden,r.classList.contains('hit'),r.querySelector('details').open,"
               "b.top>=0&&b.top<innerHeight]})()")  # fmt: skip
    for path in fronts(built):
        page.open(path, f"#{claim}")
        assert page.js(visible) == [False, True, True, True], path
    fill(page, "g", "R")
    assert page.js(visible)[0], "the claim has no verdict, so the filter hides it"
    page.js(f"location.hash='{claim}'")
    page.frames()
    assert page.js(visible) == [False, True, True, True]
