import gzip
import io
import json
import re
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dgbench.harness.cli import main


def run(capsys, *arguments):
    """Exit code, output and messages of `dgbench data ...`."""
    try:
        main(["data", *arguments])
        code = 0
    except SystemExit as stop:
        code = stop.code or 0
    out, err = capsys.readouterr()
    return code, out, err


def test_list(capsys, tiny):
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert "tiny" in out
    assert "real" in out
    rows = json.loads(run(capsys, "list", "--json")[1])
    assert rows[0]["name"] == "tiny"
    assert (rows[0]["here"], rows[0]["twin"], rows[0]["edges"]) == ("real", False, 5)


def test_list_knows_all_cards_without_data(capsys, monkeypatch):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    rows = {r["name"]: r for r in json.loads(run(capsys, "list", "--json")[1])}
    assert rows["reddit"]["here"] == "fetch"
    assert rows["gdelt"]["here"] == "twin"
    held = json.loads(run(capsys, "list", "--held", "--json")[1])
    assert {row["here"] for row in held} == {"bundled"}
    assert "covid19-england" in {row["name"] for row in held}
    assert "here: bundled" in run(capsys, "info", "covid19-england")[1]
    assert len(json.loads(run(capsys, "list", "--paper", "pipad", "--json")[1])) == 7
    code, _, err = run(capsys, "list", "--paper", "pipat")
    assert (code, "pipad" in err) == (2, True)


def test_info_and_time(capsys, tiny):
    code, out, _ = run(capsys, "info", "Wee One", "--time")
    assert code == 0
    assert "edges 6" in out
    assert "times faster" in out
    found = json.loads(run(capsys, "info", "tiny", "--json")[1])
    assert found["held_form"] == "held"


def test_info_counts_what_is_there_and_marks_what_the_card_has_wrong(capsys, tiny):
    tiny.card["published"] = {"nodes": 3, "edges": 7}
    tiny.save()
    found = json.loads(run(capsys, "info", "tiny", "--json")[1])["measured"]
    counts = {"nodes": 3, "edges": 5, "self_edges": 1, "pairs": 4, "t_first": 10, "t_last": 40}
    assert found["counts"] == {**counts, "isolated": 0, "duplicates": 0, "distinct_times": 4}
    assert found["differences"] == {"edges": {"published": 7}}
    assert "published says 7  DIFFERENT" in run(capsys, "info", "tiny")[1]
    tiny.counts = {"edges": 6}  # a card that is wrong of its own file
    tiny.save()
    found = json.loads(run(capsys, "info", "tiny", "--json")[1])["measured"]
    assert found["counts"]["edges"] == 5
    assert found["differences"]["edges"] == {"card": 6, "published": 7}
    tiny.put(b"no gzip", hashed=False)
    found = json.loads(run(capsys, "info", "tiny", "--json")[1])["measured"]
    assert (found["counts"], "tiny.csv.gz" in found["fault"]) == ({}, True)


def test_info_counts_nothing_where_the_data_is_not(capsys, monkeypatch):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    assert json.loads(run(capsys, "info", "gdelt", "--json")[1])["measured"]["counts"] == {}
    assert "measured: nothing" in run(capsys, "info", "gdelt")[1]


