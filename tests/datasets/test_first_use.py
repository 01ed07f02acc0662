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

from dgbench import datasets
from dgbench.datasets import first_use, twins
from dgbench.datasets.first_use import settle_sources
from dgbench.datasets.sources import download, download_dir, find_form, transfer
from dgbench.datasets.sources.download import fetch
from dgbench.datasets.sources.transfer import (
    TransferError,
    TransferLimits,
    redirected,
    unreachable,
)
from dgbench.runtime.errors import DataError, DgbenchError, MissingDataError


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


def leftovers():
    """Everything in the folder of downloads but locks."""
    return [p for p in download_dir().rglob("*") if p.is_file() and p.suffix != ".lock"]


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
    assert find_form(datasets.card("tiny")) is None
    return source


def test_it_is_fetched_once_and_then_here(remote, server):
    told = []
    (source,) = settle_sources(["Wee One"], progress=lambda *a: told.append(a))
    assert (source.name, source.source, source.real) == ("tiny", "fetched", True)
    assert told[-1] == ("tiny/tiny.csv.gz", 46, 46)
    assert len(datasets.open_events("tiny", "real")) == 5
    assert settled().source == "downloaded"
    assert server.asked == ["/tiny.csv"]


def test_a_connection_that_is_cut(remote, server):
    server.answers["/tiny.csv"] = server.whole(remote.content[:20], length=len(remote.content))
    refused("was cut after 20 of 46 bytes")


@pytest.mark.parametrize("stays_silent", [False, True])
def test_a_slow_publisher_meets_the_clock(remote, server, monkeypatch, stays_silent):
    monkeypatch.setattr(first_use, "FETCH_S", 0.3)
    monkeypatch.setattr(first_use, "STALL_S", 0.3)
    slow = server.silent(20) if stays_silent else server.dripping(remote.content, 0.05)
    server.answers["/tiny.csv"] = slow
    begin = time.monotonic()
    refused("not a byte for 0.3 s" if stays_silent else "the time limit")
    assert time.monotonic() - begin < 10  # sent to the end, either takes longer than the limit


def test_wrong_bytes(remote, server):
    server.answers["/tiny.csv"] = server.whole(b"x" * len(remote.content))
    refused("127.0.0.1: what came is not the file of the card")


def test_a_file_that_is_not_there(remote, server):
    del server.answers["/tiny.csv"]
    refused("404")


def test_a_redirect_is_followed_on_the_same_server(remote, server):
    server.answers["/moved.csv"] = server.answers["/tiny.csv"]
    server.answers["/tiny.csv"] = server.redirect("/moved.csv")
    assert settled().source == "fetched"
    assert server.asked == ["/tiny.csv", "/moved.csv"]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("ftp://127.0.0.1/tiny.csv", "from http to ftp, which is refused"),
        ("file:///etc/passwd", "from http to file, which is refused"),
        ("/tiny.csv", "redirects more than 5 times"),
    ],
)
def test_a_redirect_elsewhere_is_refused(remote, server, location, words):
    server.answers["/tiny.csv"] = server.redirect(location)
    refused(words)


def test_a_redirect_may_be_made_safer_and_never_less_safe():
    assert redirected("http://a.example/x", "https://b.example/y") == "https://b.example/y"
    assert redirected("https://a.example/x/1", "../z") == "https://a.example/z"
    for location in ("http://a.example/x", "ftp://a.example/x", "data:text/plain,x"):
        with pytest.raises(TransferError, match="which is refused"):
            redirected("https://a.example/x", location)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/octet-stream"])
def test_a_login_page_is_no_file(remote, server, kind):
    page = b"\n<!DOCTYPE html><html><body>Please log in</body></html>"
    server.answers["/tiny.csv"] = server.whole(page, kind)
    refused("a login page of a proxy")


class FullFile(io.FileIO):
    """A file on a disk that has no block left."""

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_up(remote, monkeypatch):
    monkeypatch.setattr(transfer, "open", FullFile, raising=False)
    assert "cannot be stored" in refused(os.strerror(errno.ENOSPC)).why
    monkeypatch.undo()


def test_a_disk_without_room_for_the_announced_size(remote, server, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: usage)
    server.answers["/tiny.csv"] = server.dripping(remote.content, 0.001)
    refused("46 bytes are needed, 10 are free")


