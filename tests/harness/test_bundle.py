"""Bundles of runs: the same bytes, no private word, and nothing of a bad one is kept."""

from __future__ import annotations

import dataclasses
import io
import stat
import zipfile
from pathlib import Path

import msgspec
import pytest
from passed_checks import PASSED

from dgbench.harness.bundle import check_bundle, checking, keep_verified, make_bundle, verify
from dgbench.harness.bundle.labels import COUNTERS_VERIFIED, LABEL, RERUN, SELF_REPORTED
from dgbench.harness.bundle.packing import MANIFEST, MEMBERS, pack, sha256
from dgbench.harness.bundle.scrub import Scrubber
from dgbench.harness.bundle.verifying import known_rows
from dgbench.harness.plan import Plan
from dgbench.harness.plugins import get_paper
from dgbench.harness.quantities import exact
from dgbench.harness.report.run import load_run
from dgbench.harness.runner import run_plan
from dgbench.harness.store import Row, Store
from dgbench.harness.store.files import from_checked, to_checked, to_line
from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.errors import InvalidInputError, StoreError

PRIVATE = ("alice", "node17", "/home", "Alice Example", "example.org", "192.168", "secret")


# --- the scrubber ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "LD=/opt/a.so:/home/alice/b.so, ~/secret/x.csv and ~alice/x, in /home",
        "file:///home/alice/x.html",
        r"C:\Users\alice\x.csv and \\node17\share\x and //node17.example.org/share/x",
        "/home/Alice Example/graphs/x.csv is missing",
        "mail alice@example.org about 192.168.3.4",
        "ALICE on node17: out of memory in alice_graph-v2",
    ],
)
def test_no_private_word_stays(text):
    scrubber = Scrubber(["alice", "node17"], ["/home/Alice Example"])
    found = scrubber.clean({"a": [text, {text: text}], "n": 3})
    assert not [word for word in PRIVATE if word.lower() in str(found).lower()]
    assert scrubber.clean(found) == found
    assert not list(scrubber.left(found))
    assert text in list(scrubber.left({"a": [text]}))


@pytest.mark.parametrize(
    "text",
    [
        "hepth/evolvegcn, edges / second and / or, 3.5/4 GiB, ~1.5/2",
        "https://snap.stanford.edu/data/x.txt.gz",
        "c++ (Debian 12.2.0-14+deb12u1) 12.2.0",
        "a malice of 10.0.0.19.2",
        "2026-11-23T21:04:14.468+00:00",
    ],
)
def test_other_words_stay(text):
    assert Scrubber(["alice", "node17"]).text(text) == text


def test_names_of_this_machine_are_private(monkeypatch, tmp_path):
    monkeypatch.setenv("USER", "carol")
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-box.lab.example.org")
    monkeypatch.setenv("HOME", str(tmp_path / "carol"))
    found = Scrubber.of_machine(tmp_path, ["apollo"], spare=["pipad"])
    said = found.text(f"carol, gpu-box, gpu-box.lab.example.org, Apollo, {tmp_path / 'carol'}/x, y")
    assert said == "<name>, <name>, <name>, <name>, <path>, y"
    assert not {"root", "pipad"} & set(found.names)


# --- a run and its bundle -------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory, warm_starts_of_module):
    """A run of two cells that count, with private words in its texts."""
    folder = tmp_path_factory.mktemp("runs")
    plan = Plan.build([get_paper("pipad")], ["table1"], "smoke", "cpu", control="none")
    plan.cells = [c for c in plan.cells if not c.status][:2]
    with Store.create(folder, {"command": "dgbench run --out /home/alice/o x"}, plan) as store:
        run_plan(plan, store, limits=False, modules=("torch",))
        facts = next(iter(store.provenance().values()))
        key = store.add_provenance(facts | {"environment": {"A": "/home/alice/lib.so"}})
        row = store.written()[0]
        more = {"notes": [*row.notes, "seen by Alice on node17"], "provenance": key}
        store.append(msgspec.structs.replace(row, **more))
        assert all(one.ok and exact(one) for one in store.rows())
    return store.path


@pytest.fixture(scope="module")
def data(run):
    return make_bundle(run, Scrubber(["alice", "node17"]))[0]


