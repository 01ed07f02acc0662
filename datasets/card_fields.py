"""Fields of a dataset card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

if TYPE_CHECKING:
    from dgbench.datasets.twins import TwinParams

Url = Annotated[str, msgspec.Meta(pattern="^(https?|ftp)://")]
"""An address that pages link to: never one that runs a script."""

_Strict = {"frozen": True, "forbid_unknown_fields": True, "kw_only": True}


UNITS_S: Final = {
    **{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "day": 86_400.0},
    "week": 7 * 86_400.0,
}
"""Seconds of the units of time that cards name."""


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
    """Facts that one paper prints about a dataset; None where it prints nothing.

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

    url: Url
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
    url: Url | None = None
    mark: Literal["seen", "memory"] = "memory"
    member: str | None = None
    max_bytes: int = 4 * 2**30
    bundled: BundledFile | None = None

    @property
    def hashed(self) -> bool:
        """True if the card has a hash that identifies the right content."""
        return bool(self.sha256 or self.content_sha256 or self.git_blob)


Delimiter = Literal["comma", "space", "tab", "semicolon", "whitespace"]


class VertexSpec(msgspec.Struct, **_Strict):
    """Format of the second file of a form, a table of vertices.

    Attributes:
        columns: role of each column: id, label, feature or skip.
        delimiter, skip, comment: as those of `ReaderSpec`.
    """

    columns: tuple[str, ...]
    delimiter: Delimiter = "comma"
    skip: int = 0
    comment: str = ""


class ReaderSpec(msgspec.Struct, **_Strict):
    """Format of the files of a form.

    Attributes:
        format: name of a reader (`dgbench.datasets.readers`, entry points `dgbench.readers`).
        columns: role of each column of a table of text: src, dst, t, weight, label, feature or
            skip; a last `rest` takes all further columns as features.
        fields: name of the column or array of each role, for `parquet` and `npz`; `feature` may
            name several.
        delimiter: `comma`, `semicolon`, `tab`, one `space`, or any run of `whitespace`.
        skip: header lines.
        comment: lines that begin with it are skipped.
        ids: `compact` renumbers the ids that occur, ascending; `bipartite` does so for each
            side, destinations after sources; `keep` takes them as they are; `names` numbers
            strings in order of appearance; `names-bipartite` does so for each side.
        time: `number`, `date` (ISO days to Unix seconds), `timestamp` (ISO date and time to Unix
            seconds) or `none` (all 0).
        sorted: whether the file is in time order. A sorted file that is not is refused.
        nodes: number of vertices where ids are kept.
        vertices: how the second file is read, where there is one.
    """

    format: str
    columns: tuple[str, ...] = ()
    fields: dict[str, str | tuple[str, ...]] = {}
    delimiter: Delimiter = "comma"
    skip: int = 0
    comment: str = ""
    ids: Literal["compact", "bipartite", "keep", "names", "names-bipartite"] = "compact"
    time: Literal["number", "date", "timestamp", "none"] = "number"
    sorted: bool = True
    nodes: int | None = None
    vertices: VertexSpec | None = None


class DatasetVariant(msgspec.Struct, **_Strict):
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
        time_unit: a unit of `UNITS_S`, also several of it (`5 min`), or `step` or `none`, which
            have no length.
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
    forms: tuple[DatasetVariant, ...] = ()
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
    def unit_s(self) -> float | None:
        """Seconds of one unit of time; None where it has no length or nobody says it."""
        count, _, unit = self.time_unit.rpartition(" ")
        seconds = UNITS_S.get(unit)
        return (
            None if seconds is None or not (count or "1").isdigit() else int(count or 1) * seconds
        )

    @property
    def twin(self) -> TwinParams | None:
        """Parameters of the synthetic twin, or None where there is none."""
        from dgbench.datasets.twins.params import all_params

        return all_params().get(self.name)
