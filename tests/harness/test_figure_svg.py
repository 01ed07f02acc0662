"""SVG for the site: valid, small, on its own, and with the same bytes each time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import fake_points
import fake_run
import figure_digests
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.harness.figures import draw_points
from dgbench.harness.figures.draw import KINDS
from dgbench.harness.figures.svg import number, short_path, slim
from dgbench.runtime.errors import UnknownKeyError

LIMIT = 60_000
"""Bytes of one figure on the site."""


def site(kind, folder, name="f", **more):
    make, options = fake_points.POINTS[kind]
    return draw_points(
        kind, name, "A title", make(), folder, fake_run.CONTEXT, options, flavour="site", **more
    )


def uses(root):
    """Everything that an SVG points to."""
    text = " ".join(value for element in root.iter() for value in element.attrib.values())
    style = " ".join(element.text or "" for element in root.iter() if element.tag.endswith("style"))
    links = [element.get("href", "#")[1:] for element in root.iter() if "href" in element.attrib]
    return {*re.findall(r"url\(#([^)]+)\)", text + style), *links}


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_for_the_site_is_small_valid_and_on_its_own(kind, tmp_path):
    drawn = site(kind, tmp_path, data=False)
    assert all(name.endswith(".svg") for name in drawn.files)
    assert drawn.files == sorted(p.name for p in tmp_path.iterdir())
    names = set()
    for name in drawn.files:
        text = (tmp_path / name).read_text()
        assert len(text.encode()) <= LIMIT
        root = ElementTree.fromstring(text)
        own = root.get("id")
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        assert len(ids) == len(set(ids))
        assert all(found == own or found.startswith(f"{own}-") for found in ids)
        assert uses(root) <= set(ids)
        assert set(ids) <= uses(root) | {own}  # nothing is defined that nobody needs
        assert not names & set(ids)
        names |= set(ids)
        for word in ("<!--", "metadata", "DOCTYPE", "http://www.w3.org/1999", "@import", "<image"):
            assert word not in text
        values = [v for e in root.iter() for k, v in e.attrib.items() if k in ("d", "x", "y")]
        assert values
        assert not any(re.search(r"\.\d{3,}", v) for v in values)
        rules = re.findall(r"(?:^|\})([^{}]+)\{", re.search("<style>(.*)</style>", text)[1])
        assert all(rule.startswith(f"#{own} .") for rule in rules)  # never another figure's


def test_words_of_a_figure_can_be_searched_on_the_site(tmp_path):
    site("speedup", tmp_path)
    words = "".join(ElementTree.parse(tmp_path / "f-half.svg").getroot().itertext())
    for said in ("Covid19-England", "PiPAD: OOM", "noise floor", "run 0a1b2c3d"):
        assert said in words
    paper = draw_points(
        "speedup", "p", "A title", fake_points.speedup_points(), tmp_path, fake_run.CONTEXT
    )
    assert "<text" not in (tmp_path / paper.image("half")).read_text()


def test_widths_follow_the_panels_and_can_be_chosen(tmp_path):
    many = site("time_split", tmp_path / "many")
    one = site("limit_share", tmp_path / "one")
    assert many.panels == 2
    assert [f for f in many.files if f.endswith("svg")] == ["f-full.svg", "f-half.svg"]
    assert [f for f in one.files if f.endswith("svg")] == ["f-half.svg"]
    assert one.image("full") == one.image("half") == "f-half.svg"
    full = site("limit_share", tmp_path / "full", widths=("full",), data=False)
    assert full.files == ["f-full.svg"]
    assert full.image("half", "png") is None
    with pytest.raises(UnknownKeyError, match="width"):
        site("limit_share", tmp_path, widths=("third",))
    make, options = fake_points.POINTS["limit_share"]
    with pytest.raises(UnknownKeyError, match="flavour"):
        draw_points("limit_share", "f", "t", make(), tmp_path, fake_run.CONTEXT, options,
                    flavour="poster")  # fmt: skip


@pytest.mark.nightly
def test_other_processes_with_other_hashes_draw_the_same_bytes(tmp_path):
    """This process has a seed of its own: the environment's, or one drawn at random."""
    seed = "77" if os.environ.get("PYTHONHASHSEED") != "77" else "1"
    arguments = [sys.executable, figure_digests.__file__, tmp_path / "other"]
    process = subprocess.Popen(
        arguments, env=os.environ | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
    )
    here = figure_digests.draw_some(tmp_path / "here")
    other = process.communicate()[0].splitlines()
    assert process.returncode == 0
    assert len(here) == 4 * (2 + 1 + 2 * 2)
    assert here == other


@given(st.floats(-1e4, 1e4))
@settings(deadline=None, max_examples=60)
def test_a_coordinate_is_short_and_within_half_a_hundredth(value):
    text = number(value)
    assert abs(float(text) - value) <= 0.005 + 1e-9
    assert len(text) <= len(f"{value:.2f}")
    assert not re.fullmatch(r"-?0\.\d+|-0|.*\.\d*0", text)


def places(d):
    """Every end of a step of a path with absolute commands."""
    x = y = 0.0
    found = []
    for command, rest in re.findall(r"([MLHVQCz])([^MLHVQCz]*)", d):
        values = [float(v) for v in re.findall(r"-?\d*\.?\d+", rest)]
        if command == "H":
            x = values[-1]
        elif command == "V":
            y = values[-1]
        elif values:
            x, y = values[-2:]
        found.append((command in "Mz", x, y))
    return found


@given(st.lists(st.tuples(st.integers(-300, 300), st.integers(-300, 300)), min_size=2, max_size=12))
@settings(deadline=None, max_examples=60)
def test_a_shortened_path_visits_the_same_places(spots):
    spots = [(x / 7, y / 7) for x, y in spots]
    d = "M " + "\nL ".join(f"{x:.6f} {y:.6f}" for x, y in spots) + " z"
    seen = [(x, y) for _, x, y in places(short_path(d))[:-1]]
    rounded = [(float(number(x)), float(number(y))) for x, y in spots]
    kept = [spot for i, spot in enumerate(rounded) if i < 2 or spot != rounded[i - 1]]
    assert seen == kept


def test_neighbours_are_joined_unless_they_are_translucent():
    def drawn(style):
        lines = "".join(f'<path d="M {i} 0 L {i} 9" style="{style}"/>' for i in range(5))
        return slim(f'<svg xmlns="http://www.w3.org/2000/svg" width="9pt">{lines}</svg>')

    assert drawn("fill: none; stroke: #112233").count("<path") == 1
    assert drawn("fill: none; stroke: #112233; stroke-opacity: 0.5").count("<path") == 5
    assert drawn("fill: #112233").count("<path") == 5
    assert drawn("fill: none; stroke: #112233").count("stroke:#123") == 1


def test_words_keep_their_spaces_and_signs():
    text = '<text x="1.23456" transform="rotate(-0 1 2)">a  ·  b &lt; c &amp; d</text>'
    small = slim(f'<svg xmlns="http://www.w3.org/2000/svg">{text}</svg>')
    assert '<text x="1.23">a \u00a0· \u00a0b &lt; c &amp; d</text>' in small