def files_of(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rebuilt(data, manifest=None, **members):
    """A bundle with other members and a manifest that fits them, as a forger would make it."""
    files = files_of(data) | {name.replace("_", "."): text for name, text in members.items()}
    found = msgspec.json.decode(files[MANIFEST])
    found["files"] = {n: (len(files[n]), sha256(files[n])) for n in MEMBERS}
    return pack(files | {MANIFEST: msgspec.json.encode(found | (manifest or {}))})


def rows_of(data):
    return [msgspec.json.decode(x)["row"] for x in files_of(data)["rows.jsonl"].splitlines()]


def with_rows(data, rows, **manifest):
    lines = b"".join(to_line(msgspec.json.encode(row)) for row in rows)
    return rebuilt(data, manifest, rows_jsonl=lines)


def checked(folder, data):
    path = folder / "bundle.zip"
    path.write_bytes(data)
    return check_bundle(path)


def test_the_same_run_gives_the_same_bytes_without_a_private_word(run, data, tmp_path):
    assert make_bundle(run, Scrubber(["alice", "node17"]))[0] == data
    bundle = checked(tmp_path, data)
    with Store.open(run) as store:
        assert [r.id for r in bundle.rows] == [r.id for r in store.written()]
        assert [exact(r) for r in bundle.rows] == [exact(r) for r in store.written()]
    for name, text in files_of(data).items():
        words = [*PRIVATE, str(run), str(Path.home() / "x")]
        assert not [word for word in words if word.encode().lower() in text.lower()], name
    assert any("seen by <name>" in note for row in rows_of(data) for note in row["notes"])


def test_a_bundle_holds_attempts_that_failed_a_check(tmp_path):
    wrong = ResultCheck(of="outputs", against="oracle", gap=0.5, tolerance=1e-5, compared=4)
    fields = {"cell_hash": "a" * 8, "paper": "pipad", "experiment": "fig10", "preset": "smoke"}
    with Store.create(tmp_path, {}) as store:
        fields |= {"run": store.run, "provenance": store.add_provenance({})}
        store.append(Row(id="a-r1", status="crash", **fields))
        store.append(Row(id="a-r1.2", status="check", reason="wrong", checks=[wrong], **fields))
        store.append(Row(id="a-r1.3", checks=[PASSED], **fields))
        store.update(state="done")
    bundle = checked(tmp_path, make_bundle(store.path, Scrubber())[0])
    assert [row.id for row in bundle.rows] == ["a-r1.2", "a-r1.3"]
    path = keep_verified(bundle, verify(bundle, [], run=False), tmp_path / "kept")
    (row,) = Store.open(path).rows()
    assert (row.id, row.status) == ("a-r1.3", "void")
    assert [before.attempt for before in row.failed_before] == ["a-r1.2"]


def test_runs_that_cannot_be_shared_make_no_bundle(run, tmp_path):
    with Store.open(run) as store:
        name = store.written()[0].id.partition("-")[0]
    with pytest.raises(InvalidInputError):  # a private word in an identifier
        make_bundle(run, Scrubber([name]))
    with Store.create(tmp_path, {}) as store:
        store.update(state="running")
    for damage in (b"", b"torn"):  # not finished, and damaged
        store.rows_path.write_bytes(damage)
        with pytest.raises(StoreError):
            make_bundle(store.path, Scrubber())


# --- bundles that nobody should believe -----------------------------------------------------


def archive_of(data, name, text=b"x", mode=0):
    """The bundle with a further entry, as it comes."""
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = mode << 16
        archive.writestr(entry, text)
    return out.getvalue()


def forged(data, **fields):
    rows = rows_of(data)
    return with_rows(data, [rows[0] | fields, *rows[1:]])


def with_info(data, **fields):
    info = msgspec.json.decode(files_of(data)["run.json"]) | fields
    info.pop("crc32")
    return rebuilt(data, run_json=to_checked(info))


BAD = {
    "altered": lambda d: pack(
        files_of(d) | {"rows.jsonl": files_of(forged(d, seconds=9))["rows.jsonl"]}
    ),
    "cut off": lambda d: d[: len(d) // 2],
    "newer schema": lambda d: rebuilt(d, {"schema": 99}),
    "unknown key": lambda d: rebuilt(d, {"extra": 1}),
    "path outside": lambda d: archive_of(d, "../rows.jsonl"),
    "link": lambda d: archive_of(d, "x", mode=stat.S_IFLNK | 0o777),
    "pickle": lambda d: archive_of(d, "x.pkl"),
    "duplicate": lambda d: archive_of(d, "run.json", b"{}"),
    "missing": lambda d: pack({k: v for k, v in files_of(d).items() if k != "system.json"}),
    "label": lambda d: with_info(d, label=RERUN),
    "private path of a row": lambda d: forged(d, reason="see /home/bob/x"),
    "log": lambda d: forged(d, log="logs/x"),
    "row of another run": lambda d: forged(d, run="ffffffff"),
    "row without provenance": lambda d: forged(d, provenance="nothing"),
    "row id": lambda d: forged(d, id="../../x"),
    "other paper": lambda d: forged(d, paper="esdg"),
    "fewer rows": lambda d: with_rows(d, rows_of(d)[1:]),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", BAD)
def test_a_bad_bundle_is_refused_and_leaves_nothing(name, data, tmp_path):
    with pytest.raises(StoreError) as error:
        checked(tmp_path, BAD[name](data))
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == [tmp_path / "bundle.zip"]


def test_a_bomb_that_lies_of_its_size_is_refused_before_it_unpacks(data, tmp_path, monkeypatch):
    monkeypatch.setattr(checking, "MAX_UNPACKED", 1 << 20)
    full = (1 << 20) + 1
    packed = bytearray(pack(files_of(data) | {"rows.jsonl": b"0" * full}))
    while (place := packed.find(full.to_bytes(4, "little"))) >= 0:
        packed[place : place + 4] = (100).to_bytes(4, "little")  # of a size that would pass
    with pytest.raises(StoreError):
        checked(tmp_path, bytes(packed))


# --- verifying ------------------------------------------------------------------------------


def lied(data):
    """Every exact counter is one more, and all checksums fit."""
    rows = rows_of(data)
    for row in rows:
        for one in row["observed"]:
            if isinstance(one["value"], int):
                one["value"] += 1
    return with_rows(data, rows)


def test_labels_without_a_run(run, data, tmp_path):
    bundle, known = checked(tmp_path, data), known_rows([run])
    alone = verify(bundle, [], run=False)
    assert (alone.label, alone.counters, alone.differ) == (SELF_REPORTED, 0, [])
    found = verify(bundle, known, run=False)
    assert (found.label, found.cells) == (COUNTERS_VERIFIED, 2)
    assert found.counters == sum(
        len(exact(row)) for row in {r.cell_hash: r for r in bundle.rows}.values()
    )
    # Other code may count otherwise: it raises no label and refuses nothing.
    other = [dataclasses.replace(one, code=("0.0.1", "", None)) for one in known]
    false = checked(tmp_path, lied(data))
    unsure = verify(false, other, run=False)
    assert (unsure.label, unsure.differ, len(unsure.unclear)) == (SELF_REPORTED, [], found.counters)
    bad = verify(false, known, run=False)
    assert (bad.label, bool(bad.differ)) == (SELF_REPORTED, True)
    with pytest.raises(StoreError):
        keep_verified(false, bad, tmp_path / "others")
    assert not (tmp_path / "others").exists()


@pytest.mark.timeout(300)
def test_the_sampled_cell_runs_again(data, tmp_path):
    found = verify(checked(tmp_path, data), [])
    assert (found.label, found.differ) == (RERUN, [])
    assert "pipad/table1" in found.sampled
    assert found.counters > 0


def test_a_kept_run_has_its_label_and_an_id_of_its_own(run, data, tmp_path):
    bundle = checked(tmp_path, data)
    found = verify(bundle, known_rows([run]), run=False)
    kept = keep_verified(bundle, found, tmp_path / "others")
    assert from_checked(kept / "run.json", required=True)[LABEL] == COUNTERS_VERIFIED
    own, others = load_run(run), load_run(kept)
    assert others.store.run == bundle.digest[:8] != own.store.run
    assert others.machine_name == f"{own.machine_name} ({COUNTERS_VERIFIED})"
    assert others.machine_slug != own.machine_slug
    assert [exact(r) for r in others.everything] == [exact(r) for r in own.everything]
    assert known_rows([kept]) == []  # runs of others vouch for nobody
    with pytest.raises(InvalidInputError):
        make_bundle(kept, Scrubber())
