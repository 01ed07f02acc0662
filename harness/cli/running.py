"""`dgbench run` and `dgbench reproduce`: plan, run, decide, report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from dgbench.harness.cli.choosing import keep_first, keep_named, set_seed
from dgbench.harness.cli.own_dataset import (
    BIPARTITE,
    COLUMNS,
    COMMENT,
    DATASET,
    DELIMITER,
    HEADER,
    IDS,
    TIME_UNIT,
    file_options,
    open_dataset,
)
from dgbench.harness.cli.values import path_option, refuse_empty

PRESET = typer.Option("quick", "--preset", help="smoke, quick, full, paper or quality.")
DEVICE = typer.Option("auto", "--device", help="auto, cpu or cuda.")
RESUME = typer.Option(
    None, "--resume", help="Go on with this run: id, stamp, path or 'last' of what is named."
)
RETRY = typer.Option(
    "", "--retry", help="With --resume: 'failed' or 'all' that is not ok runs again."
)
OUT = path_option("--out", "Folder for runs (default results/runs).")
SEED = typer.Option(None, "--seed", help="Replaces the seed of every cell that has one.")
OFFLINE = typer.Option(False, "--offline", help="Fetch no data: what is not here runs on its twin.")
ROUNDS = typer.Option(
    "auto",
    "--rounds",
    help="auto: further rounds where claims are undecided; fixed: those planned.",
)
BUDGET = typer.Option(
    None,
    "--budget",
    help="Seconds of a paper up to which rounds are added (default: the preset's).",
    min=1,
)
CLUSTER = path_option(
    "--cluster", "Run each group of cells as a job of a cluster, as this TOML file says."
)
THREADS = typer.Option(
    None, "--threads", help="Threads of each process (default: as many as physical cores)."
)
LIMIT = typer.Option(0, "--limit", help="Only the first N groups of each experiment.", min=0)
GROUP = typer.Option(
    None, "--group", help="Only groups of cells with this name, * for any text; may be repeated."
)


Keep = Callable[[dict[str, Any]], bool]
"""Says of the params of a cell whether it is planned."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options that all commands that run take."""

    preset: str
    device: str
    resume: str | None
    retry: str
    out: Path | None
    seed: int | None
    limit: int
    offline: bool = False
    dataset: str = ""
    file_options: Any = None
    rounds: str = "fixed"
    budget: float | None = None
    keep: Keep | None = None
    groups: tuple[str, ...] = ()
    cluster: Path | None = None
    stand_ins: bool = True
    with_ours: bool = False
    threads: int | None = None

    def check(self) -> None:
        """Raise for values that cannot be meant."""
        from dgbench.harness.plan.presets import preset_info
        from dgbench.runtime.errors import DgbenchError
        from dgbench.runtime.threads import cores

        preset_info(self.preset)
        refuse_empty("--resume", self.resume, "a run: id, stamp, path or 'last'")
        if self.device not in ("auto", "cpu", "cuda"):
            raise DgbenchError(f"--device is '{self.device}', allowed: auto, cpu, cuda")
        if self.retry not in ("", "failed", "all"):
            raise DgbenchError(f"--retry is '{self.retry}', allowed: failed, all")
        if self.retry and not self.resume:
            raise DgbenchError("--retry needs a run to go on with", hint="add --resume last")
        if self.file_options is not None and not self.dataset:
            raise DgbenchError("--columns and the like need a file", hint="add --dataset FILE")
        if self.rounds not in ("auto", "fixed"):
            raise DgbenchError(f"--rounds is '{self.rounds}', allowed: auto, fixed")
        if self.budget is not None and (self.resume or self.rounds == "fixed"):
            raise DgbenchError(
                "--budget is for new runs with --rounds auto",
                hint="--resume goes on with the budget that the run began with",
            )
        if self.threads is not None and not 1 <= self.threads <= cores():
            raise DgbenchError(
                f"--threads is {self.threads}, allowed: 1 to {cores()}, the cores this process may "
                "run on"
            )
        if self.threads is not None and self.cluster is not None:
            raise DgbenchError(
                "--threads is for runs on this machine: jobs of --cluster have the cores of their "
                "node",
                hint="leave one of both out",
            )
        if self.dataset and self.resume:
            raise DgbenchError("--resume goes on with the data of that run; leave out --dataset")
        if self.groups and self.resume:
            raise DgbenchError("--resume goes on with the groups of that run; leave out --group")

    @property
    def rule(self) -> Any:
        """When rounds are added, or None."""
        import msgspec

        from dgbench.harness.plan.presets import preset_info

        rule = preset_info(self.preset).rounds if self.rounds == "auto" else None
        if rule is None or self.budget is None:
            return rule
        return msgspec.structs.replace(rule, budget_s=float(self.budget))


