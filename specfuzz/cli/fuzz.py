"""`specfuzz fuzz`: events chosen by Hypothesis over a cover of configurations, every step judged, findings shrunk."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from specfuzz.cli.baseline import load_baseline
from specfuzz.cli.campaigns import Errand, run
from specfuzz.cli.engines import changes_of, opened, options_of, oracles_of, seed_of
from specfuzz.cli.findings import show
from specfuzz.cli.flags import ENGINE, OPENING, Flags, names_of, with_flags
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, WRONG_USE, Outcome
from specfuzz.cli.tables import columns, paragraph, report_width
from specfuzz.core.trace import Trace
from specfuzz.errors import StoreError, TraceError

if TYPE_CHECKING:
    from specfuzz.campaign.fuzz import FuzzReport

#: Where findings go unless `--corpus` says otherwise; kept out of version control.
FINDINGS = "findings"


@click.command("fuzz")
@click.option("--corpus", metavar="DIR", help=f"Where shrunk traces of findings go.  [default: {FINDINGS}]")
@click.option(
    "--profile", type=click.Choice(["dev", "ci", "nightly"]), default="dev", show_default=True, help="How wild."
)
@with_flags("seed", "max_examples", "max_time", "jobs", "json", *OPENING, *ENGINE, "oracles", "baseline")
def command(flags: Flags, corpus: str | None, profile: str) -> Outcome:
    """Fuzz a system over a pairwise cover of configurations; flags and --config fix fields, what is left open varies.

    Exit status 0 if all holds, 1 if something is violated, 3 if an oracle of --oracles never applied or no example
    ended. Without --max-examples and --max-time the profile says how many examples are run.
    """
    from specfuzz.campaign.covers import Factors, covering_configs
    from specfuzz.reference.algorithms import ALGORITHMS
    from specfuzz.state_machine.profiles import profile_of

    baseline, options, oracles = load_baseline(flags.baseline), options_of(flags), oracles_of(flags)
    writable(corpus)
    system, seed = flags.system or "reference", seed_of(flags)
    fixed = changes_of(flags)
    for algorithm in [fixed["algorithm"]] if "algorithm" in fixed else ALGORITHMS.names():
        covering_configs(Factors(algorithms=(algorithm,), fixed=fixed))  # ConfigError rather than silence about one
    configs = covering_configs(Factors(algorithms=ALGORITHMS.names(), fixed=fixed))
    bounded = flags.max_examples is not None or flags.max_time is not None
    report = run(
        Errand(
            system=system, options=options, configs=configs, oracles=tuple(oracle.name for oracle in oracles),
            max_examples=flags.max_examples if bounded else profile_of(profile).max_examples, max_time=flags.max_time,
            profile=profile, seed=seed,
        ),
        flags.jobs,
    )  # fmt: skip
    lines: list[Text | str] = []
    entries: list[dict[str, Any]] = []
    error: StoreError | None = None
    for finding in report.findings:
        trace = replace(finding.trace, system=system)
        known = baseline.reason(finding.identity, system, report.version)
        path, unwritable = kept(trace, corpus)
        error = error or unwritable
        with opened(system, options) as fresh:
            shown = show(trace, fresh, system, options, oracles)
        if shown.identity is None:
            what = finding.violations[0].title if finding.violations else f"engine-fault: {finding.fault}"
            lines += [
                f"VIOLATED {what}",
                "           it did not come about again in a fresh engine: not deterministic",
                "",
            ]
            entries.append(_bare_entry(finding.identity, trace, path, known))
            continue
        lines += [*shown.lines(path=path, known=known), Text()]
        entries.append(shown.entry(path=path, known=known))
    fresh_findings = [entry for entry in entries if entry["baseline"] is None]
    verdict, status = _verdict(report, bool(fresh_findings), names_of(flags.oracles))
    return Outcome(
        verdict=verdict, status=WRONG_USE if error else status, seed=seed, violations=entries, more=_keys(report),
        lines=[*lines, *_summary(report, verdict, seed)], error=error,
    )  # fmt: skip


def writable(corpus: str | None) -> None:
    """Raise StoreError before anything has been found, if the folder that was asked for can't be written."""
    if corpus is None:
        return
    if not corpus:
        raise StoreError("the corpus can't be written: its folder has no name.")
    place = Path(corpus).absolute()
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
    except OSError as error:
        raise StoreError(f"the corpus can't be written: {error.strerror or error}.") from None
    if not place.is_dir():
        raise StoreError(f"the corpus `{corpus}` can't be written: `{place}` is not a folder.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise StoreError(f"the corpus `{corpus}` can't be written: no permission for `{place}`.")


def kept(trace: Trace, corpus: str | None) -> tuple[str | None, StoreError | None]:
    """Save the trace; (path, None) or (None, why not). Where nobody asked for a folder, failing to save is no error.

    A corpus keeps the shortest trace of a bug; among the findings every one has its own file, so that what is printed
    is what is replayed.
    """
    from specfuzz.trace.store import CorpusStore, save

    if not trace.steps or trace.expected is None:
        return None, None  # the engine failed before the first event
    try:
        if corpus is not None:
            return str(CorpusStore(corpus).add(trace).path), None
        return str(save(trace, CorpusStore(FINDINGS).path_of(trace, trace.expected))), None
    except StoreError as unwritable:
        return None, unwritable if corpus is not None else None
    except TraceError as unreadable:  # the finding is printed all the same
        return None, StoreError(str(unreadable))


def _bare_entry(identity: Any, trace: Trace, path: str | None, known: str | None) -> dict[str, Any]:
    from specfuzz.core.notation import format_events

    return {
        "oracle": identity.oracle, "owner": identity.owner, "clock": None, "phase": identity.phase,
        "events": len(trace.steps), "notation": format_events(trace.events), "trace": path, "baseline": known,
    }  # fmt: skip


def _verdict(report: FuzzReport, violated: bool, asked: tuple[str, ...]) -> tuple[str, int]:
    if violated:
        return "violated", FOUND
    if report.examples == 0 or any(name in report.not_exercised for name in asked):
        return "unknown", CANT_SAY
    return "holds", FINE


def _keys(report: FuzzReport) -> dict[str, Any]:
    return {
        "system": report.system, "algorithms": list(report.algorithms), "configs": len(report.configs),
        "examples": report.examples, "events": report.events, "skipped": report.skipped,
        "events_per_second": round(report.events_per_second, 1),
        "oracles": {name: dict(count) for name, count in report.oracles.items()},
        "reached": dict(report.reached), "not_exercised": list(report.not_exercised),
        "lazy_share": round(report.lazy_share, 4), "compared": dict(report.compared),
        "refused": [{"config": config.label(), "because": because} for config, because in report.refused],
    }  # fmt: skip


def _summary(report: FuzzReport, verdict: str, seed: int) -> list[Text | str]:
    style = {"holds": "bold green", "violated": "bold red"}.get(verdict, "bold yellow")
    applied = sorted((count.get("applied", 0), name) for name, count in report.oracles.items())
    lines: list[Text | str] = [
        Text.assemble((f"{verdict.upper()} ", style), f"{report.system}, seed {seed}: {report.examples} examples, "
                      f"{report.events} events, {report.events_per_second:.0f} events/s"),
        f"{', '.join(report.algorithms)} over {len(report.configs)} configurations; device work pending at a host "
        f"event in {report.lazy_share:.0%} of the examples",
    ]  # fmt: skip
    if applied:
        least = ", ".join(f"{name} {count}" for count, name in applied[:3])
        lines.append(f"{len(applied)} oracles; least applied: {least}")
    unreached = [name for name, count in report.reached.items() if not count]
    for word, names in (("not exercised", report.not_exercised), ("not reached", unreached)):
        if names:
            lines.append(f"{word}: {', '.join(names)}")
    for config, because in report.refused[:3]:
        lines.append(f"left out {config.label()}: {because}")
    wrapped: list[Text | str] = [
        lines[0],
        *(piece for line in lines[1:] for piece in paragraph(str(line), report_width())),
    ]
    if report.compared:
        wrapped += ["", *columns(("compared field", "cells"), sorted(report.compared.items()))]
    return wrapped
