import contextlib
import gzip
import hashlib
import http.server
import io
import os
import tarfile
import threading
import zipfile

import pytest

from dgbench import datasets
from dgbench.datasets.sources import (
    check_file,
    data_dir,
    download_dir,
    extract,
    find_form,
    hashing,
    trusted,
)
from dgbench.datasets.sources.download import fetch
from dgbench.datasets.sources.extract import extract_member
from dgbench.datasets.sources.trusted import check_pin, pins_file
from dgbench.datasets.verifying import verify_dataset
from dgbench.runtime.errors import DataError, MissingDataError, UnknownKeyError, UnsupportedError


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as store:
        for name, data in members.items():
            store.writestr(name, data)
    return path


def make_tar(path, members, mode="w:gz"):
    with tarfile.open(path, mode) as store:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            store.addfile(info, io.BytesIO(data))
    return path


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_only_the_expected_member_is_unpacked(tmp_path, make):
    archive = make(tmp_path / "a", {"deep/x.csv": b"1,2\n", "readme.txt": b"hello"})
    out = tmp_path / "out"
    out.mkdir()
    extract_member(archive, "deep/x.csv", out / "x", 100)
    assert (out / "x").read_bytes() == b"1,2\n"
    extract_member(archive, "x.csv", out / "y", 100)  # by its file name alone
    assert sorted(p.name for p in out.iterdir()) == ["x", "y"]


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("evil", ["../evil", "/etc/evil", "a/../../evil", "..\\evil", "C:\\evil"])
def test_an_archive_that_leaves_its_folder_is_refused_as_a_whole(tmp_path, make, evil):
    archive = make(tmp_path / "a", {"x.csv": b"1,2\n", evil: b"bad"})
    with pytest.raises(DataError, match="leaves its folder"):
        extract_member(archive, "x.csv", tmp_path / "x", 100)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_bomb_stops_at_the_cap(tmp_path, make):
    archive = make(tmp_path / "a", {"x.csv": bytes(3_000_000)})
    with pytest.raises(DataError, match="more than 100,000 bytes"):
        extract_member(archive, "x.csv", tmp_path / "x", 100_000)
    assert not (tmp_path / "x").exists()


def test_links_and_missing_or_damaged_members_are_refused(tmp_path):
    with tarfile.open(tmp_path / "link.tar", "w") as store:
        info = tarfile.TarInfo("x.csv")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        store.addfile(info)
    with pytest.raises(DataError):
        extract_member(tmp_path / "link.tar", "x.csv", tmp_path / "x", 100)
    archive = make_zip(tmp_path / "a.zip", {"other.csv": b""})
    with pytest.raises(DataError, match=r"does not hold 'x.csv'; it holds: other.csv"):
        extract_member(archive, "x.csv", tmp_path / "x", 100)
    whole = make_tar(tmp_path / "b.tgz", {"x.csv": os.urandom(5000)}).read_bytes()
    (tmp_path / "b.tgz").write_bytes(whole[:2500])
    with pytest.raises(DataError):
        extract_member(tmp_path / "b.tgz", "x.csv", tmp_path / "x", 10_000)
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(DataError, match="neither a zip nor a tar"):
        extract_member(tmp_path / "text", "x.csv", tmp_path / "x", 100)
    assert not (tmp_path / "x").exists()


def test_the_hash_is_remembered_until_the_file_changes(tmp_path, monkeypatch):
    path = tmp_path / "f"
    path.write_bytes(b"one")
    want = hashlib.sha256(b"one").hexdigest()
    assert hashing.file_sha256(path) == want
    monkeypatch.setattr(hashing, "_MEMORY", {})  # as in another process
    monkeypatch.setattr(hashing.hashlib, "sha256", None)
    monkeypatch.setattr(hashing.hashlib, "file_digest", None, raising=False)
    assert hashing.file_sha256(path) == want
    monkeypatch.undo()
    path.write_bytes(b"other")
    assert hashing.file_sha256(path) == hashlib.sha256(b"other").hexdigest()


def test_a_wrong_file_is_named_with_both_hashes(tiny):
    ref = datasets.card("tiny").forms[0].files[0]
    check_file(tiny.file, ref)
    tiny.file.write_bytes(b"something else")
    found = hashlib.sha256(b"something else").hexdigest()
    with pytest.raises(DataError, match=f"{found} and 14 bytes, expected {ref.sha256}"):
        check_file(tiny.file, ref)


