"""Small SVG for the site: matplotlib's own file, rewritten without what nobody sees.

Text stays text, so that a page can be searched. Coordinates keep two decimals of a point, which is
less than a hundredth of a millimetre. Styles that repeat become classes below the figure's own id,
so that several figures may stand in one page without touching each other.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

Element = ElementTree.Element

FONTS: Final = "DejaVu Sans,Bitstream Vera Sans,Verdana,Geneva,sans-serif"
"""The first two are the font that figures are laid out with, the next two have its widths."""

_SPACE: Final = "{http://www.w3.org/2000/svg}"
_HREF: Final = "{http://www.w3.org/1999/xlink}href"
_NUMBER: Final = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?")
_STEP: Final = re.compile(r"[MLHVQCZz]|-?(?:\d+\.?\d*|\.\d+)(?:e-?\d+)?")
_TURN_BY_NOTHING: Final = re.compile(r"rotate\(-?0 [^)]*\)")
_USED: Final = re.compile(r"#([\w-]+)")
_DEFAULTS: Final = {
    "text-anchor": "start",
    "stroke-linejoin": "round",
    "stroke-linecap": "butt",
    "font-weight": "400",
    "font-style": "normal",
    "opacity": "1",
}
_NUMERIC: Final = {
    "stroke-dasharray", "stroke-width", "stroke-dashoffset", "opacity", "fill-opacity",
    "stroke-opacity",
}  # fmt: skip
_ARGUMENTS: Final = {"M": 2, "L": 2, "H": 1, "V": 1, "Q": 4, "C": 6, "Z": 0, "z": 0}


def slim(text: str) -> str:
    """An SVG of matplotlib's with the same picture in a third of the bytes.

    Ids and classes begin with a word made of the picture itself: equal input gives equal output,
    and two pictures in one page do not share names.
    """
    root = ElementTree.fromstring(text)
    body = _cleaned(root)
    _merge_lines(body)
    _drop_unused(body)
    name = "f" + _base36(zlib.crc32("".join(_lines(body)).encode()))
    _rename(body, name)
    rules = _classes(body, name)
    size = [f'{key}="{root.get(key)}"' for key in ("width", "height", "viewBox")]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{name}" {" ".join(size)} '
        f'stroke-linejoin="round" font-family="{FONTS}">'
    )
    style = f"<style>{rules}</style>\n" if rules else ""
    return f"{head}\n{style}{chr(10).join(_lines(body))}\n</svg>\n"


def number(value: float) -> str:
    """A coordinate with at most two decimals, without zeros that say nothing."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    if text in ("-0", ""):
        return "0"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def short_path(d: str) -> str:
    """A path's data: rounded, with `H` and `V`, without steps that go nowhere."""
    tokens = _STEP.findall(d)
    out: list[str] = []
    here: tuple[str, str] = ("", "")
    place = 0
    while place < len(tokens):
        command = tokens[place]
        count = _ARGUMENTS[command]
        values = [number(float(v)) for v in tokens[place + 1 : place + 1 + count]]
        place += 1 + count
        if command in "Zz":
            out.append("z")
            continue
        end = (values[-2], values[-1])
        if command == "L" and end == here and out and not out[-1].startswith("M"):
            continue
        if command == "L" and end[1] == here[1]:
            out.append("H" + end[0])
        elif command == "L" and end[0] == here[0]:
            out.append("V" + end[1])
        else:
            out.append(command + _joined(values))
        here = end
    return "".join(out)


def _joined(values: list[str]) -> str:
    text = values[0]
    for value in values[1:]:
        text += value if value.startswith("-") else f" {value}"
    return text


def _cleaned(root: Element) -> list[Element]:
    """The children that draw something, groups without a meaning of their own dissolved."""
    kept: list[Element] = []
    for child in root:
        tag = child.tag.removeprefix(_SPACE)
        if not isinstance(child.tag, str) or tag in ("metadata", "style") or "}" in tag:
            continue
        element = _attributes(child, tag)
        if tag == "text":
            # Browsers make one space of several, whatever xml:space says.
            element.text = "".join(child.itertext()).replace("  ", " \u00a0")
            kept += [element] if element.text.strip() else []
            continue
        inside = _cleaned(child)
        if tag in ("g", "defs") and not inside:
            continue
        if tag == "g" and not set(element.attrib) - {"id"}:
            kept += inside
            continue
        if tag == "path" and "d" not in element.attrib:
            continue
        element.extend(inside)
        kept.append(element)
    return kept


def _attributes(old: Element, tag: str) -> Element:
    new = ElementTree.Element(tag)
    style = _style(old.get("style", ""))
    for key, value in old.attrib.items():
        if key == "style":
            continue
        if key == _HREF:
            new.set("href", value)
        elif key == "d":
            disks = _disks(value, style) if tag == "path" else None
            if disks or value.strip():
                new.set("d", disks or short_path(value))
        elif key == "transform":
            turned = _TURN_BY_NOTHING.sub("", value).strip()
            if turned:
                new.set(key, _rounded(turned))
        elif key in ("x", "y", "width", "height"):
            new.set(key, _rounded(value))
        else:
            new.set(key, value)
    if style:
        new.set("style", ";".join(f"{key}:{value}" for key, value in style.items()))
    return new


