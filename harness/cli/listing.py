"""`dgbench list`: what there is to run."""

from __future__ import annotations

from typing import Any

import typer

WHAT = ("systems", "papers", "experiments", "techniques")


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command("list", short_help="Systems, papers, experiments, techniques.")(list_all)


def list_all(
    what: str = typer.Argument("", help=f"One of {', '.join(WHAT)}; default: all of them."),
    as_json: bool = typer.Option(False, "--json", help="The same as JSON."),
    own_data: bool = typer.Option(
        False, "--own-data", help="Only the experiments and tasks that take a dataset of yours."
    ),
) -> None:
    """List systems, papers, experiments and techniques.

    Example: dgbench list experiments
    """
    from dgbench.harness.terminal.text import columns, say, say_json, wrapped
    from dgbench.runtime.errors import DgbenchError, unknown_key

    if what and what not in WHAT:
        raise unknown_key("listing", what, WHAT)
    if own_data and what not in ("", "experiments"):
        raise DgbenchError(
            f"the listing is '{what}', and --own-data is for experiments",
            hint="leave one of them out",
        )
    everything = inventory(own_data=own_data)
    what = "experiments" if own_data else what
    wanted = {key: everything[key] for key in (WHAT if not what else (what,))}
    if as_json:
        say_json({**wanted, "broken": everything["broken"]} if not what else wanted[what])
        return
    width = columns()
    for number, (key, entries) in enumerate(wanted.items()):
        say(("\n" if number else "") + _section(key, entries, width))
    for entry in everything["broken"]:
        origin = f"broken: {entry['kind']} '{entry['name']}' from {entry['origin']}"
        say("\n" + wrapped(origin, "", width, hanging="  "))
        say(wrapped(entry["reason"], "  ", width))
    for note in everything["colours"]:
        say("\n" + wrapped(f"note: {note}", "", width, hanging="  "))


def inventory(*, own_data: bool = False) -> dict[str, list[Any]]:
    """Everything that is installed, as plain values; broken plugins are listed apart.

    Args:
        own_data: only experiments that take a dataset of the user's.
    """
    from dgbench.harness.plan.own_data import takes_own_data
    from dgbench.harness.plugins import (
        Broken,
        describe_ahead,
        find_paper,
        find_system,
        paper_names,
        system_names,
        taken_names,
    )

    describe_ahead()

    found: dict[str, list[Any]] = {key: [] for key in (*WHAT, "broken", "colours")}
    loaded = []
    for name in system_names():
        system = find_system(name)
        if isinstance(system, Broken):
            found["broken"].append(_broken("system", system))
            continue
        loaded.append(system)
        found["systems"].append(
            {
                "name": name,
                "title": system.title,
                "kind": system.kind,
                "provenance": system.provenance,
                "about": system.about,
            }
        )
        found["techniques"] += [
            {
                "system": name,
                "name": t.name,
                "what": t.what,
                "exact": t.exact,
                "default": t.default,
                "source": t.source,
                "whose": "ours" if t.ours else "paper",
            }
            for t in system.techniques
        ]
    for name in paper_names():
        paper = find_paper(name)
        if isinstance(paper, Broken):
            found["broken"].append(_broken("paper", paper))
            continue
        found["papers"].append(
            {
                "name": name,
                "title": paper.title,
                "venue": paper.venue,
                "system": paper.system,
                "claims": len(paper.checks),
                "about": paper.about,
            }
        )
        found["experiments"] += [
            {
                "id": f"{name}/{e.name}",
                "title": e.title,
                "question": e.question,
                "claims": list(e.claims),
            }
            for e in paper.experiments
            if not own_data or takes_own_data(e)
        ]
    for kind, one in taken_names():
        found["broken"].append(_broken(kind, one))
    from dgbench.harness.figures.palette import close_colours

    found["colours"] = close_colours(loaded)
    return found


def _broken(kind: str, entry: Any) -> dict[str, str]:
    return {"kind": kind, "name": entry.name, "origin": entry.origin, "reason": entry.reason}


def _section(key: str, entries: list[dict[str, Any]], width: int) -> str:
    from dgbench.harness.terminal.text import listing

    if not entries:
        return f"{key}: none"
    if key == "systems":
        rows = [[e["name"], e["kind"], e["title"], e["provenance"]] for e in entries]
        return listing(["system", "kind", "title", "what it is"], rows, width)
    if key == "papers":
        rows = [[e["name"], str(e["claims"]), e["title"], e["venue"]] for e in entries]
        return listing(["paper", "claims", "title", "venue"], rows, width, right={1})
    if key == "experiments":
        rows = [[e["id"], e["title"], e["question"]] for e in entries]
        return listing(["experiment", "", ""], rows, width)
    rows = [
        [
            e["system"],
            e["name"],
            "exact" if e["exact"] else "approximate",
            "on" if e["default"] else "off",
            e["whose"],
            e["what"],
        ]
        for e in entries
    ]
    header = ["system", "technique", "mathematics", "default", "whose", "what it does"]
    return listing(header, rows, width)