def test_data_dir(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_DATA", str(tmp_path))
    assert data_dir() == tmp_path
    monkeypatch.delenv("DGBENCH_DATA")
    assert data_dir() is None


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    """A server on this machine that offers the files of a folder."""
    monkeypatch.delenv("DGBENCH_OFFLINE", raising=False)
    folder = tmp_path / "published"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def remote(tiny, publisher):
    """The tiny dataset, not held but offered by the server as a plain file."""
    folder, url = publisher
    plain = gzip.decompress(tiny.file.read_bytes())
    (folder / "tiny.csv").write_bytes(plain)
    tiny.ref["content_sha256"] = hashlib.sha256(plain).hexdigest()
    tiny.ref["url"] = f"{url}/tiny.csv"
    tiny.save()
    tiny.file.unlink()
    return tiny, folder


def leftovers():
    return [p for p in download_dir().rglob("*") if p.is_file() and not p.name.endswith(".lock")]


def test_fetch_verifies_keeps_and_opens(remote):
    _tiny, _ = remote
    card = datasets.card("tiny")
    assert find_form(card) is None
    told = []
    (path,) = fetch(card, progress=lambda *a: told.append(a))
    assert path == download_dir() / "tiny/tiny.csv.gz"
    assert told[-1] == ("tiny/tiny.csv.gz", 46, 46)
    assert len(datasets.open_events("tiny")) == 5
    told.clear()
    fetch(card, progress=lambda *a: told.append(a))
    assert told == []  # it is here already


def test_a_wrong_download_never_gets_its_name(remote):
    _tiny, folder = remote
    (folder / "tiny.csv").write_bytes(b"something else")
    with pytest.raises(DataError, match="not the file of the card"):
        fetch(datasets.card("tiny"))
    assert leftovers() == []


def test_without_a_hash_trust_is_needed(remote):
    tiny, _ = remote
    tiny.ref = {"path": "tiny/tiny.csv.gz", "url": tiny.ref["url"]}
    tiny.save()
    with pytest.raises(DataError, match="no hash") as caught:
        fetch(datasets.card("tiny"))
    assert "--trust" in caught.value.hint
    fetch(datasets.card("tiny"), trust=True)
    assert len(datasets.open_events("tiny")) == 5


def test_what_was_trusted_once_must_stay_what_it_was(remote):
    tiny, folder = remote
    tiny.ref = {"path": "tiny/tiny.csv.gz", "url": tiny.ref["url"], "unhashed": "nobody was there"}
    tiny.save()
    with pytest.raises(DataError, match="nobody was there"):
        fetch(datasets.card("tiny"))
    (path,) = fetch(datasets.card("tiny"), trust=True)
    pinned = pins_file().read_text()
    assert hashlib.sha256(path.read_bytes()).hexdigest() in pinned
    assert fetch(datasets.card("tiny"), trust=True) == [path]  # the same again is fine

    right = path.read_bytes()
    path.write_bytes(gzip.compress(b"1,2,1,1\n", mtime=0))  # changed in the cache
    with pytest.raises(DataError, match="not what was accepted"):
        datasets.open_events("tiny")
    with pytest.raises(DataError, match="not what was accepted"):
        fetch(datasets.card("tiny"), trust=True)
    path.write_bytes(right)
    assert len(datasets.open_events("tiny")) == 5

    path.unlink()  # changed by the publisher
    (folder / "tiny.csv").write_bytes(b"1,2,1,1\n")
    with pytest.raises(DataError, match="not what was accepted") as caught:
        fetch(datasets.card("tiny"), trust=True)
    assert str(pins_file()) in caught.value.hint
    assert pins_file().read_text() == pinned
    assert not path.exists()
    pins_file().unlink()  # accepted anew
    fetch(datasets.card("tiny"), trust=True)
    assert pins_file().read_text() != pinned


def test_pins_bind_downloads_only_and_are_never_guessed(remote):
    tiny, _ = remote
    tiny.ref = {"path": "tiny/tiny.csv.gz", "url": tiny.ref["url"]}
    tiny.save()
    (path,) = fetch(datasets.card("tiny"), trust=True)
    check_pin(tiny.file, "tiny/tiny.csv.gz", "0" * 64)  # the user's own file
    pins_file().write_text('{"tiny/tiny.csv.gz": 3}')
    with pytest.raises(DataError, match="cannot be read"):
        check_pin(path, "tiny/tiny.csv.gz", "0" * 64)


def test_a_file_altered_behind_its_times_is_found(tiny):
    """Same size and time of change: the cache would remember the old hash."""
    ref = datasets.card("tiny").forms[0].files[0]
    check_file(tiny.file, ref)
    facts = os.stat(tiny.file)
    data = bytearray(tiny.file.read_bytes())
    data[-9] ^= 1
    tiny.file.write_bytes(data)
    os.utime(tiny.file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(DataError, match="not the file of the card"):
        check_file(tiny.file, ref)


def test_verifying_reads_and_remembers_nothing(tiny, monkeypatch):
    """A note in the cache that says the right hash does not make a wrong file right."""
    path, ref = tiny.file, datasets.card("tiny").forms[0].files[0]
    assert verify_dataset(datasets.card("tiny"))["ok"]
    path.write_bytes(gzip.compress(b"1,2,1,1\n", mtime=0))
    hashing.file_sha256(path)
    note = hashing._note(os.path.abspath(path))
    lie = note.read_bytes().replace(hashing.file_sha256(path).encode(), ref.sha256.encode())
    note.write_bytes(lie)
    monkeypatch.setattr(hashing, "_MEMORY", {})
    assert hashing.file_sha256(path) == ref.sha256  # what is remembered is believed, for speed
    found = verify_dataset(datasets.card("tiny"))
    assert not found["ok"]
    assert "not the file of the card" in found["words"]


def test_fetch_from_an_archive(remote):
    tiny, folder = remote
    make_zip(folder / "a.zip", {"in/tiny.csv": (folder / "tiny.csv").read_bytes(), "x": b"y"})
    tiny.ref |= {"url": tiny.ref["url"].replace("tiny.csv", "a.zip"), "member": "in/tiny.csv"}
    tiny.save()
    fetch(datasets.card("tiny"))
    assert len(datasets.open_events("tiny")) == 5
    assert [p.name for p in leftovers()] == ["tiny.csv.gz"]


def test_a_download_stops_at_the_cap(remote):
    tiny, _ = remote
    tiny.ref["max_bytes"] = 10
    tiny.save()
    with pytest.raises(MissingDataError, match="sends 46 bytes, more than 10 bytes"):
        fetch(datasets.card("tiny"))
    assert leftovers() == []


def test_an_unreachable_publisher_and_unknown_forms(remote):
    tiny, folder = remote
    (folder / "tiny.csv").unlink()
    with pytest.raises(MissingDataError, match=r"cannot be fetched.*404"):
        fetch(datasets.card("tiny"))
    with pytest.raises(UnknownKeyError, match="form 'hold' of 'tiny'"):
        fetch(datasets.card("tiny"), form="hold")
    del tiny.ref["url"]
    tiny.save()
    with pytest.raises(UnsupportedError, match="cannot be downloaded"):
        fetch(datasets.card("tiny"))


def test_a_folder_that_cannot_be_written_is_said(remote, monkeypatch, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("DGBENCH_CACHE", str(blocked))
    with pytest.raises(MissingDataError, match="cannot be stored") as caught:
        fetch(datasets.card("tiny"))
    assert "DGBENCH_CACHE" in caught.value.hint


def tar_of(path, infos, mode="w"):
    with tarfile.open(path, mode, format=tarfile.PAX_FORMAT) as store:
        for info in infos:
            store.addfile(info, io.BytesIO(bytes(info.size)))
    return path


def entry(name, kind=tarfile.REGTYPE, link="", size=0):
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


@pytest.mark.parametrize(
    "info",
    [
        entry("y", tarfile.SYMTYPE, "/etc/passwd"),
        entry("y", tarfile.SYMTYPE, "../../up"),
        entry("y", tarfile.LNKTYPE, "/etc/passwd"),
        entry("y", tarfile.CHRTYPE),
        entry("y", tarfile.BLKTYPE),
        entry("y", tarfile.FIFOTYPE),
        entry("x.csv"),
        entry("x.csv", tarfile.SYMTYPE, "x.csv"),
        entry("x.csv", tarfile.LNKTYPE, "x.csv"),
    ],
    ids=lambda info: f"{info.type.decode()} {info.name} {info.linkname}",
)
def test_links_devices_and_twice_the_same_name_in_a_tar(tmp_path, info):
    archive = tar_of(tmp_path / "a.tar", [entry("x.csv", size=10), info])
    with pytest.raises(DataError):
        extract_member(archive, "x.csv", tmp_path / "x", 100)
    assert os.listdir(tmp_path) == ["a.tar"]


def test_odd_entries_of_a_zip(tmp_path):
    archive = tmp_path / "a.zip"
    for info, words in (
        (zipfile.ZipInfo("x.csv"), "not a plain file"),
        (zipfile.ZipInfo("x.csv"), "no archive of ours"),
    ):
        info.external_attr = 0o120777 << 16  # a symbolic link
        with zipfile.ZipFile(archive, "w") as store:
            if words == "no archive of ours":
                info.external_attr = 0
                info.orig_filename = info.filename = "x.csv\0.exe"
                words = "behind a NUL"
            store.writestr(info, "/etc/passwd")
        with pytest.raises(DataError, match=words):
            extract_member(archive, "x.csv", tmp_path / "x", 100)
    with zipfile.ZipFile(archive, "w") as store:
        store.writestr("x.csv", "1,2\n")
        with pytest.warns(UserWarning, match="Duplicate"):
            store.writestr("x.csv", "3,4\n")
    with pytest.raises(DataError, match="2 times"):
        extract_member(archive, "x.csv", tmp_path / "x", 100)
    assert os.listdir(tmp_path) == ["a.zip"]


def flipped(data, at, byte):
    out = bytearray(data)
    out[at] = byte
    return bytes(out)


def test_a_zip_that_the_library_cannot_read_is_refused(tmp_path):
    """An unknown method, version or encryption, a name that is no text, a wrong checksum."""
    whole = make_zip(tmp_path / "a.zip", {"é.csv": b"", "x.csv": b"1,2\n" * 9}).read_bytes()
    first = whole.rindex(b"PK\x01\x02")
    for at, byte in ((6, 200), (8, 1), (10, 99), (16, 1), (42, 255), (46, 47)):
        for start in (first, whole.index(b"PK\x01\x02")):
            (tmp_path / "a.zip").write_bytes(flipped(whole, start + at, byte))
            with contextlib.suppress(DataError):
                extract_member(tmp_path / "a.zip", "x.csv", tmp_path / "x", 100)
                (tmp_path / "x").unlink()
            assert os.listdir(tmp_path) == ["a.zip"]


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_that_unpacks_to_too_much_stops_early(tmp_path, mode, monkeypatch):
    monkeypatch.setattr(extract, "_ROOM", 100_000)
    small, large = entry("x.csv", size=10), entry("y", size=400_000)
    for infos in ([small, large, entry("z")], [large, small]):
        archive = tar_of(tmp_path / "a.tar", infos, mode)
        with pytest.raises(DataError, match="unpacks to more than"):
            extract_member(archive, "x.csv", tmp_path / "x", 1000)
    head = entry("x.csv", size=10)
    head.pax_headers = {"comment": "c" * 400_000}  # heads are read into memory whole
    with pytest.raises(DataError, match="unpacks to more than"):
        extract_member(tar_of(tmp_path / "a.tar", [head], mode), "x.csv", tmp_path / "x", 1000)
    assert os.listdir(tmp_path) == ["a.tar"]


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_an_archive_of_very_many_entries_is_refused(tmp_path, make, monkeypatch):
    monkeypatch.setattr(extract, "MAX_MEMBERS", 20)
    archive = make(tmp_path / "a", {f"{k}.csv": b"" for k in range(21)})
    with pytest.raises(DataError, match="more than 20 entries"):
        extract_member(archive, "0.csv", tmp_path / "x", 100)


def test_a_packed_bomb_in_place_of_a_file_ends_at_its_cap(tiny):
    """A card without the hash of the stored file unpacks what it finds, to compare the content."""
    tiny.ref = {"path": "tiny/tiny.csv.gz", "content_sha256": "00", "max_bytes": 1000}
    tiny.save()
    tiny.file.write_bytes(gzip.compress(bytes(1001)))
    with pytest.raises(DataError, match="more than 1,000 bytes"):
        check_file(tiny.file, datasets.card("tiny").forms[0].files[0])


def test_two_fetches_at_once_keep_both_pins(monkeypatch):
    read = trusted.pins
    second = threading.Thread(target=trusted.pin, args=("b", "1" * 64, "https://b.example"))

    def interrupted():
        found = read()
        if not second.ident:  # the other fetch comes between reading and writing
            second.start()
            second.join(0.3)
        return found

    monkeypatch.setattr(trusted, "pins", interrupted)
    trusted.pin("a", "0" * 64, "https://a.example")
    second.join()
    assert set(read()) == {"a", "b"}
