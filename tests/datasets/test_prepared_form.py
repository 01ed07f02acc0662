import hashlib
import json
import multiprocessing
import os
import sys
import time
from unittest import mock

import pytest
import torch

from dgbench.datasets import store
from dgbench.runtime.errors import DataWarning


def pack():
    return store.Pack(
        {"a": 1, "b": [2, "x"]},
        {
            "ids": torch.arange(7),
            "odd": torch.tensor([1, 2, 3], dtype=torch.uint8),
            "empty": torch.empty(0, 3),
            "matrix": torch.arange(6.0, dtype=torch.float64).reshape(2, 3),
            "narrow": torch.arange(5, dtype=torch.int32),
        },
    )


def same(found):
    wanted = pack()
    assert found.fields == wanted.fields
    assert list(found.arrays) == list(wanted.arrays)
    for name, value in wanted.arrays.items():
        assert found.arrays[name].dtype == value.dtype
        assert torch.equal(found.arrays[name], value)


def folder_of(cache):
    return cache / "prepared" / store.slot("x", 1)


def test_what_is_stored_comes_back_and_is_built_once(own_cache):
    build = mock.Mock(side_effect=pack)
    for _ in range(3):
        same(store.obtain(store.slot("x", 1), build))
    assert build.call_count == 1
    assert store.verify(folder_of(own_cache)) == ""
    store.obtain(store.slot("x", 2), build)
    assert build.call_count == 2


def flip(file, keep_time=True):
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[3] ^= 1
    with open(file, "r+b") as stream:  # the same inode
        stream.write(data)
    if keep_time:
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def write_index(folder, shape, offset):
    """Put another index behind a right checksum, as another program might."""
    meta = folder / "meta.json"
    index = json.loads(meta.read_bytes())["index"]
    index["arrays"] = [["ids", "int64", shape, offset]]
    text = json.dumps(index).encode()
    seal = hashlib.sha256(text).hexdigest().encode()
    meta.write_bytes(b'{"sha256":"%s","index":%s}' % (seal, text))


OUTSIDE = [
    ([2**63 - 1], 0),  # torch maps it, and reading it ends the process
    ([2**62, 4], 0), ([-1, -1], 0), ([0, 2**70], 0), ([0, 2**40, 2**40], 0), ([27], 0),
    ([7], 1 << 20), ([1], -8),
]  # fmt: skip
DAMAGES = [
    lambda folder: os.truncate(folder / "data.bin", (folder / "data.bin").stat().st_size - 1),
    lambda folder: os.truncate(folder / "meta.json", 60),
    lambda folder: (folder / "meta.json").write_bytes(
        (folder / "meta.json").read_bytes().replace(b'"a":1', b'"a":2')
    ),
    lambda folder: (folder / "meta.json").write_text("{}"),
    lambda folder: (folder / "meta.json").unlink(),
    lambda folder: (folder / "data.bin").unlink(),
    *(lambda folder, one=one: write_index(folder, *one) for one in OUTSIDE),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_noticed_and_made_good(own_cache, damage):
    store.obtain(store.slot("x", 1), pack)
    folder = folder_of(own_cache)
    damage(folder)
    assert store.load(folder) is None
    assert store.verify(folder) != ""
    same(store.obtain(store.slot("x", 1), pack))
    assert store.verify(folder) == ""
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_an_interrupted_preparation_leaves_nothing_that_counts(own_cache, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.os, "rename", stop)
        with pytest.raises(KeyboardInterrupt):
            store.obtain(store.slot("x", 1), pack)
    assert list((own_cache / "prepared").iterdir()) == []
    killed = own_cache / "prepared" / f".{store.slot('x', 1)}.abc"  # a process that was killed
    killed.mkdir()
    (killed / "data.bin").write_bytes(b"half")
    same(store.obtain(store.slot("x", 1), pack))
    assert not killed.exists()


def _prepare(cache, log, barrier):
    os.environ["DGBENCH_CACHE"] = cache

    def build():
        with open(log, "a") as out:
            out.write("built\n")
        time.sleep(0.3)
        return pack()

    barrier.wait(30)
    same(store.obtain(store.slot("x", 1), build))


def test_two_processes_prepare_once(own_cache, tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, log = context.Barrier(2), tmp_path / "log"
    workers = [
        context.Process(target=_prepare, args=(str(own_cache), str(log), barrier)) for _ in "ab"
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert log.read_text() == "built\n"


def test_an_unwritable_cache_warns_and_uses_a_temporary_folder(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("DGBENCH_CACHE", str(blocked))
    monkeypatch.setattr(store.tempfile, "tempdir", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="DGBENCH_CACHE"):
        same(store.obtain(store.slot("x", 1), pack))
    spare = next(tmp_path.glob("dgbench-cache-*"))
    assert store.verify(spare / "prepared" / store.slot("x", 1)) == ""


@pytest.mark.parametrize("keep_time", [False, True])
def test_a_changed_byte_is_found_without_reading_all_bytes_each_time(
    own_cache, monkeypatch, keep_time
):
    where = store.slot("x", 1)
    store.obtain(where, pack)
    read = []
    crc = store._crc
    monkeypatch.setattr(store, "_crc", lambda stream: read.append(1) or crc(stream))
    same(store.obtain(where, pack))
    assert read == []
    flip(folder_of(own_cache) / "data.bin", keep_time)
    with pytest.warns(DataWarning, match="checksum of data.bin does not match"):
        same(store.obtain(where, pack))
    assert read == [1, 1]  # before the lock and under it
    same(store.obtain(where, pack))
    assert read == [1, 1]


@pytest.fixture
def watched(monkeypatch):
    for name, value in {"_WATCHING": True, "_OPENED": {}, "_WRITTEN": {}}.items():
        monkeypatch.setattr(store, name, value)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which pages were written")
@pytest.mark.parametrize("keep", [True, False])
def test_writes_to_prepared_data_are_told(watched, keep):
    found = store.obtain(store.slot("x", 1), pack)
    same(found)
    found.arrays["matrix"].sum()
    assert store.disturbed() == []
    found.arrays["ids"].numpy()[2] = 7
    if not keep:
        del found
    (text,) = store.disturbed()
    assert "it wrote to the prepared data 'x-" in text
    assert "4 KiB" in text
