import json

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
    assert (code, "not the file of the card" in out) == (1, True)


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