def test_two_first_uses_fetch_once(remote, server):
    server.answers["/tiny.csv"] = server.waiting(remote.content, 0.3)
    found, start = [], threading.Barrier(2)

    def use():
        start.wait()
        found.append(fetch(datasets.card("tiny"), limits=TransferLimits(total_s=30)))

    users = [threading.Thread(target=use) for _ in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join(30)
    assert found == [[download_dir() / "tiny/tiny.csv.gz"]] * 2
    assert server.asked == ["/tiny.csv"]


def test_what_a_process_that_died_left_is_swept(remote):
    left = download_dir() / ".fetch-tiny.old"
    left.mkdir(parents=True)
    (left / "download").write_bytes(b"half")
    assert settled().source == "fetched"
    assert [p.name for p in leftovers()] == ["tiny.csv.gz"]


def test_a_cache_that_cannot_be_written(remote, monkeypatch, tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    monkeypatch.setenv("DGBENCH_CACHE", str(blocked))
    source = settled()
    assert source.source == "missing"
    assert "cannot be stored in" in source.why
    assert blocked.read_text() == "a file"


def test_data_folders_are_only_read(remote, monkeypatch, tmp_path):
    """Neither DGBENCH_DATA nor the bundled copies are written to, so both may be read-only."""
    from dgbench.datasets.sources.locate import BUNDLED

    def state(folder):
        return sorted((str(p), p.stat().st_mtime_ns) for p in folder.rglob("*"))

    before = state(remote.data), state(BUNDLED)
    os.chmod(remote.data, 0o555)
    try:
        assert settled().source == "fetched"
        assert len(datasets.open_events("tiny")) == 5
    finally:
        os.chmod(remote.data, 0o755)
    assert (state(remote.data), state(BUNDLED)) == before


def test_offline_asks_nobody(remote, server, monkeypatch):
    (source,) = settle_sources(["tiny"], fetching=False)
    assert (source.source, source.reason) == ("missing", "--offline")
    monkeypatch.setenv("DGBENCH_OFFLINE", "1")
    refused("DGBENCH_OFFLINE is set")
    with pytest.raises(MissingDataError, match="DGBENCH_OFFLINE is set"):
        fetch(datasets.card("tiny"))
    assert server.asked == []
    monkeypatch.setenv("DGBENCH_OFFLINE", "0")
    assert settled().source == "fetched"


def test_a_large_file_waits_to_be_asked_for(remote, server, monkeypatch):
    monkeypatch.setattr(first_use, "FETCH_BYTES", 40)
    refused("sends 46 bytes, more than 40 bytes")
    fetch(datasets.card("tiny"))
    assert settled().source == "downloaded"


def test_without_a_checksum_nothing_is_fetched(remote, server):
    remote.ref = {"path": "tiny/tiny.csv.gz", "url": remote.ref["url"]}
    remote.save()
    refused("dgbench data fetch NAME --trust")
    assert server.asked == []


def test_a_name_in_git_is_a_checksum(remote, server):
    blob = hashlib.sha1(b"blob 46\0" + remote.content).hexdigest()
    remote.ref = {"path": "tiny/tiny.csv", "url": remote.ref["url"], "git_blob": blob}
    remote.save()
    assert settled().source == "fetched"
    server.answers["/tiny.csv"] = server.whole(remote.content[::-1])
    (download_dir() / "tiny/tiny.csv").unlink()
    refused("what came is not the file of the card")
    with pytest.raises(DataError, match=f"expected git blob {blob}"):
        fetch(datasets.card("tiny"))


def test_hosts_are_tried_at_once_and_never_for_long(server, monkeypatch):
    """A name that never resolves, a port that refuses, and one that answers."""

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
        refusing = f"http://localhost:{closed.getsockname()[1]}/x"
    urls = [f"{server.url}/a", refusing, *(f"https://{n}.invalid/x" for n in ("stuck", "nowhere"))]
    begin = time.monotonic()
    found = unreachable(urls, 0.5)
    assert time.monotonic() - begin < 4
    assert found == {
        "localhost": "the connection is refused",
        "stuck.invalid": "no answer within 0.5 s",
        "nowhere.invalid": "the name cannot be resolved",
    }


def test_behind_a_proxy_it_is_the_proxy_that_is_tried(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    assert unreachable(["http://publisher.invalid/x"], 2) == {}
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed.getsockname()[1]}")
    found = unreachable(["http://publisher.invalid/x"], 2)
    assert found == {"publisher.invalid": "the connection is refused"}


def test_a_host_that_was_slow_once_is_not_asked_again(remote, server, monkeypatch):
    monkeypatch.setattr(first_use, "STALL_S", 0.2)
    server.answers["/tiny.csv"] = server.silent(20)
    card = datasets.card("tiny")
    form = card.forms[0]
    wanted = {"one": (card, form), "two": (card, form)}
    reasons = first_use._fetch_all(wanted, None)
    assert server.asked == ["/tiny.csv"]
    assert reasons["one"] == ("not a byte for 0.2 s", ("127.0.0.1",))
    assert reasons["two"] == reasons["one"]  # so that both are said together


def test_the_twin_is_named_where_there_is_one(monkeypatch):
    monkeypatch.delenv("DGBENCH_DATA", raising=False)
    names = ["covid19-england", "flickr", "pems08", "bitcoin-otc"]
    found = {source.name: source for source in settle_sources(names, fetching=False)}
    assert [found[name].source for name in names] == ["bundled", "twin", "missing", "twin"]
    assert twins.supports("flickr")
    assert not twins.supports("pems08")


def test_a_data_folder_that_is_none_is_said_before_the_run(monkeypatch, tmp_path):
    monkeypatch.setenv("DGBENCH_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DgbenchError, match="not a folder"):
        settle_sources(["flickr"])
