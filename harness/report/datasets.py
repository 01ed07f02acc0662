"""Pages of datasets: the card against what was read, what a twin may decide, and who used it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench import datasets
from dgbench.datasets.catalogue import Counts, DatasetCard
from dgbench.datasets.twins.limits import limits, twin_rule
from dgbench.datasets.twins.params import TwinParams
from dgbench.harness.report.pages import common
from dgbench.harness.report.run import RunData
from dgbench.harness.report.site import SiteData
from dgbench.harness.report.subjects import (
    Systems,
    by_experiment,
    count_cells,
    datasets_of,
    experiment_place,
    page_of,
)

SIZES: Final = ("nodes", "src_nodes", "dst_nodes", "edges", "pairs", "self_edges", "snapshots",
                "t_first", "t_last", "label_sum")  # fmt: skip
SIZE_WORDS: Final = {
    "nodes": "vertices",
    "src_nodes": "source vertices",
    "dst_nodes": "destination vertices",
    "edges": "edges (events, or entries of all snapshots)",
    "pairs": "distinct pairs",
    "self_edges": "events of a vertex with itself",
    "snapshots": "snapshots",
    "t_first": "first time",
    "t_last": "last time",
    "label_sum": "positive labels",
    "feature_dim": "floats per vertex",
    "edge_feature_dim": "floats per edge",
    "smoothed_edges": "entries after smoothing",
    "edge_life": "snapshots an edge lives",
}


def pages(site: SiteData, env: Any) -> dict[str, str]:
    """`datasets/index.html` and a page per dataset that rows name."""
    rows: dict[str, list[tuple[RunData, Any]]] = {}
    without = 0
    for run in site.runs:
        for row in run.rows:
            names = datasets_of(row)
            without += not names
            for name in names:
                rows.setdefault(name, []).append((run, row))
    systems = Systems.named_in(site)
    entries = [_entry(site, systems, name, pairs) for name, pairs in sorted(rows.items())]
    idle = [_idle(card) for name, card in datasets.cards().items() if name not in rows]
    texts = {
        "datasets/index.html": env.get_template("datasets.html.j2").render(
            **common(site, "../", "datasets"), entries=entries, idle=idle, without=without
        )
    }
    template = env.get_template("dataset.html.j2")
    for entry in entries:
        texts[page_of("datasets", entry["name"])] = template.render(
            **common(site, "../", "datasets"), data=entry
        )
    return texts


def _entry(
    site: SiteData, systems: Systems, name: str, pairs: Sequence[tuple[RunData, Any]]
) -> dict[str, Any]:
    card = datasets.cards().get(name)
    reads = _reads(card, pairs)
    kinds = list(dict.fromkeys(r["kind"] for r in reads))
    twin = any(r["kind"] == "twin" for r in reads)
    forbidden = _forbidden(site, name, pairs) if twin else []
    return {
        "name": name,
        "href": page_of("datasets", name),
        "card": card,
        "title": card.title if card is not None else name,
        "about": card.about if card is not None else "",
        "kinds": kinds,
        "twin": twin,
        "label": name + (" (twin)" if twin else ""),
        "headline": _headline(card, name, kinds),
        "reads": reads,
        "cells": count_cells(row for _, row in pairs),
        "rows": len(pairs),
        "machines": list({run.machine_slug: run for run, _ in pairs}.values()),
        "sizes": _sizes(card) if card is not None else {},
        "size": _size(card.published if card is not None else Counts()),
        "differences": _differences(card) if card is not None else [],
        "made": _made(card.twin) if card is not None and card.twin is not None else None,
        "forbidden": forbidden,
        "never_count": sum(len(f["claims"]) for f in forbidden if f["rule"] == "never"),
        "weak_count": sum(len(f["claims"]) for f in forbidden if f["rule"] != "never"),
        "never": sorted(limits().never.items()),
        "uses": _uses(site, systems, pairs),
        "papers": _papers(site, card) if card is not None else [],
        "how": _how(card, twin) if card is not None else [],
    }


def _idle(card: DatasetCard) -> dict[str, Any]:
    return {"card": card, "size": _size(card.published), "how": _how(card, twin=False)}


def _headline(card: DatasetCard | None, name: str, kinds: Sequence[str]) -> str:
    title = card.title if card is not None else name
    if not kinds:
        return f"{title}: not read in these runs"
    if card is None:
        return f"{title}: made by a generator, no dataset with a card"
    words = {
        "twin": "a synthetic twin stands in for it",
        "subset": "a part of the real data",
        "real": "real data",
        "printed sizes": "printed sizes, no data",
    }
    return f"{title}: " + "; ".join(words[kind] for kind in kinds)


def _reads(card: DatasetCard | None, pairs: Sequence[tuple[RunData, Any]]) -> list[dict[str, Any]]:
    """Data that rows read: one entry per kind and note, with all scales."""
    groups: dict[tuple, list[tuple[RunData, Any]]] = {}
    for run, row in pairs:
        if not row.data:
            continue
        shared = len(datasets_of(row)) > 1
        groups.setdefault((_kind(card, row), row.data_notes, shared), []).append((run, row))
    found = []
    for (kind, notes, shared), mine in groups.items():
        scales = {s for _, row in mine if isinstance(s := row.data.get("scale"), int | float)}
        told = {
            key: sorted({row.data[key] for _, row in mine if isinstance(row.data.get(key), int)})
            for key in ("nodes", "edges")
        }
        found.append(
            {
                "kind": kind,
                "scales": [f"{s:.4g}" for s in sorted(scales)],
                "notes": notes,
                "shared": shared,
                "nodes": told["nodes"],
                "edges": told["edges"],
                "rows": len(mine),
                "run": mine[0][0],
                "row": mine[0][1],
                "machines": list({run.machine_slug: run for run, _ in mine}.values()),
            }
        )
    return found


def _kind(card: DatasetCard | None, row: Any) -> str:
    """`twin`, `subset`, `real`, `printed sizes`, or `generated` where there is no card."""
    if row.data.get("twin"):
        return "twin"
    if row.read_sizes_only:
        return "printed sizes"
    if card is None:
        return "generated"
    parts = [text for form in card.forms if form.subset for text in form.notes]
    said = "; ".join(row.data_notes)
    return "subset" if any(text in said for text in parts) else "real"


def _sizes(card: DatasetCard) -> dict[str, Any]:
    """Sizes as a table: a column for the publisher, each paper and each form that is read."""
    columns: list[tuple[str, dict[str, Any]]] = [("publisher", card.published.known())]
    keys = [*SIZES, "feature_dim", "edge_feature_dim", "smoothed_edges", "edge_life"]
    for paper, use in card.papers.items():
        known = {k: v for k in keys if (v := getattr(use, k, None)) is not None}
        columns.append((f"{paper} prints", known))
    for form in card.forms:
        columns.append((f"form '{form.name}'", form.counts.known()))
    columns = [(title, values) for title, values in columns if values]
    used = [k for k in keys if any(k in values for _, values in columns)]
    return {
        "columns": [title for title, _ in columns],
        "rows": [(SIZE_WORDS[k], [_number(values.get(k)) for _, values in columns]) for k in used],
    }


def _size(counts: Counts) -> dict[str, int | None]:
    return {"nodes": counts.nodes, "edges": counts.edges}


def _number(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) else f"{value:,}"
    return f"{value:,}"


def _differences(card: DatasetCard) -> list[str]:
    """Where papers and forms differ from the publisher, as sentences."""
    known = card.published.known()
    found = []
    for form in card.forms:
        for key, value in form.counts.known().items():
            if key in known and known[key] != value:
                found.append(
                    f"{SIZE_WORDS[key]}: {_number(value)} in form '{form.name}', "
                    f"{_number(known[key])} published"
                )
        kind = "a part only: " if form.subset else ""
        found += [f"form '{form.name}': {kind}{note}" for note in form.notes]
    for paper, use in card.papers.items():
        for key in ("nodes", "edges", "snapshots"):
            value = getattr(use, key)
            if value is not None and key in known and not _rounded(value, known[key]):
                found.append(
                    f"{SIZE_WORDS[key]}: {paper} prints {_number(value)}, "
                    f"{_number(known[key])} published"
                )
        if use.notes:
            found.append(f"{paper}: {use.notes}")
    return found + list(card.notes)


def _rounded(printed: int, known: float) -> bool:
    """Return True if a printed number is a known one, cut or rounded to its digits."""
    step = 10 ** (len(str(printed)) - len(str(printed).rstrip("0")))
    return abs(printed - known) < step if step > 1 else printed == known


def _made(row: TwinParams) -> dict[str, Any]:
    """Parameters of a twin, in words."""
    sides = " and ".join(f"{n:,}" for n in row.vertices)
    fitted = [
        f"{sides} vertices" + (" (sources and destinations)" if len(row.vertices) == 2 else ""),
        f"{row.events:,} events",
        f"{row.snapshots:,} windows of {row.window:,g} {row.unit}",
    ]
    hubs = [
        f"a largest {side} with {hub:.3g} of all events"
        for hub, side in zip(row.hub, ("source", "destination"), strict=True)
        if hub is not None
    ]
    own = row.like == "itself"
    return {
        "own": own,
        "like": row.like,
        "fitted": fitted + hubs,
        "assumed": list(row.assumed),
        "notes": list(row.notes),
        "exponent": row.exponent,
    }


def _forbidden(
    site: SiteData, name: str, pairs: Sequence[tuple[RunData, Any]]
) -> list[dict[str, Any]]:
    """Claims that name this dataset or rest on its rows, and that a twin may not decide."""
    ids = {(run.slug, row.id) for run, row in pairs}
    groups: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for entry in site.claims:
        rested = any((run.slug, r) in ids for run, verdict in entry.all for r in verdict.rows)
        if not rested and name not in _claimed(entry.claim):
            continue
        rule, why = twin_rule(entry.claim.id)
        if rule == "allowed" and entry.claim.twin != "allowed":
            rule, why = entry.claim.twin, entry.claim.twin_reason
        if rule != "allowed":
            groups.setdefault((rule, why or "the reason is not stated"), []).append(
                (entry.claim.id, f"papers/{entry.paper}.html#{entry.claim.id}")
            )
    found = [{"rule": rule, "why": why, "claims": ids} for (rule, why), ids in groups.items()]
    return sorted(found, key=lambda f: (f["rule"] != "never", -len(f["claims"])))


def _claimed(claim: Any) -> list[str]:
    """Card names of the datasets in a claim's workload."""
    from dgbench.harness.report.subjects import dataset_name

    named = claim.workload.get("dataset") or claim.workload.get("datasets") or ()
    return [dataset_name(str(n)) for n in ([named] if isinstance(named, str) else named)]