def register(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command("run", short_help="Run experiments and report.")(run)
    app.command("reproduce", short_help="Run whole papers, decide their claims, report.")(reproduce)


def run(
    experiments: list[str] = typer.Argument(
        None, metavar="EXPERIMENT", help="As pipad/fig10; not needed with --resume."
    ),
    preset: str = PRESET,
    device: str = DEVICE,
    resume: str = RESUME,
    retry: str = RETRY,
    out: Path = OUT,
    seed: int = SEED,
    limit: int = LIMIT,
    group: list[str] = GROUP,
    offline: bool = OFFLINE,
    rounds: str = ROUNDS,
    budget: int = BUDGET,
    threads: int = THREADS,
    dataset: str = DATASET,
    columns: str = COLUMNS,
    delimiter: str = DELIMITER,
    header: bool = HEADER,
    comment: str = COMMENT,
    ids: str = IDS,
    bipartite: bool = BIPARTITE,
    time_unit: str = TIME_UNIT,
    cluster: Path = CLUSTER,
) -> None:
    """Run experiments and write their report.

    Example: dgbench run pipad/fig10 --preset smoke
    """
    from dgbench.runtime.errors import DgbenchError

    if not experiments and resume is None:
        raise DgbenchError("no experiment is named", hint="list them: dgbench list experiments")
    options = Options(
        *(preset, device, resume, retry, out, seed, limit, offline, dataset),
        file_options=file_options(
            columns=columns,
            delimiter=delimiter,
            header=header,
            comment=comment,
            ids=ids,
            bipartite=bipartite,
            time_unit=time_unit,
        ),
        rounds=rounds,
        budget=budget,
        groups=tuple(group or ()),
        cluster=cluster,
        threads=threads,
    )
    go(_papers_of(experiments or []), experiments or [], options)


def reproduce(
    papers: list[str] = typer.Argument(None, metavar="PAPER", help="Default: all papers."),
    preset: str = PRESET,
    device: str = DEVICE,
    resume: str = RESUME,
    retry: str = RETRY,
    out: Path = OUT,
    seed: int = SEED,
    limit: int = LIMIT,
    offline: bool = OFFLINE,
    rounds: str = ROUNDS,
    budget: int = BUDGET,
    cluster: Path = CLUSTER,
) -> None:
    """Run all experiments of papers, decide every claim and write the report.

    Example: dgbench reproduce pipad
    """
    options = Options(
        *(preset, device, resume, retry, out, seed, limit, offline),
        rounds=rounds,
        budget=budget,
        cluster=cluster,
    )
    go(chosen_papers(papers or []), [], options, asked=papers or [])


def chosen_papers(names: list[str]) -> list[Any]:
    """The papers of these names, or all that load and have claims. Raises UnknownKeyError."""
    from dgbench.harness.plugins import (
        Broken,
        describe_ahead,
        find_paper,
        get_paper,
        paper_names,
    )

    if names:
        return [get_paper(name) for name in dict.fromkeys(names)]
    chosen = []
    describe_ahead()
    for name in paper_names():
        found = find_paper(name)
        if isinstance(found, Broken):
            print(f"warning: paper '{name}' is left out: {found.reason}", file=sys.stderr)
        elif found.ledger is not None:  # the arena has no claims, and a command of its own
            chosen.append(found)
    return chosen


def run_once(papers: list[Any], experiments: list[str], options: Options) -> tuple[Path, Any]:
    """A new run without verdicts and pages: its folder and its `Summary`."""
    from dgbench.harness.runner import run_plan
    from dgbench.harness.store import Store
    from dgbench.harness.terminal.progress import ProgressListener

    options.check()
    plan = _new_plan(papers, experiments, options)
    with Store.create(options.out, _settings(papers, experiments), plan) as store:
        return store.path, run_plan(plan, store, listener=ProgressListener())


def _papers_of(experiments: list[str]) -> list[Any]:
    """The papers that experiments name; the nearest names where one is not known."""
    from dgbench.harness.plugins import (
        Broken,
        describe_ahead,
        find_paper,
        get_paper,
        paper_names,
    )
    from dgbench.runtime.errors import DgbenchError, unknown_key

    names = [name.partition("/")[0] for name in experiments]
    if all("/" in name for name in experiments):
        papers = [get_paper(name) for name in dict.fromkeys(names)]
    else:
        describe_ahead()
        loaded = [find_paper(name) for name in paper_names()]
        papers = [p for p in loaded if not isinstance(p, Broken)]
    known = [f"{p.name}/{e.name}" for p in papers for e in p.experiments]
    for name in experiments:
        if name not in known and not any(k.endswith(f"/{name}") for k in known):
            if name in [p.name for p in papers]:
                raise DgbenchError(
                    f"'{name}' is a paper, not an experiment",
                    hint=f"all of it: dgbench reproduce {name}\nexperiments: {', '.join(known)}",
                )
            raise unknown_key("experiment", name, known)
    wanted = set(experiments)
    return [
        p
        for p in papers
        if any(f"{p.name}/{e.name}" in wanted or e.name in wanted for e in p.experiments)
    ]


def go(
    papers: list[Any], experiments: list[str], options: Options, asked: Sequence[str] = ()
) -> None:
    """Run, report and end the command; `asked`: papers that were named."""
    from functools import partial

    from dgbench.harness.claims.open_groups import open_groups
    from dgbench.harness.cli.outcome import exit_code, stopped_text
    from dgbench.harness.cli.resuming import last_time, run_to_resume, threads_of
    from dgbench.harness.runner import run_plan
    from dgbench.harness.store import Store
    from dgbench.harness.terminal.downloads import sources_text
    from dgbench.harness.terminal.planning import plan_head
    from dgbench.harness.terminal.progress import ProgressListener
    from dgbench.harness.terminal.text import columns, say, say_all

    options.check()
    root, threads = options.out, options.threads
    if options.resume:
        named = [
            f"{paper.name}/{one.name}"
            for paper in papers
            for one in paper.experiments
            if one.name in experiments or f"{paper.name}/{one.name}" in experiments
        ]
        folder = run_to_resume(options.resume, root, asked, named)
        plan, papers = plan_of(folder)
        threads = threads_of(folder, threads)
    else:
        folder, plan = None, _new_plan(papers, experiments, options)
    if options.cluster is not None:
        from dgbench.harness.cli.clustered import run_on_cluster

        run_on_cluster(plan, papers, _settings(papers, experiments), options, folder)
        return
    if folder is not None:
        store = Store.open(folder, writable=True)
    else:
        store = Store.create(root, _settings(papers, experiments), plan)
    with store:
        before = last_time(root, papers, experiments, plan)
        say(plan_head(plan, papers, before, width=columns(sys.stderr)), sys.stderr)
        if plan.sources:
            say(sources_text(plan.sources), sys.stderr)
        summary = run_plan(
            plan,
            store,
            listener=ProgressListener(),
            threads=threads,
            retry=options.retry or "",
            look=partial(open_groups, papers),
        )
        if summary.interrupted:  # verdicts and pages take longer than a batch system waits
            say_all(["\n" + stopped_text(summary, columns())])
            raise typer.Exit(exit_code(summary, ()))
        code = finish(store, papers, summary, with_ours=options.with_ours)
    if code:
        raise typer.Exit(code)


def finish(store: Any, papers: list[Any], summary: Any, *, with_ours: bool = False) -> int:
    """Print the outcome of a run, build its report and return the exit code.

    Args:
        with_ours: whether contenders with additions of dgbench rank in the race table.
    """
    from dgbench.harness.arena_quality import race_trainings
    from dgbench.harness.claims import evaluate
    from dgbench.harness.cli.outcome import exit_code, unexpected
    from dgbench.harness.report.build import build_report
    from dgbench.harness.report.run import gpu_name, machine_of
    from dgbench.harness.terminal.answer import RunFacts, answers
    from dgbench.harness.terminal.answer_words import answer_text
    from dgbench.harness.terminal.arena import arena_races, race_table, tuned_hint
    from dgbench.harness.terminal.left_out import failed_text, skipped_text, wrong_text
    from dgbench.harness.terminal.text import columns, say_all, wrapped
    from dgbench.harness.terminal.verdicts import contradictions, ending, verdict_table
    from dgbench.harness.trainings import kept_trainings, whole_trainings

    rows = store.rows()
    width = columns()
    kept = [row for paper in papers for row in kept_trainings(paper.name)]
    sentences = answers(papers, rows, RunFacts.of(store), kept)
    races = arena_races(papers, rows, with_ours=with_ours)
    tuned = arena_races(papers, rows, with_ours=with_ours, division="tuned")
    trained = [*race_trainings(races), *whole_trainings(rows)] if races else []
    where = machine_of(store) if races else ""
    verdicts = [evaluate(paper, rows) for paper in papers if paper.checks]
    failed = unexpected(rows, verdicts)
    code = exit_code(summary, failed)
    parts = [
        wrong_text(rows, verdicts, width),
        answer_text(sentences, width) if sentences else "",
        verdict_table(verdicts, width) if verdicts else "",
        contradictions(verdicts, width),
        failed_text(rows, store.run, width),
        skipped_text(rows, verdicts, width),
        race_table(races, width, trained, where) if races else "",
        tuned_hint(tuned, width),
    ]
    lost = say_all("\n" + part for part in parts if part)
    if summary.trouble:
        print(f"error: {summary.trouble}", file=sys.stderr)
    path = build_report(store.path, papers)
    *lines, last = ending(
        seconds=summary.seconds,
        cells=(
            summary.cells_ok,
            summary.cells_failed,
            summary.cells_void,
            summary.cells_skipped,
        ),
        rows=rows,
        papers=verdicts,
        noise=summary.noise_floor,
        gpu=gpu_name(store) if store.info.get("device") == "cuda" else "",
        report=str(path),
        stopped=(summary.cells_done, summary.cells) if summary.trouble else None,
    )
    lines += [summary.rounds] if summary.rounds else []
    text = "\n".join([*(wrapped(line, "", width) for line in lines), last])
    return say_all(["\n" + text]) or lost or code


def _new_plan(papers: list[Any], experiments: list[str], options: Options) -> Any:
    from functools import partial

    from dgbench.harness.machine import gpu_count
    from dgbench.harness.plan import Plan
    from dgbench.harness.plan.sources import settled
    from dgbench.harness.store import list_runs
    from dgbench.runtime.errors import DgbenchError

    if not papers:
        raise DgbenchError("there is no paper to run", hint="see what is installed: dgbench list")
    device, gpus = options.device, None
    if options.cluster is not None:
        from dgbench.harness.cluster import read_cluster

        gpus = read_cluster(options.cluster).gpus
    if device == "auto":
        device = "cuda" if (gpu_count() if gpus is None else gpus) else "cpu"
    data = None
    if options.dataset:
        data = open_dataset(options.dataset, options.file_options, partial(_settle, options))
    last = _rows_of(list_runs(options.out)[-3:])
    elsewhere = _rows_of(_references(papers))

    def build() -> Plan:
        plan = Plan.build(
            papers,
            experiments or None,
            options.preset,
            device,
            last=last,
            elsewhere=elsewhere,
            gpus=gpus,
            own_data=data,
            rounds=options.rule,
        )
        if options.groups:
            keep_named(plan, options.groups)
        if options.limit:
            keep_first(plan, options.limit)
        if options.keep is not None:
            plan.cells = [one for one in plan.cells if options.keep(one.cell.params)]
            if not plan.cells:
                raise DgbenchError("no workload of these tasks has that dataset and system")
        if options.seed is not None:
            set_seed(plan, options.seed)
        return plan

    plan = settled(build, partial(_settle, options), stand_ins=options.stand_ins)
    if not plan.runnable:
        reasons = sorted({c.reason for c in plan.cells if c.reason}) or plan.problems
        if data is not None and not plan.cells:
            raise DgbenchError("; ".join(reasons) or "no cells", hint="others may: dgbench list")
        raise DgbenchError(
            f"none of {len(plan.cells)} cells can run here: {'; '.join(reasons) or 'no cells'}",
            hint="see what this machine offers: dgbench doctor",
        )
    return plan


def _settle(options: Options, names: list[str]) -> list[Any]:
    """Where datasets come from, after fetching what may be fetched."""
    from dgbench.datasets.first_use import settle_sources
    from dgbench.harness.terminal.downloads import DownloadBar

    bar = DownloadBar()
    try:
        return settle_sources(names, fetching=not options.offline, progress=bar.update)
    finally:
        bar.close()


def plan_of(folder: Path) -> tuple[Any, list[Any]]:
    """The plan that a run was started with, and its papers."""
    from dgbench.harness.plan import read_plan
    from dgbench.harness.plugins import get_paper
    from dgbench.harness.store import Store

    store = Store.open(folder)
    plan = read_plan(store)
    if plan.own_data is not None:
        from dgbench.harness.plan.own_data import restore

        restore(plan.own_data, store.run)
    names = store.info.get("papers") or [c.cell.paper for c in plan.cells]
    return plan, [get_paper(name) for name in dict.fromkeys(names)]


def _references(papers: list[Any]) -> list[Path]:
    """Kept runs of these papers by other machines, where the repository is the current folder."""
    names = {paper.name for paper in papers}
    folders = (Path("results") / "reference").glob("*/*/run.json")
    return sorted(path.parent for path in folders if path.parent.name in names)


def _rows_of(runs: list[Path]) -> list[Any]:
    """Rows of runs, from which the plan estimates how long cells take."""
    from dgbench.harness.store import Store
    from dgbench.runtime.errors import DgbenchError

    rows: list[Any] = []
    for path in runs:
        try:
            rows += Store.open(path).rows()
        except DgbenchError:
            continue
    return rows


def _settings(papers: list[Any], experiments: list[str]) -> dict[str, Any]:
    """Start-up settings of a run that run.json keeps."""
    return {
        "papers": [p.name for p in papers],
        "experiments": experiments,
        "command": _command(),
    }


def _command() -> str:
    return " ".join(["dgbench", *sys.argv[1:]])