def test_add_writes_a_card_that_works_by_name(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DGBENCH_CARDS", str(tmp_path / "cards"))
    file = tmp_path / "trips.csv"
    file.write_text("from,to,when\nann,bob,2\nbob,ann,1\n")
    code, out, _ = run(capsys, "add", str(file))
    assert (code, "src = 'from'" in out, "not in time order" in out) == (0, True, True)
    assert (tmp_path / "cards" / "trips.yaml").is_file()
    (row,) = [r for r in json.loads(run(capsys, "list", "--json")[1]) if r["name"] == "trips"]
    assert (row["here"], row["edges"]) == ("file", 2)
    assert run(capsys, "verify", "trips")[0] == 0
    code, _, err = run(capsys, "add", str(file), "--name", "trips")
    assert (code, "there is a dataset 'trips' already" in err) == (2, True)
    assert run(capsys, "add", str(file), "--name", "trips", "--replace", "--snapshots", "7")[0] == 0
    from dgbench import datasets

    assert datasets.card("trips").snapshots == 7
    assert len(datasets.open_events("trips")) == 2
    file.write_text("from,to,when\nann,bob,2\n")
    code, out, _ = run(capsys, "verify", "trips")
    assert (code, "not the file of the card" in " ".join(out.split())) == (1, True)


def test_add_of_a_parquet_file_keeps_what_its_columns_are(capsys, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    from dgbench import datasets

    columns = {"a": [1, 2], "b": [2, 1], "when": [1.5, 2.5], "x": [3.0, 4.0], "y": [5, 6]}
    parquet.write_table(pa.table(columns), tmp_path / "rides.parquet")
    roles = "src=a,dst=b,t=when,feature=x,feature=y"
    assert run(capsys, "add", str(tmp_path / "rides.parquet"), "--columns", roles)[0] == 0
    assert datasets.open_events("rides").edge_feat.tolist() == [[3, 5], [4, 6]]


def test_labels_of_vertices_are_counted(capsys, tmp_path):
    (tmp_path / "calls.csv").write_text("from,to,when\n1,2,2\n2,3,4\n")
    (tmp_path / "kinds.csv").write_text("who,kind\n1,0\n3,2\n")
    vertices = ("--vertices", str(tmp_path / "kinds.csv"), "--vertex-columns", "id=who,label=kind")
    code, out, _ = run(capsys, "add", str(tmp_path / "calls.csv"), *vertices)
    assert (code, "3 vertices, 2 of them with a label" in " ".join(out.split())) == (0, True)
    found = json.loads(run(capsys, "info", "calls", "--json")[1])["measured"]
    assert (found["counts"]["nodes"], found["counts"]["labelled"]) == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--name", "wikipedia"), "there is a dataset 'wikipedia' already"),
        (("--name", "My Trips"), "the name is 'My Trips'"),
        (("--colums", "src=a"), "No such option"),
        (("--columns", "src=from,dst=to,t=then"), "column 'then' is not known"),
    ],
)
def test_add_refuses_with_one_sentence(capsys, tmp_path, arguments, words):
    (tmp_path / "a.csv").write_text("from,to,when\n1,2,2\n2,1,3\n")
    code, _, err = run(capsys, "add", str(tmp_path / "a.csv"), *arguments)
    assert (code, words in " ".join(err.split()), "Traceback" in err) == (2, True, False)


def test_a_misspelt_name_ends_without_a_traceback(capsys):
    code, _, err = run(capsys, "info", "wikipdia")
    assert code == 2
    assert "did you mean: wikipedia" in err
    assert "Traceback" not in err


def test_verify(capsys, tiny, own_cache):
    from dgbench import datasets

    datasets.open_events("tiny")
    code, out, _ = run(capsys, "verify")
    assert (code, out.count("ok ")) == (0, 2)
    (data,) = (own_cache / "prepared").glob("*/data.bin")
    raw = bytearray(data.read_bytes())
    raw[0] ^= 1
    data.write_bytes(raw)
    tiny.put(b"changed", hashed=False)
    code, out, _ = run(capsys, "verify", "tiny")
    assert (code, out.count("BAD")) == (1, 2)
    rows = json.loads(run(capsys, "verify", "tiny", "--json")[1])
    assert [row["ok"] for row in rows] == [False, False]


def test_clean_frees_the_prepared_form_and_nothing_else(capsys, tiny, own_cache):
    from dgbench import datasets

    made = datasets.open_events("tiny")
    code, out, _ = run(capsys, "clean", "tiny")
    assert (code, out.startswith("removed 1 prepared form,")) == (0, True)
    assert list((own_cache / "prepared").iterdir()) == []
    assert made.src.tolist() == [0, 1, 0, 2, 0]  # what is open stays readable
    assert tiny.file.exists()
    assert len(datasets.open_events("tiny")) == 5
    assert "removed 0" in (run(capsys, "clean", "tiny"), run(capsys, "clean", "tiny"))[1][1]


def test_files_beside_a_dataset_are_verified(capsys, tiny):
    import hashlib

    (tiny.data / "extra").write_bytes(b"more")
    tiny.card["beside"] = [{"path": "extra", "sha256": hashlib.sha256(b"more").hexdigest()}]
    tiny.save()
    assert "ok   extra" in run(capsys, "verify")[1]
    assert "extra" in run(capsys, "info", "tiny")[1]
    (tiny.data / "extra").write_bytes(b"less")
    code, out, _ = run(capsys, "verify")
    assert (code, "BAD  extra" in out) == (1, True)


@pytest.mark.parametrize("arguments", [("fetch", "gdelt"), ("fetch", "reddit")])
def test_fetch_says_why_not(capsys, arguments, monkeypatch):
    monkeypatch.delenv("DGBENCH_OFFLINE", raising=False)
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "twin" in err or "--trust" in err


def test_twin(capsys):
    arguments = ("twin", "reddit", "--scale", "0.01", "--json")
    first, second = (json.loads(run(capsys, *arguments)[1]) for _ in range(2))
    assert first["edges"] == second["edges"] > 0
    assert any("twin" in note for note in first["notes"])
    code, out, _ = run(capsys, *arguments[:-1])
    assert (code, "vertices" in out) == (0, True)


