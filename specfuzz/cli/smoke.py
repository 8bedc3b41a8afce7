"""`specfuzz mutants --smoke`: one common pool of seed traces against all planted bugs, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from specfuzz.cli.campaigns import in_processes, no_report
from specfuzz.cli.engines import one_torch_thread
from specfuzz.cli.interrupts import defer, interrupted_status, stop_asked
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, Outcome
from specfuzz.cli.planted import OPENED_AS, mutants_of
from specfuzz.cli.streams import say
from specfuzz.cli.tables import columns, paragraph, report_width
from specfuzz.core.capability import Capability
from specfuzz.core.oracle import ORACLES
from specfuzz.core.port import OpenOptions, open_system
from specfuzz.core.trace import Trace
from specfuzz.errors import TraceError, UsageError

if TYPE_CHECKING:
    from specfuzz.campaign.smoke import Smoked, SmokeReport

#: A pool of more traces would no longer be a smoke test.
MOST_SEEDS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeErrand:
    """Some mutants to smoke out, as plain data for another process."""

    system: str
    names: tuple[str, ...]
    options: OpenOptions
    oracles: tuple[str, ...]
    pool: tuple[Trace, ...]


def smoke(errand: SmokeErrand, jobs: int, seed: int | None) -> Outcome:
    """Run the pool against the mutants, in `jobs` processes, and report."""
    from specfuzz.campaign.smoke import LEAST_SHARE

    defer()
    report = _run(errand, jobs)
    verdict, status = ("holds", FINE) if report.share >= LEAST_SHARE else ("violated", FOUND)
    if report.interrupted or not report.mutants:
        verdict, status = "unknown", CANT_SAY
    return Outcome(
        verdict=verdict, status=interrupted_status() or status, seed=seed, more=_keys(report),
        lines=_lines(report, errand.system, verdict),
    )  # fmt: skip


def read_pool(folder: str) -> tuple[Trace, ...]:
    """The seeds of a corpus folder; raises UsageError if there are none or too many, TraceError for a bad file."""
    from specfuzz.trace.seeds import SeedStore

    listing = SeedStore(folder).load()
    if listing.problems:
        raise TraceError(listing.problems[0])
    if not listing.entries:
        make = (
            f"make them with `specfuzz corpus seeds --write {folder}`" if Path(folder).is_dir() else "name the corpus"
        )
        raise UsageError(f"the corpus `{folder}` has no seed traces: {make}, as in `mutants --smoke --pool DIR`.")
    if len(listing.entries) > MOST_SEEDS:
        raise UsageError(f"the corpus `{folder}` has {len(listing.entries)} seeds; a smoke test takes {MOST_SEEDS}.")
    return tuple(entry.trace for entry in listing.entries)


def _run(errand: SmokeErrand, jobs: int) -> SmokeReport:
    parts = [replace(errand, names=errand.names[at::jobs]) for at in range(min(jobs, len(errand.names)))]
    if len(parts) < 2:
        return run_errand(errand)
    from specfuzz.campaign.smoke import SmokeReport

    results = in_processes(run_errand, parts, jobs)
    reports = [result for result in results if isinstance(result, SmokeReport)]
    if len(reports) < len(results):
        no_report(results)
    order = {name: at for at, name in enumerate(errand.names)}
    return replace(
        reports[0],
        mutants=tuple(sorted((m for r in reports for m in r.mutants), key=lambda mutant: order[mutant.name])),
        equivalent=tuple(sorted((e for r in reports for e in r.equivalent), key=lambda pair: order[pair[0]])),
        interrupted=any(report.interrupted for report in reports),
    )


def run_errand(errand: SmokeErrand) -> SmokeReport:
    """The mutants of one errand, in this process."""
    from specfuzz.campaign.smoke import SmokePlan, run_smoke

    registry = mutants_of(errand.system)
    clean = open_system(errand.system, errand.options)
    one_torch_thread()
    try:
        return run_smoke(
            SmokePlan(
                mutants=[registry.get(name) for name in errand.names], clean=clean, pool=errand.pool, stop=stop_asked,
                open_mutant=lambda name: open_system(OPENED_AS[errand.system].format(name), errand.options),
                oracles=[ORACLES.get(name) for name in errand.oracles], progress=say,
            )
        )  # fmt: skip
    finally:
        clean.close()


def _keys(report: SmokeReport) -> dict[str, Any]:
    return {
        "smoke": True, "mutants": [_entry(mutant) for mutant in report.mutants], "killed": report.killed,
        "total": len(report.mutants), "share": round(report.share, 4), "survivors": list(report.survivors),
        "equivalent": [{"name": name, "why": why} for name, why in report.equivalent], "pool": report.pool,
        "spoilt": [{"seed": number, "got": got} for number, got in report.spoilt],
        "redundant_oracles": list(report.redundant_oracles), "oracles_without_kill": list(report.without_kill),
        "interrupted": report.interrupted,
    }  # fmt: skip


def _entry(m: Smoked) -> dict[str, Any]:
    return {
        "name": m.name, "source": m.source, "killed": m.killed, "by": list(m.by),
        "seeds_found": m.seeds_found, "seeds": m.seeds, "events_to_find": m.events, "seconds_to_find": m.seconds,
        "shrunk_events": None, "other": list(m.other),
        "needs": [flag.name for flag in Capability if flag in m.needs and flag.value and flag.name],
    }  # fmt: skip


def _lines(report: SmokeReport, system: str, verdict: str) -> list[Text | str]:
    rows = [(m.name, f"{m.seeds_found}/{m.seeds}", ", ".join(m.by) or "SURVIVES") for m in report.mutants]
    lines: list[Text | str] = [*columns(("mutant", "seeds", "killed by"), rows), ""]
    lines += [f"{name} is equivalent and not counted: {why}" for name, why in report.equivalent]
    lines += [f"seed {number} doesn't hold on the clean {system}: {got}" for number, got in report.spoilt]
    for word, names in _named(report):
        lines += paragraph(f"{word} ({len(names)}): {', '.join(names)}", report_width()) if names else []
    words = {"holds": ("HOLDS ", "bold green"), "violated": ("SURVIVORS ", "bold red")}
    mark = words.get(verdict, ("UNKNOWN ", "bold yellow"))
    share = f"{report.killed} of {len(report.mutants)} mutants of {system} killed ({report.share:.1%})"
    return [*lines, Text.assemble(mark, f"{share} by {report.pool} seed traces")]


def _named(report: SmokeReport) -> Sequence[tuple[str, tuple[str, ...]]]:
    return (
        ("redundant, one at a time", report.redundant_oracles),
        ("oracles that kill no mutant", report.without_kill),
        ("survivors", report.survivors),
    )
