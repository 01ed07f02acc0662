"""Bytecode of test files, which the workers of a run write together and not each for itself.

pytest rewrites the assertions of a file when it is first imported: seven seconds for all files.
Workers collect the same files in the same order, so in a new checkout all would rewrite all.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest


def write_share(config: pytest.Config, files: Sequence[Path], number: int, count: int) -> int:
    """Write what is missing for every `count`-th of these files; returns how many there were.

    Args:
        config: of the run, whose plugins say what is rewritten.
        files: absolute paths of all workers, in the same order for each.
        number: of this worker, from 0.
        count: of all workers.
    """
    try:  # nothing of it is public
        from _pytest.assertion import rewrite

        state = config.stash[rewrite.assertstate_key]
        tail, folder_of, made = rewrite.PYC_TAIL, rewrite.get_cache_dir, rewrite.try_makedirs
        read, rewritten, write = rewrite._read_pyc, rewrite._rewrite_test, rewrite._write_pyc
    except (AttributeError, ImportError, KeyError):
        return 0
    if sys.dont_write_bytecode:
        return 0
    written = 0
    for file in files[number::count]:
        folder = folder_of(file)
        kept = folder / (file.name[:-3] + tail)
        if read(file, kept) is None and made(folder):
            source, code = rewritten(file, config)
            written += bool(write(state, code, source, kept))
    return written
