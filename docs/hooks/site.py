"""Additions to MkDocs for the site of docs/: links that leave docs/, the changelog, the sources.

Pages link to files of the repository relatively, so that the links work where the repository is
read. On the site such a file is copied along and the link follows it; no address is needed.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
COPIES = "repository"
PAGES = {"CHANGELOG.md": "changelog.md"}
"""Files outside docs/ that are pages of the site."""
SHOWN = {".png", ".svg", ".html", ".csv", ".json", ".txt"}
"""Endings a browser shows as they are; others get `.txt`, or it would store them."""

_FENCE = re.compile(r"^(```|~~~)")
_LINK = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)\s]+)(\))")
_LOADED = re.compile(
    r"""<(?:script|link|img|iframe|source|video|audio)\b[^>]*?\b(?:src|href|srcset)=["']"""
    r"""((?:https?:)?//[^"']+)"""
)
_KEPT: list[tempfile.TemporaryDirectory[str]] = []


def links(text: str) -> Iterator[tuple[int, str]]:
    """(line number, target) of every relative link outside of code blocks."""
    for number, line in _plain_lines(text):
        for match in _LINK.finditer(line):
            if not re.match(r"[a-z]+:|#", match[2]):
                yield number, match[2]


def outside(page: str, target: str) -> str | None:
    """The file of the repository that a link of docs/<page> means, None where it is in docs/.

    Args:
        page: path below docs/. target: as written, relative to the page.
    """
    there = (DOCS / page).parent / target.partition("#")[0]
    path = Path(os.path.normpath(there))
    if path.is_relative_to(DOCS) or not path.is_relative_to(ROOT):
        return None
    return path.relative_to(ROOT).as_posix()


def place(path: str) -> str:
    """Where a file of the repository stands on the site, below its root."""
    if path in PAGES:
        return PAGES[path]
    return f"{COPIES}/{path}" + ("" if Path(path).suffix in SHOWN else ".txt")


def rewrite(page: str, text: str) -> str:
    """A page's text with the links that leave docs/ pointing to their copies."""
    lines = text.split("\n")
    for number, line in _plain_lines(text):
        lines[number - 1] = _LINK.sub(lambda m: m[1] + _moved(page, m[2]) + m[3], line)
    return "\n".join(lines)


def _moved(page: str, target: str) -> str:
    if re.match(r"[a-z]+:|#", target) or (path := outside(page, target)) is None:
        return target
    _, mark, anchor = target.partition("#")
    return os.path.relpath(place(path), Path(page).parent) + mark + anchor


def loaded(html: str) -> list[str]:
    """Addresses that a browser would fetch from elsewhere to show a page; links are not."""
    return [match[1] for match in _LOADED.finditer(html)]


def _plain_lines(text: str) -> Iterator[tuple[int, str]]:
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        if _FENCE.match(line.lstrip()):
            inside = not inside
        elif not inside:
            yield number, line


def on_config(config: Any) -> Any:
    """Show mkdocstrings the package: its folders stand at the top of the repository."""
    import tomllib

    plain = tomllib.loads((ROOT / "pyproject.toml").read_text())
    folder = tempfile.TemporaryDirectory(prefix="dgbench-docs-")
    _KEPT.append(folder)
    package = Path(folder.name) / "dgbench"
    package.mkdir()
    for name, source in plain["tool"]["scikit-build"]["wheel"]["packages"].items():
        if "/" in name:
            (Path(folder.name) / name).symlink_to(ROOT / source)
        else:
            for file in (ROOT / source).glob("*.py"):
                (package / file.name).symlink_to(file)
    plugin = config["plugins"]["mkdocstrings"].config
    plugin.handlers.setdefault("python", {})["paths"] = [folder.name]
    return config


on_config.mkdocs_priority = 100  # type: ignore[attr-defined]  # before mkdocstrings reads it


def on_files(files: Any, config: Any) -> Any:
    """Add the changelog as a page, and copies of what pages link to outside docs/."""
    from mkdocs.structure.files import File

    wanted = set()
    for file in files.documentation_pages():
        text = Path(file.abs_src_path).read_text()
        wanted |= {p for _, link in links(text) if (p := outside(file.src_uri, link))}
    for path in sorted(wanted | set(PAGES)):
        source = ROOT / path
        if source.is_file():  # a link to what does not exist is left for MkDocs to refuse
            content = source.read_bytes()
            if path in PAGES:
                content = content.decode()
            files.append(File.generated(config, place(path), content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links that leave docs/ follow the copies."""
    return rewrite(page.file.src_uri, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse, in a strict build, a page that loads something from elsewhere."""
    for address in loaded(output):
        logging.getLogger("mkdocs.hooks.site").warning("%s loads %s", page.file.src_uri, address)
    return output


def on_shutdown(**_: Any) -> None:
    """Remove the links to the sources."""
    while _KEPT:
        _KEPT.pop().cleanup()
