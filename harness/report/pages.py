"""Filling the templates. All HTML is escaped by jinja2; nothing is fetched when a page is read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import (
    BytecodeCache,
    Environment,
    PackageLoader,
    StrictUndefined,
    select_autoescape,
)
from markupsafe import Markup

from dgbench.harness.arena_quality import quality_text
from dgbench.harness.claims.kinds import by_kind
from dgbench.harness.claims.shown import digits, unit_rest
from dgbench.harness.claims.verdict import GLYPHS
from dgbench.harness.figures.claim_board import ranked
from dgbench.harness.figures.palette import VERDICTS
from dgbench.harness.figures.race_words import (
    addition_text,
    gain_text,
    headline,
    quotable,
    race_title,
    ratio_text,
    reason_text,
    shown_rate,
    tuned_words,
)
from dgbench.harness.figures.style import seconds_text
from dgbench.harness.report.boards import merged_points
from dgbench.harness.report.failures import without_result
from dgbench.harness.report.model_quality import model_scores
from dgbench.harness.report.pictures import ACROSS, images, picture
from dgbench.harness.report.race_screen import race_tabs, site_trainings
from dgbench.harness.report.races import workloads
from dgbench.harness.report.reuse import IN_TABLE
from dgbench.harness.report.run import STATUS_MEANING, TALLIED, RunData
from dgbench.harness.report.site import ClaimOnSite, PaperOnSite, SiteData
from dgbench.harness.report.words import (
    ABBREVIATIONS,
    WORDS,
    cell_class,
    here_value,
    label,
    markdown,
    markdown_code,
    paper_value,
    row_command,
)
from dgbench.harness.store.row import VOID
from dgbench.harness.terminal.progress import describe
from dgbench.lab.arena import ArenaRace, Entrant
from dgbench.lab.arena_quality import trained_quality
from dgbench.lab.charts import marked


class _Compiled(BytecodeCache):
    """Templates that this process has compiled, for its next site."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Any) -> None:
        if bucket.key in self.kept:
            bucket.bytecode_from_string(self.kept[bucket.key])

    def dump_bytecode(self, bucket: Any) -> None:
        self.kept[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _Compiled()


def environment(site: SiteData | None = None, folder: Path = Path()) -> Environment:
    """Templates with their filters; an undefined name is an error, not a blank.

    Args:
        site: what the pages show; without it there are no links to subject pages.
        folder: where its figures are, to read their sizes.
    """
    env = Environment(
        loader=PackageLoader("dgbench.harness.report", "templates"),
        autoescape=select_autoescape(["html.j2", "html"], default_for_string=False, default=False),
        undefined=StrictUndefined,
        bytecode_cache=_COMPILED,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates = files("dgbench.harness.report").joinpath("templates")
    env.globals |= {
        "style": _inlined(templates.joinpath("style.css").read_text(encoding="utf-8")),
        "script": _inlined(templates.joinpath("script.js").read_text(encoding="utf-8")),
        "in_table": IN_TABLE,
        "glyphs": tuple(GLYPHS),
        "verdicts": VERDICTS,
        "words": WORDS,
        "meaning": ABBREVIATIONS,
        "marked": marked,
        "row_command": row_command,
        "claim_command": lambda claim: claim_command(site, claim),
        "row_href": lambda run, row_id: run.row_href(row_id),
        "model_scores": cache(lambda name: model_scores(site, name) if site else []),
        "across_picture": lambda drawn: images(ACROSS, folder, drawn),
        "picture": lambda run, paper, drawn: picture(
            bool(site and site.merged), folder, run, paper, drawn
        ),
    }
    env.filters |= {
        "paper_value": paper_value,
        "here_value": here_value,
        "unit_rest": lambda claim: unit_rest(claim.unit),
        "seconds": seconds_text,
        "digits": digits,
        "describe": describe,
        "status": lambda word: STATUS_MEANING.get(word, word),
        "cell_class": cell_class,
        "label": label,
        "code": markdown_code,
        "cell": lambda text: " ".join(str(text).replace("|", "\\|").split()),
    }
    return env


def _inlined(text: str) -> Markup:
    """Style or script as pages get it: without indentation and lines of comment."""
    lines = (line.strip() for line in text.splitlines())
    return Markup("\n".join(line for line in lines if line and not line.startswith("//")))


def common(
    site: SiteData, root: str, page: str, runs: Sequence[RunData] | None = None
) -> dict[str, Any]:
    """Variables that every template gets: see its base.

    Args:
        root: from the page's folder to the front page's, `""` or `"../"`.
        page: which word of the navigation is current.
        runs: of a site that the page shows, None for all.
    """
    runs = runs if site.merged else None
    counts_trainings = not site.merged or page in ("overview", "runs")
    return {
        "site": site,
        "front": site.front,
        "merged": site.merged,
        "run": None if site.merged else site.runs[0],
        "where": site.where,
        "banners": banners(site, runs, trainings=counts_trainings),
        "nav": navigation(site),
        "root": root,
        "page": page,
    }


def navigation(site: SiteData) -> list[tuple[str, str, str]]:
    """Key, word and address of the pages there are."""
    every = [
        ("overview", "Overview", site.front),
        ("claims", "Claims", "claims.html"),
        ("papers", "Papers", "papers/index.html"),
        ("systems", "Systems", "systems/index.html"),
        ("datasets", "Datasets", "datasets/index.html"),
        ("runs", "Runs", "runs/index.html"),
        ("compare", "Compare", "compare/index.html"),
        ("how", "How to read", "how-to-read.html"),
    ]
    always = ("overview", *(("claims",) if site.merged else ()), "papers", "runs", "how")
    return [entry for entry in every if entry[0] in (*always, *site.parts)]


def banners(
    site: SiteData, runs: Sequence[RunData] | None = None, *, trainings: bool = True
) -> list[str]:
    """Banners above a page: runs that are no measurement, incomplete, or damaged.

    Args:
        runs: that the page shows, None for all. trainings: whether to count the whole trainings
            that are done.
    """
    said, training = [], []
    if not site.runs:
        said.append("No run is shown here.")
    for run in site.runs if runs is None else runs:
        words = []
        if run.smoke:
            words.append("Smoke run on tiny data: it shows that everything runs. None of its "
                         "numbers is a measurement.")  # fmt: skip
        if run.partial and site.merged and _only_trainings_left(run):
            planned = int(run.info["trained"])
            training.append(f"{planned - run.left} of {planned} ({run.slug})")
        elif run.partial:
            words.append(partial_words(run))
        if run.torn:
            lines = "damaged line was" if run.torn == 1 else "damaged lines were"
            take = "takes" if run.torn == 1 else "take"
            words.append(f"{run.torn} {lines} set aside and {take} no part (rows.torn).")
        if any(row.status == VOID for row in run.rows) and not any(row.ok for row in run.rows):
            words.append("Nothing counts: no result was compared with a reference.")
        elif not any(row.ok for row in run.rows):
            words.append("Nothing ran: no cell of this run has a result.")
        said += [f"Run {run.slug}: {' '.join(words)}"] if words and site.merged else words
    if training and trainings:
        said.append(f"Whole trainings that are done: {', '.join(training)}.")
    return said


def _only_trainings_left(run: RunData) -> bool:
    return bool(run.left) and run.left == run.left_trained


def partial_words(run: RunData) -> str:
    """`Partial: 188 of 312 cells; continue with dgbench run --resume 7f3a91c2`."""
    if _only_trainings_left(run):
        planned = int(run.info["trained"])
        return f"{planned - run.left} of {planned} whole trainings are done."
    done = run.planned - run.left
    cells = f"{done} of {run.planned} cells" if run.left else f"{done} cells"
    if run.kept:
        note = str(run.info.get("note") or "")
        return f"Partial: {cells}{', ' if note else ''}{note}."
    return f"Partial: {cells}; continue with dgbench run --resume {run.store.run}"


def assets(env: Environment) -> dict[str, str]:
    """Style and script of a merged site, which its pages share; a run's pages carry their own."""
    return {
        "assets/style.css": f"{env.globals['style']}\n",
        "assets/script.js": f"{env.globals['script']}\n",
    }


def overview(
    env: Environment, site: SiteData, template: str = "overview.html.j2", page: str = "overview"
) -> str:
    """The first page: of a run, as HTML or (another template) Markdown; of a site, which has
    its claims on a page of their own."""
    claims = site.claims
    datasets = {name for run in site.runs for name in run.datasets}
    twins = sorted({name for run in site.runs for name in run.twins})
    shown = [(run, section) for paper in site.papers for run, section in paper.sections]
    mains = [(run, s.name, *s.main) for run, s in shown if s.main is not None]
    # The race over most workloads that ran stands for the rest; the first of equal ones.
    main = max(mains, key=lambda m: (m[3].kind == "speedup", workloads(m[3])), default=None)
    tallies = [run.tally() for run in site.runs]
    tabs = race_tabs(site) if page == "overview" else []
    if template.endswith(".md.j2"):  # pages escape what they show, this text does it here
        env = env.overlay(finalize=markdown)
    return env.get_template(template).render(
        **common(site, "", page),
        screen=tabs[0].screen if tabs else None,
        tabs=tabs,
        found=_found(site) if site.merged else [],
        headline=site.headline,
        counts=site.counts,
        total=len(claims),
        claims=claims,
        kinds=by_kind((c.claim, c.verdict) for c in claims),
        on_twins=sum(c.verdict.data == "twin" for c in claims),
        disagree=sum(bool(c.disagreement) for c in claims),
        twins=twins,
        datasets=len(datasets),
        boards=[(paper, ranked(merged_points(paper))) for paper in site.papers],
        facts=[_facts(site, run) for run in site.runs],
        fastest=_fastest(site),
        main=main,
        failed=[] if site.merged else [c for run in site.runs for c in without_result(run.rows)],
        tally={word: sum(t[word] for t in tallies) for word in TALLIED},
    )


def _found(site: SiteData) -> list[tuple[PaperOnSite, str]]:
    """Papers with what was found first of each, else with its heading."""
    found = []
    for paper in site.papers:
        if paper.total:
            said = [sentence for _, section in paper.sections for sentence in section.found]
            found.append((paper, said[0] if said else paper.headline))
    return found


def _facts(site: SiteData, run: RunData) -> dict[str, Any]:
    """The strip of facts of a run."""
    tally = run.tally()
    return {
        "machine": run.machine_name,
        "run": run.slug,
        "run_href": run.row_page,
        "date": str(run.info.get("started", ""))[:10],
        "preset": str(run.info.get("preset", "")),
        "duration": run.duration,
        "noise": run.noise,
        "rounds": run.rounds,
        "ok": tally["ok"],
        "failed": tally["failed"],
        "missing": tally["missing"],
        "void": tally["void"],
        "command": str(run.info.get("command") or "dgbench run"),
        "papers": run.papers,
        "partial": run.partial,
        "limits": run.limits,
    }


def _fastest(site: SiteData) -> list[dict[str, Any]]:
    """The main race of every paper, of the strongest run that has one."""
    found = []
    for paper in site.papers:
        run, section = next(((r, s) for r, s in paper.sections if s.fastest), (None, None))
        if section is not None:
            found.append({"paper": paper, "run": run, "rows": section.fastest,
                          "headline": section.headline})  # fmt: skip
    return found


def papers_page(env: Environment, site: SiteData) -> str:
    """All papers with their counts."""
    return env.get_template("papers.html.j2").render(
        **common(site, "../", "papers"), headline=site.headline
    )


def paper_page(env: Environment, site: SiteData, paper: PaperOnSite) -> str:
    """The page of one paper, all its runs together."""
    reasons: dict[str, list[ClaimOnSite]] = {}
    for claim in paper.claims:
        if claim.verdict.verdict == "not run here":
            reasons.setdefault(claim.verdict.reason, []).append(claim)
    trained = site_trainings(site, [race for _, one in paper.sections for race in one.arena])
    tasks = any(one.arena_task is not None for one in paper.paper.experiments)
    return env.get_template("arena.html.j2" if tasks else "paper.html.j2").render(
        **common(site, "../", "papers", [run for run, _ in paper.sections]),
        paper=paper,
        heading=_heading(paper),
        addition_text=addition_text,
        columns=race_columns,
        gain_text=gain_text,
        quotable=quotable,
        race_title=race_title,
        ratio_text=ratio_text,
        reason_text=reason_text,
        tuned_words=tuned_words,
        quality=lambda race: quality_text(race, trained_quality(race, trained)),
        rate=lambda value: shown_rate(value).replace(" ", "\u00a0"),
        counts=paper.counts,
        total=paper.total,
        points=ranked(merged_points(paper)),
        claims=paper.claims,
        kinds=by_kind((c.claim, c.verdict) for c in paper.claims),
        missing=sorted(reasons.items()),
        experiments=_experiments(paper),
        quote=[(run, s.quote) for run, s in paper.sections if s.quote],
        versus=[(run, s.versus) for run, s in paper.sections if s.versus is not None],
        over_time=[(run, s.over_time) for run, s in paper.sections if s.over_time is not None],
    )


def _heading(paper: PaperOnSite) -> str:
    """Heading of a paper's page: of the arena, the findings of the run that raced most, which the
    first page shows too."""
    run, section = max(paper.sections, key=lambda one: len(one[1].arena))
    return headline(section.arena, run.machine_name) if section.arena else paper.headline


def race_columns(races: Sequence[ArenaRace]) -> list[tuple[str, Entrant]]:
    """Contenders that have a time in any of the races, by name, those that lead first and those
    that do not rank last."""
    ranks: dict[str, tuple[int, Entrant]] = {}
    for race in races:
        for place, one in enumerate((*race.timed, *race.additions)):
            best = ranks.get(one.name, (place, one.entrant))[0]
            ranks[one.name] = min(place, best), one.entrant
    return [(name, ranks[name][1]) for name in sorted(ranks, key=lambda name: ranks[name][0])]


def _experiments(paper: PaperOnSite) -> list[dict[str, Any]]:
    """Experiments of a paper in its order, each with what its runs found."""
    found = []
    for place, first in enumerate(paper.sections[0][1].sections):
        parts = [(run, shown.sections[place]) for run, shown in paper.sections]
        named = {claim.id for _, part in parts for claim, _ in part.claims}
        claims = [c for c in paper.claims if c.claim.id in named]
        sides = [c.verdict.side for c in claims]
        states = {part.state for _, part in parts}
        state = next(s for s in ("ran", "failed", "not run") if s in states)
        found.append({
            "name": first.name,
            "title": first.title,
            "question": first.question,
            "reading": first.reading,
            "sides": _sides(sides),
            "claims": claims,
            "state": state,
            "command": first.command,
            "parts": [(run, p) for run, p in parts if p.rows or p.note] or parts[:1],
        })  # fmt: skip
    return found


def _sides(sides: Sequence[str]) -> str:
    """Numbers of claims that went either way, in words."""
    good, bad = sides.count("for"), sides.count("against")
    if not sides:
        return "no claim"
    counted = "1 claim" if len(sides) == 1 else f"{len(sides)} claims"
    return f"{counted}: {good} for, {bad} against" if good or bad else f"{counted}, none decided"


def run_pages(env: Environment, site: SiteData, run: RunData) -> dict[str, str]:
    """Every row of a run, failures first; long runs take several pages."""
    files_ = []
    if not site.merged:
        files_ = [("JSON lines", "rows.jsonl"), ("CSV", f"runs/{run.slug}.csv"),
                  ("Parquet", f"runs/{run.slug}.parquet")]  # fmt: skip
    return {
        path: env.get_template("run.html.j2").render(
            **common(site, "../", "runs", [run]) | {"run": run},
            rows=rows,
            bad=sum(not row.ok for row in run.everything),
            page_number=number,
            pages=run.row_pages,
            files=files_,
            kept=reference_name(run) if run.kept else "",
            logs=not site.merged,
        )
        for number, (path, rows) in enumerate(zip(run.row_pages, run.pages, strict=True), 1)
    }


def reference_name(run: RunData) -> str:
    """The folder of a run that was kept, as the repository calls it."""
    folder = run.store.path.resolve()
    return f"results/reference/{folder.parent.name}/{folder.name}"


def runs_page(env: Environment, site: SiteData) -> str:
    """All runs."""
    return env.get_template("runs.html.j2").render(**common(site, "../", "runs"))


def reading(env: Environment, site: SiteData) -> str:
    """Page that explains glyphs, intervals and words."""
    return env.get_template("how-to-read.html.j2").render(**common(site, "", "how"))


def claim_command(site: SiteData | None, claim: ClaimOnSite) -> str:
    """The command that repeats what a verdict rests on, or that would look at the claim at all."""
    wanted = claim.verdict.row
    if wanted in claim.run.places:
        page = claim.run.pages[claim.run.places[wanted]]
        return row_command(next(row for row in page if row.id == wanted))
    for paper in site.papers if site else ():
        if paper.name != claim.paper:
            continue
        named = (e.name for e in paper.paper.experiments if claim.claim.id in e.claims)
        needs = claim.claim.needs
        device = " --device cuda" if needs.get("gpus") and not needs.get("cpu_only_ok") else ""
        return next((f"dgbench run {claim.paper}/{name}{device}" for name in named), "")
    return ""