def parquet_of_pandas() -> bytes:
    out = io.BytesIO()
    times = pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"])
    towns = {"from": pd.Categorical(["a", "b", "a"]), "to": pd.Categorical(["b", "c", "c"])}
    pd.DataFrame({**towns, "when": times}).rename(columns={"when": "time"}).to_parquet(out)
    return out.getvalue()


def npz_of(**arrays) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def zip_of(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return out.getvalue()


DAYS = ["2020-01-01", "2020-02-01", "2020-03-01"]
FORMS = {
    "sx-mathoverflow.txt.gz": (gzip.compress(b"9 8 1254192988\n1 2 1254194656\n2 9 1254202612"), 4),
    "out.opsahl-ucsocial": (b"% asym posweighted\n% 3 3 3\n1 2 1 10\n2 3 1 20\n1 3 2 30\n", 3),
    "mooc.csv": (b"user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
                 b"0,0,0.0,0,.1,.2,.3\n1,0,6.0,0,.1,.2,.3\n0,1,7.0,1,.1,.2,.3\n", 4),
    "ml_uci.csv": (b",u,i,ts,label,idx\n0,1,4,0.0,0.0,1\n1,2,4,36.0,0.0,2\n2,1,5,77.0,0.0,3\n", 4),
    "edges.csv": (b",src,dst,time,ext_roll\n0,0,3,0.0,0\n1,1,3,36.0,0\n2,1,2,77.0,1\n", 4),
    "archive.zip": (zip_of(a="From,To,Date\nann,bob,2020-01-01\nbob,cid,2020-01-02\n"
                             "ann,cid,2020-01-04\n"), 3),
    "tgbl-flight_edgelist_v2.csv": (b"timestamp,src,dst,callsign,typecode\n1,EDDF,LFPG,a,b\n"
                                    b"2,LFPG,EGLL,,\n3,EDDF,EGLL,c,d\n", 3),
    "trips.parquet": (parquet_of_pandas(), 3),
    "calls.npz": (npz_of(src=[1, 2, 1], dst=[2, 3, 3], t=np.array(DAYS, "M8[D]")), 3),
}  # fmt: skip
"""A small file of each form of docs/adding-a-dataset.md, and its vertices; each has 3 events."""


def commands_of_forms() -> list[str]:
    page = Path(__file__).parents[2] / "docs" / "adding-a-dataset.md"
    return re.findall(r"^\|.*\| `dgbench (data add .*)` \|$", page.read_text(), re.M)


def test_every_form_that_people_have_has_a_command():
    assert [shlex.split(line)[2] for line in commands_of_forms()] == list(FORMS)


@pytest.mark.parametrize("line", commands_of_forms())
def test_the_command_of_each_form_reads_it(capsys, tmp_path, monkeypatch, line):
    from dgbench import datasets

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


def test_forget_removes_the_card_and_leaves_the_file(capsys, tmp_path):
    from dgbench import datasets
    from dgbench.runtime.errors import UnknownKeyError

    file = tmp_path / "trips.csv"
    file.write_text("src,dst,t\n1,2,1\n2,3,2\n")
    run(capsys, "add", str(file), "--name", "mine")
    datasets.open_events("mine")
    code, out, _ = run(capsys, "forget", "mine")
    assert (code, str(file) in out, file.is_file()) == (0, True, True)
    with pytest.raises(UnknownKeyError):
        datasets.card("mine")
    assert run(capsys, "add", str(file), "--name", "mine")[0] == 0
    for name in ("wikipedia", "nobody"):
        code, _, err = run(capsys, "forget", name)
        assert (code, name in err, "Traceback" in err) == (2, True, False)


def test_a_card_that_cannot_be_read_is_forgotten(capsys, own_cache):
    (own_cache / "cards").mkdir()
    (own_cache / "cards" / "half.yaml").write_text("- name: ha")
    assert run(capsys, "forget", "half")[0] == 0
    assert not (own_cache / "cards" / "half.yaml").exists()


def test_advice_on_a_file_of_ones_own_that_changed_or_moved(capsys, tmp_path):
    file = tmp_path / "trips.csv"
    file.write_text("src,dst,t\n1,2,1\n2,3,2\n")
    run(capsys, "add", str(file), "--name", "mine")
    from dgbench import datasets
    from dgbench.runtime.errors import DgbenchError

    file.write_text("src,dst,t\n1,2,1\n2,3,2\n3,1,3\n")
    for _ in range(2):
        with pytest.raises(DgbenchError) as caught:
            datasets.open_events("mine", "real")
        assert "--replace" in caught.value.hint
        assert "DGBENCH_DATA" not in caught.value.hint
        file.unlink(missing_ok=True)


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