def _disks(d: str, style: dict[str, str]) -> str | None:
    """Dots of a hatch as lines without length and with round ends: a tenth of their bytes.

    Only for paths of many closed curves that are filled and stroked in one colour; `style` is
    changed to draw them.
    """
    parts = [part for part in re.split(r"(?=M)", d) if part.strip()]
    same = style.get("fill") not in (None, "none") and style.get("fill") == style.get("stroke")
    if len(parts) < 8 or not same or any("C" not in part or "L" in part for part in parts):
        return None
    middles, widths = [], set()
    for part in parts:
        values = [float(v) for v in _NUMBER.findall(part)]
        xs, ys = values[0::2], values[1::2]
        widths.add(number(max(xs) - min(xs)))
        middles.append(f"M{_joined([number((max(v) + min(v)) / 2) for v in (xs, ys)])}h0")
    if len(widths) != 1:
        return None
    style["stroke-width"] = number(float(widths.pop()) + float(style.get("stroke-width", "1")))
    style["stroke-linecap"] = "round"
    style["fill"] = "none"
    return "".join(dict.fromkeys(middles))


def _style(text: str) -> dict[str, str]:
    """Properties of an inline style that differ from the defaults, with shortened values."""
    found = {}
    for item in filter(None, (part.strip() for part in text.split(";"))):
        key, _, value = (part.strip() for part in item.partition(":"))
        if key == "font-family" or _DEFAULTS.get(key) == value:
            continue
        if re.fullmatch(r"#([0-9a-f])\1([0-9a-f])\2([0-9a-f])\3", value):
            value = "#" + value[1::2]
        elif key in _NUMERIC:
            value = _rounded(value).replace(", ", ",")
        found[key] = value
    if found.get("stroke-dashoffset") == "0":
        del found["stroke-dashoffset"]
    return found


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda found: number(float(found.group())), text)


def _merge_lines(elements: list[Element]) -> None:
    """Neighbours that are drawn alike become one path; opaque lines do not show where they meet."""
    for element in elements:
        inside = list(element)
        if inside:
            _merge_lines(inside)
            element[:] = inside
    merged: list[Element] = []
    for element in elements:
        before = merged[-1] if merged else None
        if before is not None and _alike(before, element):
            before.set("d", before.get("d", "") + element.get("d", ""))
        else:
            merged.append(element)
    elements[:] = merged


def _alike(one: Element, other: Element) -> bool:
    style = one.get("style", "")
    if one.tag != "path" or other.tag != "path" or "opacity" in style or "fill:none" not in style:
        return False
    return {**one.attrib, "d": "", "id": ""} == {**other.attrib, "d": "", "id": ""}


def _walk(elements: list[Element]) -> Iterator[Element]:
    for element in elements:
        yield from element.iter()


def _drop_unused(elements: list[Element]) -> None:
    """Remove ids that nothing points to, and definitions without an id."""
    used = {
        name
        for element in _walk(elements)
        for key, value in element.attrib.items()
        if key not in ("id", "d")
        for name in _USED.findall(value)
    }
    for element in _walk(elements):
        if element.get("id") not in used:
            element.attrib.pop("id", None)
    for element in list(_walk(elements)):
        if element.tag == "defs":
            element[:] = [child for child in element if child.get("id")]
    elements[:] = [e for e in elements if e.tag != "defs" or len(e)]


def _rename(elements: list[Element], name: str) -> None:
    """Short ids below the figure's own, in the order in which they are defined."""
    known = [e.get("id") for e in _walk(elements) if e.get("id")]
    new = {old: f"{name}-{_base36(place)}" for place, old in enumerate(dict.fromkeys(known))}
    for element in _walk(elements):
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, new[value])
            elif "#" in value and (key == "href" or "url(" in value):
                element.set(key, _USED.sub(lambda found: f"#{new.get(found[1], found[1])}", value))


def _classes(elements: list[Element], name: str) -> str:
    """Styles that repeat as rules; the others stay where they are."""
    counts = Counter(e.get("style") for e in _walk(elements) if e.get("style"))
    often = [style for style, count in counts.most_common() if count > 1]
    often.sort(key=lambda style: (-counts[style], style))
    names = {style: _letters(place) for place, style in enumerate(often)}
    for element in _walk(elements):
        style = element.get("style")
        if style in names:
            del element.attrib["style"]
            element.set("class", names[style])
    return "".join(f"#{name} .{letters}{{{style}}}" for style, letters in names.items())


def _lines(elements: list[Element]) -> list[str]:
    found = []
    for element in elements:
        said = "".join(f" {key}={quoteattr(value)}" for key, value in element.attrib.items())
        inside = escape(element.text or "") + "".join(_lines(list(element)))
        tail = f">{inside}</{element.tag}>" if inside else "/>"
        found.append(f"<{element.tag}{said}{tail}")
    return found


def _letters(place: int) -> str:
    text = chr(97 + place % 26)
    return text if place < 26 else _letters(place // 26 - 1) + text


def _base36(value: int) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    text = digits[value % 36]
    while value := value // 36:
        text = digits[value % 36] + text
    return text
