"""Requests served in a plugin's own process; everything here runs beside the plugin's code."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec

from dgbench.harness.plugins.process import answer_of
from dgbench.harness.store.row import Row
from dgbench.lab.judging import judging
from dgbench.lab.paper import Claim, Finding, Paper
from dgbench.systems.base import registry
from dgbench.systems.base.registry import Broken
from dgbench.systems.base.system import System

_HEAD: Final = struct.Struct("<I")


def serve(sock: socket.socket, kind: str, name: str) -> None:
    """Import a plugin, then answer questions about it until the command closes its end."""
    me, plugin = os.getpid(), None
    error: str | BaseException = ""
    try:
        found = registry.find_system(name) if kind == "system" else registry.find_paper(name)
        error = found.reason if isinstance(found, Broken) else ""
        plugin = found
    except BaseException as raised:  # a plugin may raise anything, KeyboardInterrupt too
        error = raised
    rows: list[Row] = []
    # A fork that the plugin made and that came back here must neither hear nor answer.
    while os.getpid() == me and (payload := _receive(sock)) is not None:
        function, arguments, fresh, places = msgspec.msgpack.decode(payload)
        rows += [msgspec.convert(row, Row) for row in fresh]
        answer = b""
        try:
            if not error:
                given = [] if places is None else [[rows[place] for place in places]]
                answer = answer_of(ANSWERS[function](plugin, *arguments, *given))
        except BaseException as raised:
            answer = answer_of(None, raised)
        if os.getpid() != me:
            return
        sock.sendall(answer or answer_of(None, error))


def _receive(sock: socket.socket) -> bytes | None:
    head = sock.recv(_HEAD.size, socket.MSG_WAITALL)
    if len(head) < _HEAD.size:
        return None
    return sock.recv(_HEAD.unpack(head)[0], socket.MSG_WAITALL)


def _system_facts(system: System) -> dict[str, Any]:
    names = ("title", "kind", "about", "provenance", "colour", "marker")
    found = {name: getattr(system, name) for name in names}
    return found | {"techniques": [asdict(one) for one in system.techniques]}


def _supports(system: System) -> list[dict[str, Any]]:
    from dgbench.harness.report.systems import supports

    return supports(system)


def _paper_facts(paper: Paper) -> dict[str, Any]:
    names = ("name", "title", "venue", "about", "system", "ledger", "readings",
             "contenders")  # fmt: skip
    found = {name: getattr(paper, name) for name in names}
    graphs = paper.graphs
    return found | {
        "graphs": graphs and {"names": list(graphs.names), "families": graphs.families},
        "checks": list(paper.checks),
        "experiments": [_experiment_facts(one) for one in paper.experiments],
    }


def _experiment_facts(experiment: Any) -> dict[str, Any]:
    names = ("paper", "name", "title", "question", "claims", "reading", "device", "presets",
             "sources", "control", "own_data")  # fmt: skip
    found = {name: getattr(experiment, name) for name in names}
    return found | {"main_race": _race_facts(experiment.main_race)}


def _race_facts(race: Any) -> dict[str, Any] | None:
    if race is None:
        return None
    names = ("verb", "dims", "where", "checks", "titles")
    parts = ("subject", "rival", "package", "rival_without", "systems", "verb", "fairer")
    return {name: getattr(race, name) for name in names} | {
        "comparisons": [{part: getattr(one, part) for part in parts} for one in race.comparisons]
    }


def _cells(paper: Paper, place: int, preset: str, device: str) -> list[Any]:
    return list(paper.experiments[place].cells(preset, device))  # type: ignore[arg-type]


def _answer(paper: Paper, place: int, rows: Sequence[Any]) -> str:
    return paper.experiments[place].answer(rows)


def _figures(paper: Paper, place: int) -> list[dict[str, Any]]:
    names = ("kind", "name", "title", "options", "contenders")
    return [
        {name: getattr(spec, name) for name in names} for spec in paper.experiments[place].figures()
    ]


def _points(paper: Paper, place: int, figure: int, rows: Sequence[Any]) -> list[dict[str, Any]]:
    return list(paper.experiments[place].figures()[figure].points(rows))


def _ratio(
    paper: Paper, place: int, comparison: int, workload: Mapping[str, str], rows: Sequence[Any]
) -> Any:
    race = paper.experiments[place].main_race
    return None if race is None else race.comparisons[comparison].ratio(rows, workload)


def _finding(paper: Paper, claim: Any, floor: float, rows: Sequence[Any]) -> Any:
    """A check's finding with the numbers that it read, which leave their trace in this process."""
    asked = msgspec.convert(claim, Claim)
    with judging(floor) as context:
        found = paper.checks[asked.id](asked, rows)
    if isinstance(found, Finding) and found.reads is None:
        found.reads = frozenset(context.reads)
    return found


ANSWERS: Final[dict[str, Callable[..., Any]]] = {
    "system description": _system_facts,
    "kinds of workload": _supports,
    "paper description": _paper_facts,
    "cells": _cells,
    "answer": _answer,
    "figures": _figures,
    "points of a figure": _points,
    "ratio of a race": _ratio,
    "finding of a claim": _finding,
}
"""Name of a question -> function of the plugin and what follows the name."""
