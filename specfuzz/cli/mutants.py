"""`specfuzz mutants`: does every planted bug die by an oracle that it names, from every seed?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.text import Text

from specfuzz.cli.campaigns import in_processes, no_report, sayable, shrunk
from specfuzz.cli.engines import changes_of, one_torch_thread, options_of, oracles_of
from specfuzz.cli.flags import ENGINE, OPENING, Flags, with_flags
from specfuzz.cli.fuzz import kept, writable
from specfuzz.cli.interrupts import defer, interrupted_status, stop_asked
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, Outcome
from specfuzz.cli.planted import OPENED_AS, mutants_of
from specfuzz.cli.streams import say
from specfuzz.cli.tables import columns, paragraph, report_width
from specfuzz.core.capability import Capability
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions, open_system
from specfuzz.errors import SpecfuzzError, StoreError, UsageError

if TYPE_CHECKING:
    from specfuzz.campaign.kill import KillReport, MutantReport

#: Examples and seconds that one mutant gets from one seed unless the flags say otherwise.
MAX_EXAMPLES, MAX_TIME = 2000, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """Some mutants to kill, as plain data for another process."""

    system: str
    names: tuple[str, ...]
    options: OpenOptions
    oracles: tuple[str, ...]
    fixed: dict[str, Any]
    seeds: int
    max_examples: int
    max_time: float


@click.command("mutants")
@click.argument("names", nargs=-1, metavar="[MUTANT]...")
@click.option(
    "--seeds", type=click.IntRange(1, 1000), default=5, show_default=True, help="Kill from each of seeds 1..N."
)
@click.option("--list", "only_list", is_flag=True, help="List them, kill nothing.")
@click.option("--corpus", metavar="DIR", help="Save the shortest shrunk trace of each kill there.")
@click.option("--smoke", is_flag=True, help="Instead: which ones does the common pool of seed traces kill? In seconds.")
@click.option("--pool", metavar="DIR", default="corpus", show_default=True, help="Corpus whose seeds --smoke takes.")
@with_flags("json", "seed", "jobs", "max_examples", "max_time", *OPENING, *ENGINE, "oracles")
def command(
    flags: Flags, names: tuple[str, ...], seeds: int, only_list: bool, corpus: str | None, smoke: bool, pool: str
) -> Outcome:
    """Kill the planted bugs of the reference, or with --system sglang those of the real engine.

    A mutant is killed when, on a legal trace that the clean engine passes, an oracle that it names is violated and the
    engine raised nothing. Seeds are 1..--seeds (--seed is reported only); --max-examples and --max-time are per mutant
    and seed. Exit status 0 if all are killed from every seed; with --smoke, if the pool kills 95 % of them.
    """
    system = flags.system or "reference"
    registry = mutants_of(system)
    chosen = tuple(registry.get(name).name for name in names) or registry.names()
    writable(corpus)
    if only_list:
        return _listing([registry.get(name) for name in chosen], flags.seed)
    if smoke:
        return _smoke(flags, system, chosen, pool)
    errand = Errand(
        system=system, names=chosen, options=options_of(flags), oracles=tuple(o.name for o in oracles_of(flags)),
        fixed=changes_of(flags), seeds=seeds, max_examples=flags.max_examples or MAX_EXAMPLES,
        max_time=flags.max_time or MAX_TIME,
    )  # fmt: skip
    report = kill(errand, flags.jobs)
    error: SpecfuzzError | None = sayable(report.error)
    for mutant in report.mutants if corpus is not None else ():
        error = error or _keep(mutant, corpus)
    verdict, status = _verdict(report)
    return Outcome(
        verdict=verdict, status=error.exit_status if error else interrupted_status() or status, seed=flags.seed,
        more=_keys(report), lines=_lines(report, system), error=error,
    )  # fmt: skip


def _smoke(flags: Flags, system: str, chosen: tuple[str, ...], pool: str) -> Outcome:
    """A pool is run as it is, so whatever would change its runs is refused."""
    from specfuzz.cli.smoke import SmokeErrand, read_pool, smoke

    context = click.get_current_context()
    given = [name for name in ("seeds", "corpus", "max_examples", "max_time", *ENGINE) if _is_given(context, name)]
    if given:
        raise UsageError(f"`--{given[0].replace('_', '-')}` doesn't fit `--smoke`, which runs its seeds as they are.")
    errand = SmokeErrand(
        system=system, names=chosen, options=options_of(flags), pool=read_pool(pool),
        oracles=tuple(oracle.name for oracle in oracles_of(flags)),
    )  # fmt: skip
    cores = min(2, os.cpu_count() or 1)
    return smoke(errand, flags.jobs if _is_given(context, "jobs") else cores, flags.seed)


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)


def _verdict(report: KillReport) -> tuple[str, int]:
    if report.killed < report.total:
        return "violated", FOUND
    if not report.total or report.interrupted or report.error is not None:
        return "unknown", CANT_SAY
    return "holds", FINE


def kill(errand: Errand, jobs: int) -> KillReport:
    """Try all mutants; with several jobs each one takes every jobs-th."""
    from specfuzz.campaign.kill import KillReport, redundant_oracles

    if jobs == 1 or len(errand.names) == 1:
        return kill_errand(errand)
    parts = [replace(errand, names=errand.names[at::jobs]) for at in range(min(jobs, len(errand.names)))]
    results = in_processes(kill_errand, parts, jobs)
    reports = [result for result in results if isinstance(result, KillReport)] or [no_report(results)]
    order = {name: at for at, name in enumerate(errand.names)}
    mutants = sorted((m for report in reports for m in report.mutants), key=lambda mutant: order[mutant.name])
    equivalent = sorted((e for report in reports for e in report.equivalent), key=lambda pair: order[pair[0]])
    errors = [result.error if isinstance(result, KillReport) else result for result in results]
    return KillReport(
        mutants=tuple(mutants), equivalent=tuple(equivalent),
        redundant_oracles=redundant_oracles(errand.oracles, mutants),
        interrupted=any(report.interrupted for report in reports) or stop_asked(),
        error=next((error for error in errors if error is not None), None),
    )  # fmt: skip


def kill_errand(errand: Errand) -> KillReport:
    """Try the mutants in this process; progress goes to stderr."""
    from specfuzz.campaign.covers import Factors
    from specfuzz.campaign.kill import KillPlan, run_kill
    from specfuzz.reference.algorithms import ALGORITHMS

    registry = mutants_of(errand.system)
    clean = open_system(errand.system, errand.options)
    one_torch_thread()
    defer()
    try:
        report = run_kill(
            KillPlan(
                mutants=[registry.get(name) for name in errand.names], clean=clean, seeds=errand.seeds,
                open_mutant=lambda name: open_system(OPENED_AS[errand.system].format(name), errand.options),
                oracles=[ORACLES.get(name) for name in errand.oracles], max_examples=errand.max_examples,
                max_time=errand.max_time, factors=Factors(algorithms=ALGORITHMS.names(), fixed=errand.fixed),
                shrink=shrunk, stop=stop_asked, progress=say,
            )
        )  # fmt: skip
    finally:
        clean.close()
    return replace(report, error=sayable(report.error))


def _keep(mutant: MutantReport, corpus: str | None) -> StoreError | None:
    traces = [seed.shrunk for seed in mutant.seeds if seed.shrunk is not None]
    return kept(min(traces, key=lambda trace: len(trace.steps)), corpus)[1] if traces else None


def _listing(mutants: Sequence[Any], seed: int | None) -> Outcome:
    """The report of a campaign that tried nothing, and what each mutant declares."""
    from specfuzz.campaign.kill import KillReport, MutantReport

    counted = [m for m in mutants if m.equivalent is None]
    keys = _keys(
        KillReport(
            mutants=tuple(MutantReport(name=m.name, source=m.source, needs=m.needs, seeds=()) for m in counted),
            equivalent=tuple((m.name, m.equivalent) for m in mutants if m.equivalent is not None),
            redundant_oracles=(),
        )
    )
    for m, entry in zip(counted, keys["mutants"], strict=True):
        entry.update(summary=m.summary, killed_by=list(m.killed_by))
    lines: list[Text | str] = []
    for m in mutants:
        lines.append(Text.assemble((m.name, "bold"), f"  killed by {', '.join(m.killed_by)}"))
        lines += [Text("  " + line.plain) for line in paragraph(m.summary, report_width() - 2)]
    lines += ["", f"{len(mutants)} mutants"]
    return Outcome(verdict="holds", status=FINE, seed=seed, more=keys, lines=lines)


def _flags(needs: Capability) -> list[str]:
    return [flag.name for flag in Capability if flag in needs and flag.value and flag.name]


def _keys(report: KillReport) -> dict[str, Any]:
    return {
        "mutants": [
            {
                "name": m.name, "source": m.source, "killed": m.killed, "by": list(m.by), "seeds_found": m.seeds_found,
                "seeds": len(m.seeds), "events_to_find": m.events_to_find, "seconds_to_find": m.seconds_to_find,
                "shrunk_events": m.shrunk_events, "needs": _flags(m.needs),
                "other": list(dict.fromkeys(name for seed in m.seeds for name in seed.other)),
            }
            for m in report.mutants
        ],
        "killed": report.killed, "total": report.total,
        "equivalent": [{"name": name, "why": why} for name, why in report.equivalent],
        "redundant_oracles": list(report.redundant_oracles), "interrupted": report.interrupted,
    }  # fmt: skip


def _lines(report: KillReport, system: str) -> list[Text | str]:
    rows = [
        (
            m.name, f"{m.seeds_found}/{len(m.seeds)}", _number(m.events_to_find), _number(m.seconds_to_find),
            _number(m.shrunk_events), ", ".join(m.by) or "SURVIVES",
        )
        for m in report.mutants
    ]  # fmt: skip
    headers = ("mutant", "seeds", "events", "seconds", "shrunk", "killed by")
    lines: list[Text | str] = [*columns(headers, rows), ""]
    for mutant in report.mutants:
        if not mutant.killed:
            other = list(dict.fromkeys(name for seed in mutant.seeds for name in seed.other))
            no_kill = f"; what ended its examples is no kill: {', '.join(other)}" if other else ""
            lines.append(f"{mutant.name} survives{no_kill}")
    lines += [f"{name} is equivalent and not counted: {why}" for name, why in report.equivalent]
    sizes = [mutant.shrunk_events for mutant in report.mutants if mutant.shrunk_events is not None]
    middle = f"; median shrunk trace {median(sizes):.0f} events" if sizes else ""
    words = {"holds": ("HOLDS ", "bold green"), "violated": ("SURVIVORS ", "bold red")}
    mark = words.get(_verdict(report)[0], ("UNKNOWN ", "bold yellow"))
    if report.interrupted:
        lines.append("interrupted: this is what was killed until then")
    return [*lines, Text.assemble(mark, f"{report.killed} of {report.total} mutants of {system} killed{middle}")]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.2f}"
