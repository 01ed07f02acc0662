"""The command `dgbench data`: exit codes, fields of its JSON, and what it leaves on the disk."""

import gzip
import hashlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from packing import arrays, written, zipped

from dgbench import datasets
from dgbench.harness.cli import main
from dgbench.runtime.errors import DgbenchError, UnknownKeyError


def run(capsys, *arguments):
    """Exit code, output and messages of `dgbench data ...`."""
    try:
        main(["data", *map(str, arguments)])
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capsys.readouterr()
    return code, out, err


def read(capsys, *arguments):
    """Output as JSON."""
    return json.loads(run(capsys, *arguments, "--json")[1])


def refused(capsys, *arguments, word=""):
    code, _, err = run(capsys, *arguments)
    assert (code, "Traceback" in err) == (2, False)
    assert word in " ".join(err.split())


def test_list_knows_all_cards_without_data(capsys, monkeypatch):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    rows = {r["name"]: r["here"] for r in read(capsys, "list")}
    assert (rows["reddit"], rows["gdelt"]) == ("fetch", "twin")
    bundled = read(capsys, "list", "--held")
    assert {row["here"] for row in bundled} == {"bundled"}
    assert "covid19-england" in {row["name"] for row in bundled}
    assert len(read(capsys, "list", "--paper", "pipad")) == 7
    assert read(capsys, "info", "gdelt")["measured"]["counts"] == {}
    monkeypatch.delenv("DGBENCH_OFFLINE", raising=False)
    for arguments, word in (
        (("list", "--paper", "pipat"), "pipad"),
        (("info", "wikipdia"), "wikipedia"),
        (("fetch", "gdelt"), "twin"),
        (("fetch", "reddit"), "--trust"),
    ):
        refused(capsys, *arguments, word=word)


def test_info_counts_what_is_there_and_marks_what_the_card_has_wrong(capsys, tiny):
    tiny.card["published"] = {"nodes": 3, "edges": 7}
    tiny.save()
    measured = read(capsys, "info", "tiny")["measured"]
    counts = {"nodes": 3, "edges": 5, "self_edges": 1, "pairs": 4, "t_first": 10, "t_last": 40}
    assert measured["counts"] == {**counts, "isolated": 0, "duplicates": 0, "distinct_times": 4}
    assert measured["differences"] == {"edges": {"published": 7}}
    tiny.counts = {"edges": 6}  # a card that is wrong of its own file
    tiny.save()
    measured = read(capsys, "info", "tiny")["measured"]
    assert measured["counts"]["edges"] == 5
    assert measured["differences"]["edges"] == {"card": 6, "published": 7}
    tiny.put(b"no gzip", hashed=False)
    measured = read(capsys, "info", "tiny")["measured"]
    assert (measured["counts"], "tiny.csv.gz" in measured["fault"]) == ({}, True)


def test_add_writes_a_card_that_works_by_name_until_it_is_forgotten(capsys, tmp_path, own_cache):
    file = tmp_path / "trips.csv"
    file.write_text("from,to,when\nann,bob,2\nbob,ann,1\n")
    assert run(capsys, "add", file)[0] == 0
    assert (own_cache / "cards" / "trips.yaml").is_file()
    (row,) = [r for r in read(capsys, "list") if r["name"] == "trips"]
    assert (row["here"], row["edges"]) == ("file", 2)
    assert run(capsys, "verify", "trips")[0] == 0
    refused(capsys, "add", file, "--name", "trips", word="'trips'")
    assert run(capsys, "add", file, "--name", "trips", "--replace", "--snapshots", "7")[0] == 0
    assert datasets.card("trips").snapshots == 7
    assert len(datasets.open_events("trips")) == 2
    file.write_text("from,to,when\nann,bob,2\n")
    assert run(capsys, "verify", "trips")[0] == 1
    for _ in range(2):  # it changed, or moved
        with pytest.raises(DgbenchError) as caught:
            datasets.open_events("trips", "real")
        assert "--replace" in caught.value.hint
        file.unlink(missing_ok=True)
    file.write_text("from,to,when\nann,bob,2\nbob,ann,1\n")
    assert (run(capsys, "forget", "trips")[0], file.is_file()) == (0, True)
    with pytest.raises(UnknownKeyError):
        datasets.card("trips")
    assert run(capsys, "add", file, "--name", "trips")[0] == 0
    for name in ("wikipedia", "nobody"):
        refused(capsys, "forget", name, word=name)
    (own_cache / "cards" / "half.yaml").write_text("- name: ha")
    assert run(capsys, "forget", "half")[0] == 0
    assert not (own_cache / "cards" / "half.yaml").exists()


def test_add_keeps_labels_of_vertices(capsys, tmp_path):
    (tmp_path / "rides.csv").write_text("a,b,when\n1,2,1.5\n2,1,2.5\n")
    (tmp_path / "kinds.csv").write_text("who,kind\n1,0\n3,2\n")
    vertices = ("--vertices", tmp_path / "kinds.csv", "--vertex-columns", "id=who,label=kind")
    roles = ("--columns", "src=a,dst=b,t=when")
    assert run(capsys, "add", tmp_path / "rides.csv", *roles, *vertices)[0] == 0
    counts = read(capsys, "info", "rides")["measured"]["counts"]
    assert (counts["nodes"], counts["labelled"]) == (2, 1)


def test_add_refuses_what_it_cannot_do(capsys, tmp_path):
    (tmp_path / "a.csv").write_text("from,to,when\n1,2,2\n2,1,3\n")
    for arguments, word in (
        (("--name", "wikipedia"), "'wikipedia'"), (("--name", "My Trips"), "'My Trips'"),
        (("--colums", "src=a"), "--colums"), (("--columns", "src=from,dst=to,t=then"), "'then'"),
    ):  # fmt: skip
        refused(capsys, "add", tmp_path / "a.csv", *arguments, word=word)


