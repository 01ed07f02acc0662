"""Members of archives of others, and hashes of files: unpacked whole and right, or not at all."""

import gzip
import hashlib
import io
import os
import tarfile
import zipfile

import pytest
from packing import tarred, zipped

from dgbench import datasets
from dgbench.datasets.sources import check_file, extract, hashing
from dgbench.datasets.sources.extract import extract_member
from dgbench.datasets.verifying import verify_dataset
from dgbench.runtime.errors import DataError


def make_zip(path, members):
    path.write_bytes(zipped(members))
    return path


def make_tar(path, members):
    path.write_bytes(tarred(members, "w:gz"))
    return path


def tar_of(path, infos, mode):
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as store:
        for info in infos:
            store.addfile(info, io.BytesIO(bytes(info.size)))
    return path


def entry(name, size=0):
    info = tarfile.TarInfo(name)
    info.size = size
    return info


def refused(archive, limit=100):
    """Unpack x.csv: an error, and nothing beside the archive."""
    out = archive.parent / "x"
    with pytest.raises(DataError) as caught:
        extract_member(archive, "x.csv", out, limit)
    assert os.listdir(archive.parent) == [archive.name]
    return str(caught.value)


both = pytest.mark.parametrize("make", [make_zip, make_tar])


@both
def test_only_the_expected_member_is_unpacked(tmp_path, make):
    archive = make(tmp_path / "a", {"deep/x.csv": b"1,2\n", "readme.txt": b"hello"})
    out = tmp_path / "out"
    out.mkdir()
    extract_member(archive, "deep/x.csv", out / "x", 100)
    assert (out / "x").read_bytes() == b"1,2\n"
    extract_member(archive, "x.csv", out / "y", 100)  # by its file name alone
    assert sorted(p.name for p in out.iterdir()) == ["x", "y"]


@both
def test_archives_that_leave_their_folder_burst_or_have_many_entries(tmp_path, make, monkeypatch):
    for evil in ("../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:\\evil"):
        refused(make(tmp_path / "a", {"x.csv": b"1,2\n", evil: b"bad"}))
    refused(make(tmp_path / "a", {"x.csv": bytes(3_000_000)}), 100_000)
    assert "other.csv" in refused(make(tmp_path / "a", {"other.csv": b""}))
    monkeypatch.setattr(extract, "MAX_MEMBERS", 20)
    refused(make(tmp_path / "a", {f"{k}.csv": b"" for k in range(21)}))


def test_archives_that_are_cut_or_none(tmp_path):
    path = tmp_path / "b.tgz"
    whole = make_tar(path, {"x.csv": os.urandom(5000)}).read_bytes()
    for data in (whole[:2500], b"no archive"):
        path.write_bytes(data)
        refused(path, 10_000)


def test_odd_entries_of_a_zip(tmp_path):
    archive = tmp_path / "a.zip"
    link, nul = zipfile.ZipInfo("x.csv"), zipfile.ZipInfo("x.csv")
    link.external_attr = 0o120777 << 16
    nul.orig_filename = nul.filename = "x.csv\0.exe"
    for info in (link, nul):
        with zipfile.ZipFile(archive, "w") as store:
            store.writestr(info, "/etc/passwd")
        refused(archive)
    with zipfile.ZipFile(archive, "w") as store:
        store.writestr("x.csv", "1,2\n")
        with pytest.warns(UserWarning, match="Duplicate"):
            store.writestr("x.csv", "3,4\n")
    refused(archive)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_that_unpacks_to_too_much_stops_early(tmp_path, mode, monkeypatch):
    monkeypatch.setattr(extract, "_ROOM", 100_000)
    small, large = entry("x.csv", size=10), entry("y", size=400_000)
    head = entry("x.csv", size=10)
    head.pax_headers = {"comment": "c" * 400_000}  # heads are read into memory whole
    for infos in ([small, large, entry("z")], [large, small], [head]):
        refused(tar_of(tmp_path / "a.tar", infos, mode), 1000)


def test_the_hash_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"one")
    want = hashlib.sha256(b"one").hexdigest()
    assert hashing.file_sha256(path) == want
    with monkeypatch.context() as patch:
        patch.setattr(hashing, "_MEMORY", {})  # as in another process
        patch.setattr(hashing.hashlib, "sha256", None)
        patch.setattr(hashing.hashlib, "file_digest", None, raising=False)
        assert hashing.file_sha256(path) == want
    path.write_bytes(b"other")
    assert hashing.file_sha256(path) == hashlib.sha256(b"other").hexdigest()


def test_a_wrong_file_is_named_with_both_hashes_even_behind_its_times(tiny):
    """Same size and time of change: the cache would remember the old hash."""
    ref = datasets.card("tiny").forms[0].files[0]
    check_file(tiny.file, ref)
    facts, data = os.stat(tiny.file), bytearray(tiny.file.read_bytes())
    data[-9] ^= 1
    tiny.file.write_bytes(data)
    os.utime(tiny.file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(DataError, match=ref.sha256) as caught:
        check_file(tiny.file, ref)
    assert hashlib.sha256(data).hexdigest() in str(caught.value)


def test_verifying_reads_and_remembers_nothing(tiny, monkeypatch):
    """A note in the cache that says the right hash does not make a wrong file right."""
    path, ref = tiny.file, datasets.card("tiny").forms[0].files[0]
    assert verify_dataset(datasets.card("tiny"))["ok"]
    path.write_bytes(gzip.compress(b"1,2,1,1\n", mtime=0))
    wrong = hashing.file_sha256(path)
    note = hashing._note(os.path.abspath(path))
    note.write_bytes(note.read_bytes().replace(wrong.encode(), ref.sha256.encode()))
    monkeypatch.setattr(hashing, "_MEMORY", {})
    assert hashing.file_sha256(path) == ref.sha256  # what is remembered is believed, for speed
    assert not verify_dataset(datasets.card("tiny"))["ok"]


def test_a_packed_bomb_in_place_of_a_file_ends_at_its_cap(tiny):
    """A card without the hash of the stored file unpacks what it finds, to compare the content."""
    tiny.ref = {"path": "tiny/tiny.csv.gz", "content_sha256": "00", "max_bytes": 1000}
    tiny.save()
    tiny.file.write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(DataError):
        check_file(tiny.file, datasets.card("tiny").forms[0].files[0])
