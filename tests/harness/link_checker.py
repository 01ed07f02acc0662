"""Checks that every link and image of a folder of pages leads to a file and a place in it."""

from __future__ import annotations

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote


class Page(HTMLParser):
    """Ids, links, and everything of a page that would be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        self.sources += [found[key] for key in ("src", "srcset") if key in found]
        if tag == "link":
            self.sources.append(found["href"])


def read_pages(folder: Path) -> dict[str, Page]:
    """Every HTML page below a folder by its path."""
    paths = sorted(folder.rglob("*.html"))
    return {p.relative_to(folder).as_posix(): Page(p.read_text("utf-8")) for p in paths}


def broken_links(folder: Path, spare: str = r"\.log$") -> list[str]:
    """Sentences about links and images that lead nowhere, fetched things, and ids used twice.

    `spare`: targets that match are not looked for.
    """
    pages = read_pages(folder)
    ids = {name: set(page.ids) for name, page in pages.items()}
    wrong = []
    for name, page in pages.items():
        here = folder / name
        wrong += [
            f"{name}: id '{key}' is used twice" for key, n in Counter(page.ids).items() if n > 1
        ]
        for target in {*page.links, *page.sources}:
            if target.startswith("data:"):
                continue
            if re.match(r"[a-z]+:|//", target):
                if target in page.sources:  # a link to a publisher's page is only followed by hand
                    wrong.append(f"{name}: {target} would be fetched")
                continue
            path, _, anchor = unquote(target).partition("#")
            if path and re.search(spare, path):
                continue
            other = (here.parent / path).resolve() if path else here.resolve()
            if not other.is_file():
                wrong.append(f"{name}: {target} is no file")
            elif anchor and not anchor.startswith("?") and other.suffix == ".html":
                place = ids[other.relative_to(folder.resolve()).as_posix()]
                wrong += [f"{name}: {target} is no place"] * (anchor not in place)
    return sorted(wrong)