def test_verify_reads_files_prepared_forms_and_what_lies_beside(capsys, tiny, own_cache):
    (tiny.data / "extra").write_bytes(b"more")
    tiny.card["beside"] = [{"path": "extra", "sha256": hashlib.sha256(b"more").hexdigest()}]
    tiny.save()
    datasets.open_events("tiny")
    assert [row["ok"] for row in read(capsys, "verify")] == [True] * 3
    assert run(capsys, "verify")[0] == 0
    (data,) = (own_cache / "prepared").glob("*/data.bin")
    raw = bytearray(data.read_bytes())
    raw[0] ^= 1
    data.write_bytes(raw)
    tiny.put(b"changed", hashed=False)
    (tiny.data / "extra").write_bytes(b"less")
    assert [row["ok"] for row in read(capsys, "verify", "tiny")] == [False] * 3
    assert run(capsys, "verify", "tiny")[0] == 1


def test_clean_frees_the_prepared_form_and_nothing_else(capsys, tiny, own_cache):
    made = datasets.open_events("tiny")
    assert run(capsys, "clean", "tiny")[0] == 0
    assert list((own_cache / "prepared").iterdir()) == []
    assert made.src.tolist() == [0, 1, 0, 2, 0]  # what is open stays readable
    assert tiny.file.exists()


def test_a_twin_is_made_and_counted(capsys):
    found = read(capsys, "twin", "reddit", "--scale", "0.01")
    assert found["edges"] == len(datasets.open_events("reddit", "twin", 0.01)) > 0


def parquet_of_pandas() -> bytes:
    times = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"])
    towns = {"from": pd.Categorical(["a", "b", "a"]), "to": pd.Categorical(["b", "c", "c"])}
    return written(pd.DataFrame({**towns, "time": times}).to_parquet)


DAYS = ["2020-01-01", "2020-02-01", "2020-03-01"]
FORMS = {
    "sx-mathoverflow.txt.gz": (gzip.compress(b"9 8 1254192988\n1 2 1254194656\n2 9 1254202612"), 4),
    "out.opsahl-ucsocial": (b"% asym posweighted\n% 3 3 3\n1 2 1 10\n2 3 1 20\n1 3 2 30\n", 3),
    "mooc.csv": (b"user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
                 b"0,0,0.0,0,.1,.2,.3\n1,0,6.0,0,.1,.2,.3\n0,1,7.0,1,.1,.2,.3\n", 4),
    "ml_uci.csv": (b",u,i,ts,label,idx\n0,1,4,0.0,0.0,1\n1,2,4,36.0,0.0,2\n2,1,5,77.0,0.0,3\n", 4),
    "edges.csv": (b",src,dst,time,ext_roll\n0,0,3,0.0,0\n1,1,3,36.0,0\n2,1,2,77.0,1\n", 4),
    "archive.zip": (zipped({"a": "From,To,Date\nann,bob,2020-01-01\nbob,cid,2020-01-02\n"
                                  "ann,cid,2020-01-04\n"}), 3),
    "tgbl-flight_edgelist_v2.csv": (b"timestamp,src,dst,callsign,typecode\n1,EDDF,LFPG,a,b\n"
                                    b"2,LFPG,EGLL,,\n3,EDDF,EGLL,c,d\n", 3),
    "trips.parquet": (parquet_of_pandas(), 3),
    "calls.npz": (arrays(src=[1, 2, 1], dst=[2, 3, 3], t=np.array(DAYS, "M8[D]")), 3),
}  # fmt: skip
"""A small file of each form of docs/adding-a-dataset.md, and its vertices; each has 3 events."""


def commands_of_forms() -> list[str]:
    page = Path(__file__).parents[2] / "docs" / "adding-a-dataset.md"
    return re.findall(r"^\|.*\| `dgbench (data add .*)` \|$", page.read_text(), re.M)


def test_every_form_that_people_have_has_a_command():
    assert [shlex.split(line)[2] for line in commands_of_forms()] == list(FORMS)


@pytest.mark.parametrize("line", commands_of_forms())
def test_the_command_of_each_form_reads_it(capsys, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    words = shlex.split(line)[1:]
    data, vertices = FORMS[words[1]]
    Path(words[1]).write_bytes(data)
    code, _, err = run(capsys, *words, "--name", "one")
    assert code == 0, err
    events = datasets.open_events("one", "real")
    assert (len(events), events.num_nodes) == (3, vertices)
    known = "--time-unit" in line or "Date" in line or words[1] in ("trips.parquet", "calls.npz")
    assert (datasets.card("one").unit_s == 1.0) is known
    if words[1] == "mooc.csv":
        assert (events.num_src, events.edge_feat.shape) == (2, (3, 3))


def test_control_characters_of_a_file_do_not_reach_the_terminal(capsys, tmp_path):
    bad = "\x1b[31m\x07\x9b\u202e"
    for name, text in (
        ("a.csv", f"src,dst,t\n1,2,{bad}\n"),
        ("b.csv", f"src,dst,t,{bad}\n1,2,1,1\n2,1,2,1\n"),
        (f"{bad}.csv", "src,dst,t\n1,2,1\n2,1,2\n"),
    ):
        (tmp_path / name).write_text(text)
        _, out, err = run(capsys, "add", str(tmp_path / name))
        assert not set(bad) - set("[31m") & set(out + err)
        assert out + err
