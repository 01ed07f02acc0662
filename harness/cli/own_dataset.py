"""The options of `dgbench run` that name a dataset of the user's own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

DATASET = typer.Option(
    "", "--dataset", help="Run on this instead: a card's name, or a .csv, .parquet or .npz file."
)
COLUMNS = typer.Option("", "--columns", help="Of a file: src=from,dst=to,t=when[,weight=...].")
DELIMITER = typer.Option("", "--delimiter", help="Of a file: comma, semicolon, tab, whitespace.")
HEADER = typer.Option(None, "--header/--no-header", help="Whether a file has one; seen by itself.")
COMMENT = typer.Option(
    None, "--comment", help="What lines of comment of a file begin with; '' for none."
)
IDS = typer.Option("auto", "--ids", help="Of a file: auto, compact, keep or names.")
BIPARTITE = typer.Option(False, "--bipartite", help="A file has two kinds of vertices.")
TIME_UNIT = typer.Option(
    "", "--time-unit", help="Of numbers in a file: s, ms, us, ns, min, h, day or step."
)


def file_options(**options: Any) -> Any:
    """File options from the command line, or None if all are at their defaults."""
    from dgbench.datasets.guessing import FileOptions

    found = FileOptions(**options)
    return None if found == FileOptions() else found


def open_dataset(text: str, options: Any, settle: Callable[[list[str]], Any]) -> Any:
    """The dataset that `--dataset` names; says how a file was read.

    Args:
        text: name of a card, or path of a file. options: of `file_options`.
        settle: fetches a dataset that is not here, where that is allowed.
    """
    from dgbench.harness.plan.own_data import is_card, own_data
    from dgbench.harness.terminal.text import columns, say, wrapped

    if is_card(text):
        settle([text])
    found, sentences = own_data(text, options)
    for sentence in sentences:
        say(wrapped(sentence, "data  ", columns(sys.stderr), hanging=" " * 6), sys.stderr)
    return found
