"""Making a bundle: a ZIP file of JSON with the same bytes for the same run."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

import dgbench
from dgbench.harness.bundle.labels import LABEL
from dgbench.harness.bundle.scrub import Scrubber, clean_facts, clean_info
from dgbench.harness.store.files import to_checked, to_line
from dgbench.harness.store.row import SCHEMA, Row, encode
from dgbench.harness.store.store import Store
from dgbench.lab.compare import CONTROL
from dgbench.runtime.errors import InvalidInputError, StoreError

FORMAT: Final = 1
"""Version of the bundle. A change of its members or of their meaning raises it."""
MANIFEST: Final = "bundle.json"
MEMBERS: Final = ("provenance.json", "rows.jsonl", "run.json", "system.json")
"""All files beside the manifest."""
_DATE: Final = (1980, 1, 1, 0, 0, 0)
_REGULAR: Final = 0o100644 << 16
_SPARED: Final = ("id", "cell_hash", "run", "provenance", "started", "status", "preset", "device")
"""Fields of a row that are identifiers, and hold no words."""


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """The first file of a bundle.

    Attributes:
        format: of the bundle. schema: of its rows. dgbench: version that wrote it.
        papers: whose rows it holds. processes: number of rows, earlier attempts that failed a check
            included.
        files: name of each other file -> [bytes, SHA-256].
    """

    format: int
    schema: int
    dgbench: str
    papers: list[str]
    processes: int
    files: dict[str, tuple[int, str]]


def make_bundle(run: Path, scrubber: Scrubber) -> tuple[bytes, Manifest]:
    """The bundle of a run, and its manifest.

    Raises:
        StoreError: the run cannot be read, is damaged or goes on.
        InvalidInputError: it has no row of a paper, is a run of others itself, or a private name
            stands in an identifier, from which it cannot be taken away.
    """
    store = Store.open(run)
    if store.torn or store.damaged:
        raise StoreError(
            f"{run} is damaged: {(store.damaged or [store.torn[0].reason])[0]}",
            hint="go on with the run (--resume), which repairs its folder, then submit it",
        )
    if LABEL in store.info:
        raise InvalidInputError(
            f"{run} is a run of others ({store.info[LABEL]}), allowed: a run of this machine"
        )
    if store.info.get("state") == "running":
        raise StoreError(f"{run} is not finished", hint=f"end it: dgbench run --resume {store.run}")
    rows = store.kept()
    papers = sorted({row.paper for row in rows} - {"-"})
    if not papers:
        raise InvalidInputError(f"{run} has no rows of a paper")
    used = {row.provenance for row in rows}
    provenance = {
        key: clean_facts(facts, scrubber)
        for key, facts in sorted(store.provenance().items()) if key in used
    }  # fmt: skip
    info = clean_info(store.info, scrubber)
    cells = [c.get("cell", {}) for c in (store.read_plan() or {}).get("cells", ())]
    if planned := sum(CONTROL not in cell.get("params", {}) for cell in cells):
        info["planned"] = planned
    files = {
        "rows.jsonl": b"".join(to_line(encode(_clean_row(row, scrubber))) for row in rows),
        "run.json": to_checked(info | {"papers": papers}),
        "provenance.json": to_checked(provenance),
        "system.json": to_checked(system_of(provenance)),
    }
    _refuse_names(files, scrubber)
    manifest = Manifest(
        format=FORMAT,
        schema=SCHEMA,
        dgbench=dgbench.__version__,
        papers=papers,
        processes=len(rows),
        files={name: (len(data), sha256(data)) for name, data in sorted(files.items())},
    )
    return pack({MANIFEST: _manifest_bytes(manifest), **files}), manifest


def system_of(provenance: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Description of the system by a run's provenance: machines and versions, each once."""
    machines: list[Any] = []
    packages: dict[str, list[str]] = {}
    for facts in provenance.values():
        if (machine := facts.get("machine") or {}) not in machines:
            machines.append(machine)
        for name, version in (facts.get("packages") or {}).items():
            if version not in packages.setdefault(name, []):
                packages[name].append(version)
    return {"machines": machines, "packages": packages}


def pack(files: Mapping[str, bytes]) -> bytes:
    """A ZIP file with the same bytes for the same files."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in (MANIFEST, *sorted(set(files) - {MANIFEST})):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system, entry.external_attr = 3, _REGULAR
            archive.writestr(entry, files[name], compresslevel=9)
    return out.getvalue()


def sha256(data: bytes) -> str:
    """SHA-256 of some bytes, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def _manifest_bytes(manifest: Manifest) -> bytes:
    text = msgspec.json.encode(manifest, order="deterministic")
    return msgspec.json.format(text, indent=2) + b"\n"


def _clean_row(row: Row, scrubber: Scrubber) -> Row:
    plain = scrubber.clean(msgspec.to_builtins(row), spare=_SPARED)
    return msgspec.convert(plain | {"log": "", "schema": SCHEMA}, Row)


def _refuse_names(files: Mapping[str, bytes], scrubber: Scrubber) -> None:
    found = Scrubber(names=scrubber.names)
    for name, data in files.items():
        values: Sequence[Any] = (
            [msgspec.json.decode(line)["row"] for line in data.splitlines()]
            if name == "rows.jsonl" else [msgspec.json.decode(data)]
        )  # fmt: skip
        for value in values:
            for text in found.left(value):
                raise InvalidInputError(
                    f"{name} would still hold a private word, in '{text[:60]}'",
                    hint="it stands in an identifier, which cannot be changed",
                )
