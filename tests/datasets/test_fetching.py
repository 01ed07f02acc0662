"""Fetching what a run lacks, from a publisher whose network has faults."""

import errno
import gzip
import hashlib
import io
import os
import shutil
import socket
import threading
import time

import pytest
from faulty_server import faulty_server
from packing import zipped

from dgbench import datasets
from dgbench.datasets import first_use
from dgbench.datasets.first_use import settle_sources
from dgbench.datasets.sources import download, download_dir, find_form, transfer
from dgbench.datasets.sources.download import fetch
from dgbench.datasets.sources.transfer import TransferError, TransferLimits, redirected, unreachable
from dgbench.datasets.sources.trusted import pins_file
from dgbench.runtime.errors import DataError, DgbenchError, MissingDataError

PLACE = "tiny/tiny.csv.gz"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("DGBENCH_OFFLINE", raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with faulty_server() as made:
        yield made


@pytest.fixture
def remote(tiny, server):
    """The tiny dataset, not held but offered by the server; its plain bytes as `content`."""
    tiny.content = gzip.decompress(tiny.file.read_bytes())
    tiny.ref["content_sha256"] = hashlib.sha256(tiny.content).hexdigest()
    tiny.ref["url"] = f"{server.url}/tiny.csv"
    tiny.save()
    tiny.file.unlink()
    server.answers["/tiny.csv"] = server.whole(tiny.content)
    return tiny


def unhashed(remote, **fields):
    remote.ref = {"path": PLACE, "url": remote.ref["url"], **fields}
    remote.save()


def card():
    return datasets.card("tiny")


def leftovers():
    """Names of everything in the folder of downloads but locks."""
    return [p.name for p in download_dir().rglob("*") if p.is_file() and p.suffix != ".lock"]


def settled():
    (source,) = settle_sources(["tiny"])
    return source


def refused(words):
    """Settle a dataset that does not come: the reason, in one sentence, and nothing left behind."""
    source = settled()
    assert source.source == "missing"
    assert words in source.why
    assert "\n" not in source.why
    assert len(source.why) < 300
    assert leftovers() == []
    assert find_form(card()) is None


def test_it_is_fetched_once_and_then_here(remote, server):
    progress = []
    (source,) = settle_sources(["Wee One"], progress=lambda *a: progress.append(a))
    assert (source.name, source.source, source.real) == ("tiny", "fetched", True)
    assert progress[-1] == (PLACE, 46, 46)
    assert len(datasets.open_events("tiny", "real")) == 5
    assert settled().source == "downloaded"
    assert fetch(card()) == [download_dir() / PLACE]
    assert server.asked == ["/tiny.csv"]


PAGE = b"\n<!DOCTYPE html><html><body>Please log in</body></html>"
ANSWERS = {
    "20 of 46": lambda server, data: server.whole(data[:20], length=len(data)),
    "not the file of the card": lambda server, data: server.whole(b"x" * len(data)),
    "404": lambda server, data: None,
    "to ftp": lambda server, data: server.redirect("ftp://127.0.0.1/tiny.csv"),
    "to file": lambda server, data: server.redirect("file:///etc/passwd"),
    "5 times": lambda server, data: server.redirect("/tiny.csv"),
    "login page": lambda server, data: server.whole(PAGE, "text/html; charset=utf-8"),
    "a login page": lambda server, data: server.whole(PAGE, "application/octet-stream"),
}


@pytest.mark.parametrize("words", ANSWERS)
def test_an_answer_that_is_no_file_leaves_nothing(remote, server, words):
    server.answers["/tiny.csv"] = ANSWERS[words](server, remote.content)
    refused(words)


@pytest.mark.parametrize("stays_silent", [False, True])
def test_a_slow_publisher_meets_the_clock_and_is_not_asked_again(
    remote, server, monkeypatch, stays_silent
):
    monkeypatch.setattr(first_use, "FETCH_S", 0.3)
    monkeypatch.setattr(first_use, "STALL_S", 0.3)
    slow = server.silent(20) if stays_silent else server.dripping(remote.content, 0.05)
    server.answers["/tiny.csv"] = slow
    begin = time.monotonic()
    refused("0.3 s" if stays_silent else "the time limit")
    assert time.monotonic() - begin < 10  # sent to the end, either takes longer than the limit
    if stays_silent:
        wanted = {name: (card(), card().forms[0]) for name in ("one", "two")}
        reasons = first_use._fetch_all(wanted, None)
        assert reasons["one"] == reasons["two"]
        assert len(server.asked) == 2


def test_redirects_are_followed_on_the_same_server_and_never_to_less_safety(remote, server):
    server.answers["/moved.csv"] = server.answers["/tiny.csv"]
    server.answers["/tiny.csv"] = server.redirect("/moved.csv")
    assert settled().source == "fetched"
    assert server.asked == ["/tiny.csv", "/moved.csv"]
    assert redirected("http://a.example/x", "https://b.example/y") == "https://b.example/y"
    assert redirected("https://a.example/x/1", "../z") == "https://a.example/z"
    for location in ("http://a.example/x", "ftp://a.example/x", "data:text/plain,x"):
        with pytest.raises(TransferError):
            redirected("https://a.example/x", location)


class FullFile(io.FileIO):
    """A file on a disk that has no block left."""

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_nothing(remote, server, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "open", FullFile, raising=False)
        refused(os.strerror(errno.ENOSPC))
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    server.answers["/tiny.csv"] = server.dripping(remote.content, 0.001)
    refused("46 bytes")


def test_two_first_uses_fetch_once(remote, server):
    server.answers["/tiny.csv"] = server.whole(remote.content, late_s=0.3)
    paths, start = [], threading.Barrier(2)

    def use():
        start.wait()
        paths.append(fetch(card(), limits=TransferLimits(total_s=30)))

    users = [threading.Thread(target=use) for _ in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join(30)
    assert paths == [[download_dir() / PLACE]] * 2
    assert server.asked == ["/tiny.csv"]


def test_offline_asks_nobody(remote, server, monkeypatch):
    (source,) = settle_sources(["tiny"], fetching=False)
    assert (source.source, source.reason) == ("missing", "--offline")
    monkeypatch.setenv("DGBENCH_OFFLINE", "1")
    refused("DGBENCH_OFFLINE")
    with pytest.raises(MissingDataError):
        fetch(card())
    assert server.asked == []
    monkeypatch.setenv("DGBENCH_OFFLINE", "0")
    assert settled().source == "fetched"


def test_a_large_file_waits_to_be_asked_for_and_stops_at_its_cap(remote, server, monkeypatch):
    monkeypatch.setattr(first_use, "FETCH_BYTES", 40)
    refused("46 bytes")
    remote.ref["max_bytes"] = 10
    remote.save()
    with pytest.raises(MissingDataError):
        fetch(card())
    assert leftovers() == []
    remote.ref["max_bytes"] = 46
    remote.save()
    fetch(card())
    assert settled().source == "downloaded"


def test_a_name_in_git_is_a_checksum(remote, server):
    blob = hashlib.sha1(b"blob 46\0" + remote.content).hexdigest()
    unhashed(remote, path="tiny/tiny.csv", git_blob=blob)
    assert settled().source == "fetched"
    server.answers["/tiny.csv"] = server.whole(remote.content[::-1])
    (download_dir() / "tiny/tiny.csv").unlink()
    refused("not the file of the card")
    with pytest.raises(DataError, match=blob):
        fetch(card())


def test_what_was_trusted_once_must_stay_what_it_was(remote, server):
    unhashed(remote, unhashed="nobody was there")
    refused("--trust")
    with pytest.raises(DataError, match="nobody was there"):
        fetch(card())
    assert server.asked == []
    (path,) = fetch(card(), trust=True)
    pinned, right = pins_file().read_text(), path.read_bytes()
    assert hashlib.sha256(right).hexdigest() in pinned
    assert fetch(card(), trust=True) == [path]  # the same again is fine
    path.write_bytes(gzip.compress(b"1,2,1,1\n", mtime=0))  # changed in the cache
    with pytest.raises(DataError):
        datasets.open_events("tiny")
    with pytest.raises(DataError):
        fetch(card(), trust=True)
    path.write_bytes(right)
    assert len(datasets.open_events("tiny")) == 5
    path.unlink()  # changed by the publisher
    server.answers["/tiny.csv"] = server.whole(b"1,2,1,1\n")
    with pytest.raises(DataError) as caught:
        fetch(card(), trust=True)
    assert str(pins_file()) in caught.value.hint
    assert pins_file().read_text() == pinned
    assert not path.exists()
    pins_file().unlink()  # accepted anew
    fetch(card(), trust=True)
    assert pins_file().read_text() != pinned


def test_a_member_of_an_archive_is_fetched(remote, server):
    server.answers["/a.zip"] = server.whole(zipped({"in/tiny.csv": remote.content}))
    remote.ref |= {"url": f"{server.url}/a.zip", "member": "in/tiny.csv"}
    remote.save()
    fetch(card())
    assert len(datasets.open_events("tiny")) == 5
    assert leftovers() == ["tiny.csv.gz"]


def test_hosts_are_tried_at_once_and_never_for_long(server, monkeypatch):
    """A name that never resolves, a port that refuses, one that answers, and a proxy."""

    def lookup(address, seconds):
        if address[0] == "stuck.invalid":
            threading.Event().wait(5)
        if address[0] == "nowhere.invalid":
            raise socket.gaierror(-2, "Name or service not known")
        return connect(address, seconds)

    connect = socket.create_connection
    monkeypatch.setattr(transfer.socket, "create_connection", lookup)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refusing = f"http://localhost:{closed.getsockname()[1]}"
    urls = [f"{server.url}/a", refusing, *(f"https://{n}.invalid/x" for n in ("stuck", "nowhere"))]
    begin = time.monotonic()
    assert set(unreachable(urls, 0.5)) == {"localhost", "stuck.invalid", "nowhere.invalid"}
    assert time.monotonic() - begin < 4
    monkeypatch.setenv("http_proxy", server.url)
    assert unreachable(["http://publisher.invalid/x"], 2) == {}
    monkeypatch.setenv("http_proxy", refusing)
    assert set(unreachable(["http://publisher.invalid/x"], 2)) == {"publisher.invalid"}


def test_the_twin_is_named_where_there_is_one(monkeypatch, tmp_path):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    names = ["covid19-england", "flickr", "pems08", "bitcoin-otc"]
    sources = {source.name: source.source for source in settle_sources(names, fetching=False)}
    assert [sources[name] for name in names] == ["bundled", "twin", "missing", "twin"]
    monkeypatch.setenv("DGBENCH_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DgbenchError):
        settle_sources(["flickr"])