def _uses(
    site: SiteData, systems: Systems, pairs: Sequence[tuple[RunData, Any]]
) -> list[dict[str, Any]]:
    """Experiments with rows of it."""
    found = []
    for (_, paper, experiment), (run, rows) in by_experiment(pairs).items():
        names = [name for name in dict.fromkeys(row.system for row in rows) if name]
        found.append(
            {
                "place": experiment_place(site, paper, experiment),
                "run": run,
                "cells": count_cells(rows),
                "twin": any(row.data.get("twin") for row in rows),
                "row": rows[0],
                "systems": [(systems.title(n), page_of("systems", n)) for n in names],
            }
        )
    return found


def _papers(site: SiteData, card: DatasetCard) -> list[dict[str, Any]]:
    """Papers that print this dataset."""
    here = {p.name: p for p in site.papers}
    return [
        {
            "title": here[name].title if name in here else name,
            "href": f"papers/{name}.html" if name in here else "",
            "called": use.called,
            "span": use.span,
        }
        for name, use in card.papers.items()
    ]


def _how(card: DatasetCard, twin: bool) -> list[tuple[str, str]]:
    """(words, command) of the ways to have it."""
    ways = []
    fetched = [f for f in card.forms if f.files and all(ref.url for ref in f.files)]
    if fetched:
        ways.append(("from its publisher", f"dgbench data fetch {card.name}"))
    elif card.forms:
        paths = ", ".join(ref.path for ref in card.forms[0].files)
        ways.append((f"from a folder of yours that holds {paths}",
                     f"DGBENCH_DATA=<folder> dgbench data verify {card.name}"))  # fmt: skip
    if card.twin is not None:
        ways.append(("its synthetic twin", f"dgbench data twin {card.name}"))
    ways.append(("everything that its card says", f"dgbench data info {card.name}"))
    return ways
