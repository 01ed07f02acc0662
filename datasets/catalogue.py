"""Dataset cards: what publishers and papers say of a dataset, as data (`cards/*.yaml`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

import msgspec

from dgbench.runtime.errors import DataError, unknown_key

if TYPE_CHECKING:
    from dgbench.datasets.twins import TwinParams

CARDS = Path(__file__).parent / "cards"

_Strict = {"frozen": True, "forbid_unknown_fields": True, "kw_only": True}


class Counts(msgspec.Struct, **_Strict):
    """Sizes. A field that is not known is None; a bipartite graph has both sides.

    Attributes:
        nodes, src_nodes, dst_nodes: vertices (with an edge, unless the card says otherwise).
        edges: events, or entries of all snapshots together.
        pairs: distinct (source, destination) pairs.
        self_edges: events of a vertex with itself.
        snapshots: steps of data that comes as snapshots.
        t_first, t_last: first and last time, in the unit of the card.
        label_sum: sum of the event labels (number of positive ones).
    """

    nodes: int | None = None
    src_nodes: int | None = None
    dst_nodes: int | None = None
    edges: int | None = None
    pairs: int | None = None
    self_edges: int | None = None
    snapshots: int | None = None
    t_first: float | None = None
    t_last: float | None = None
    label_sum: int | None = None

    def known(self) -> dict[str, int | float]:
        """The fields that are not None."""
        return {k: v for k in self.__struct_fields__ if (v := getattr(self, k)) is not None}


class PaperUse(msgspec.Struct, **_Strict):
    """What one paper prints about a dataset; None where it prints nothing.

    Attributes:
        called: the paper's name for it.
        nodes, edges, snapshots, span: as printed (`span` in words).
        feature_dim, edge_feature_dim: floats per vertex and per edge.
        smoothed_edges: entries of all snapshots after the paper's smoothing.
        edge_life: snapshots an edge lives in it (derived where the paper does not print it).
        notes: how the print is to be read.
    """

    called: str = ""
    nodes: int | None = None
    edges: int | None = None
    snapshots: int | None = None
    span: str = ""
    feature_dim: int | None = None
    edge_feature_dim: int | None = None
    smoothed_edges: int | None = None
    edge_life: int | None = None
    notes: str = ""


class Address(msgspec.Struct, **_Strict):
    """Where a publisher offers the data.

    Attributes:
        url: the address.
        mark: `seen` if it stands in a public project's script or page, `memory` if it was
            written from memory or by the host's naming pattern.
        note: what is found there.
    """

    url: str
    mark: Literal["seen", "memory"]
    note: str = ""


class BundledFile(msgspec.Struct, **_Strict):
    """The copy of a file that dgbench carries, where the licence allows it.

    Attributes:
        path: place inside `datasets/bundled`; a folder there holds LICENSE and SOURCE.
        bytes, sha256: size and hash of the copy, which may be packed differently.
    """

    path: str
    bytes: int
    sha256: str


class FileRef(msgspec.Struct, **_Strict):
    """One file of a dataset.

    Attributes:
        path: place inside the data folder.
        bytes: stored size.
        sha256: hash of the stored file, None if it was never seen.
        content_sha256: hash of what a .gz file unpacks to; a file that was compressed
            differently is accepted by it.
        git_blob: name of the file in git, where only a repository vouches for its content.
        unhashed: why there is no hash, where there is none.
        url, mark: where `fetch` takes it from, see `Address`.
        member: name inside the archive behind `url`, if it is one.
        max_bytes: most bytes that are downloaded or unpacked for it.
        bundled: the copy of it that dgbench carries, if any.
    """

    path: str
    bytes: int | None = None
    sha256: str | None = None
    content_sha256: str | None = None
    git_blob: str | None = None
    unhashed: str = ""
    url: str | None = None
    mark: Literal["seen", "memory"] = "memory"
    member: str | None = None
    max_bytes: int = 4 * 2**30
    bundled: BundledFile | None = None

    @property
    def hashed(self) -> bool:
        """Whether the card can tell the right content from any other."""
        return bool(self.sha256 or self.content_sha256 or self.git_blob)


class ReaderSpec(msgspec.Struct, **_Strict):
    """How the files of a form are read.

    Attributes:
        format: name of a reader (`dgbench.datasets.readers`).
        columns: role of each column of a table: src, dst, t, weight, label, feature or skip;
            a last `rest` takes all further columns as features.
        delimiter: `comma`, `space` or `tab`.
        skip: header lines.
        comment: lines at the head that begin with it are skipped.
        ids: `compact` renumbers the ids that occur, ascending; `bipartite` does so for each
            side, destinations after sources; `keep` takes them as they are; `names` numbers
            strings in order of appearance, each side for itself.
        time: `number`, or `date` (ISO days to Unix seconds) or `none` (all 0).
        sorted: whether the file is in time order. A sorted file that is not is refused.
        nodes: number of vertices where ids are kept.
    """

    format: str
    columns: tuple[str, ...] = ()
    delimiter: Literal["comma", "space", "tab"] = "comma"
    skip: int = 0
    comment: str = ""
    ids: Literal["compact", "bipartite", "keep", "names"] = "compact"
    time: Literal["number", "date", "none"] = "number"
    sorted: bool = True
    nodes: int | None = None


class Form(msgspec.Struct, **_Strict):
    """One way in which a dataset can be had: its files, how to read them, what must come out.

    Attributes:
        name: `held`, `publisher` ...
        files: all of them are needed.
        reader: how they are read.
        counts: exact values that reading must give; a difference is an error.
        subset: whether this is a part of the published data only.
        notes: what differs from the published data; shown with every use.
    """

    name: str
    files: tuple[FileRef, ...]
    reader: ReaderSpec
    counts: Counts = Counts()
    subset: bool = False
    notes: tuple[str, ...] = ()


class DatasetCard(msgspec.Struct, **_Strict):
    """Everything known about a dataset.

    Attributes:
        name: canonical name, lower case with hyphens.
        title: name for people.
        about: one sentence.
        kind: `events` (a time per edge) or `signals` (snapshots with native targets).
        bipartite: whether sources and destinations are different kinds of vertices.
        static: whether the topology never changes.
        aliases: further names, also those that papers use.
        time_unit: `s`, `step`, `day` ...
        span: length of the data in words.
        published: counts that the publisher states.
        papers: what each paper (`pipad`, `esdg`, `dgc`, `gnnflow`, `tgcn`) prints.
        snapshots: T used where neither the caller nor PiPAD says one.
        addresses, forms: where it can be had, and in which forms it can be read.
        beside: further files of it that no reader needs; `verify` checks them where they are.
        licence, cite: terms as stated by the publisher or repository, and what to cite.
        notes: facts that change how a number must be read.
    """

    name: str
    title: str
    about: str
    kind: Literal["events", "signals"] = "events"
    bipartite: bool = False
    static: bool = False
    aliases: tuple[str, ...] = ()
    time_unit: str = "s"
    span: str = ""
    published: Counts = Counts()
    papers: dict[str, PaperUse] = {}
    snapshots: int | None = None
    addresses: tuple[Address, ...] = ()
    forms: tuple[Form, ...] = ()
    beside: tuple[FileRef, ...] = ()
    licence: str = "none stated; the publisher's terms apply"
    cite: str = ""
    notes: tuple[str, ...] = ()

    @property
    def default_snapshots(self) -> int | None:
        """T where the caller gives none: PiPAD's, or the card's own."""
        pipad = self.papers.get("pipad")
        return pipad.snapshots if pipad and pipad.snapshots else self.snapshots

    @property
    def twin(self) -> TwinParams | None:
        """Parameters of the synthetic twin, or None where there is none."""
        from dgbench.datasets.twins.params import all_params

        return all_params().get(self.name)


def cards() -> Mapping[str, DatasetCard]:
    """All cards by canonical name, in the order of the card files. Read once per process."""
    return _catalogue()[0]


def card(name: str) -> DatasetCard:
    """The card of a dataset, by its name or an alias; case, `_` and spaces do not matter.

    Raises UnknownKeyError that suggests the nearest names.
    """
    found, index = _catalogue()
    key = index.get(_plain(name))
    if key is None:
        raise unknown_key("dataset", name, found)
    return found[key]


@cache
def _catalogue() -> tuple[Mapping[str, DatasetCard], dict[str, str]]:
    found: dict[str, DatasetCard] = {}
    index: dict[str, str] = {}
    for path in sorted(CARDS.glob("*.yaml")):
        for entry in load_cards(path):
            for name in (entry.name, *entry.aliases):
                if index.setdefault(_plain(name), entry.name) != entry.name:
                    raise DataError(f"{path.name}: the name '{name}' is used by two cards")
            if entry.name in found:
                raise DataError(f"{path.name}: there are two cards '{entry.name}'")
            found[entry.name] = entry
    return MappingProxyType(found), index


def load_cards(path: Path) -> list[DatasetCard]:
    """Read a file of cards strictly. Raises DataError with the place of an unknown key."""
    import yaml

    from dgbench.runtime.documents import load_yaml

    try:
        found = msgspec.convert(load_yaml(path.read_bytes()), list[DatasetCard])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise DataError(f"{path.name} is not a valid list of dataset cards: {error}") from None
    for entry in found:
        if not _plain(entry.name):
            raise DataError(f"{path.name}: a card has no name")
        refs = [*entry.beside, *(ref for form in entry.forms for ref in form.files)]
        paths = [ref.path for ref in refs] + [ref.bundled.path for ref in refs if ref.bundled]
        for path_text in paths:
            place = PurePosixPath(path_text)
            if place.is_absolute() or ".." in place.parts or not place.name:
                raise DataError(
                    f"{path.name}: '{path_text}' of '{entry.name}' is no path in a folder"
                )
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\s_]+", "-", str(name).strip().lower())
