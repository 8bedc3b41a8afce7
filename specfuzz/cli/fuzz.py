"""`specfuzz fuzz`: events chosen by Hypothesis over a cover of configurations, every step judged, findings shrunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from specfuzz.campaign.baseline import load_baseline
from specfuzz.cli.campaigns import Errand, run, sayable
from specfuzz.cli.engines import changes_of, options_of, oracles_of, seed_of
from specfuzz.cli.findings import show_found
from specfuzz.cli.flags import ENGINE, OPENING, Flags, names_of, with_flags
from specfuzz.cli.interrupts import interrupted_status
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, Outcome
from specfuzz.cli.tables import columns, paragraph, report_width
from specfuzz.core.trace import Trace
from specfuzz.errors import EngineFault, SpecfuzzError, StoreError, TraceError

if TYPE_CHECKING:
    from specfuzz.campaign.covers import Factors
    from specfuzz.campaign.fuzz import FuzzReport

#: Where findings go unless `--corpus` says otherwise; kept out of version control.
FINDINGS = "findings"

#: Pools that hold every row at its longest.
_ROOMY = ("ample", "rows")


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
    from specfuzz.campaign.covers import covering_configs
    from specfuzz.reference.algorithms import ALGORITHMS
    from specfuzz.state_machine.profiles import profile_of

    baseline, options, oracles = load_baseline(flags.baseline), options_of(flags), oracles_of(flags)
    writable(corpus)
    system, seed = flags.system or "reference", seed_of(flags)
    fixed = changes_of(flags)
    factors = _factors(system, fixed)
    for algorithm in [fixed["algorithm"]] if "algorithm" in fixed else ALGORITHMS.names():
        covering_configs(replace(factors, algorithms=(algorithm,)))  # ConfigError rather than silence about one
    configs = covering_configs(factors)
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
    error: SpecfuzzError | None = sayable(report.error)
    stored = []
    for finding in report.findings:  # all of them, before anything else can go wrong
        trace = replace(finding.trace, system=system)
        path, unwritable = kept(trace, corpus)
        stored.append((finding, trace, path))
        error = error or unwritable
    for finding, trace, path in stored:
        known = baseline.reason(finding.identity, system, report.version)
        fault = None if finding.fault is None else EngineFault(finding.fault, kind=finding.identity.phase)
        shown = show_found(trace, system, options, oracles, violations=finding.violations, fault=fault)
        lines += [*shown.lines(path=path, known=known), Text()]
        entries.append(shown.entry(path=path, known=known))
    verdict, status = _verdict(report, any(entry["baseline"] is None for entry in entries), names_of(flags.oracles))
    return Outcome(
        verdict=verdict, status=error.exit_status if error else interrupted_status() or status, seed=seed,
        violations=entries, more=_keys(report), lines=[*lines, *_summary(report, verdict, seed)], error=error,
    )  # fmt: skip


def _factors(system: str, fixed: Mapping[str, Any]) -> Factors:
    """What a campaign on this system varies.

    SGLang 0.5.23 launches the next chunk of a prompt even where running rows have reserved the last page, and fails in
    its allocation; and it samples a constrained tail of a mixed step, and the chunk of a resumed constrained request,
    under the mask of another state. All are known (docs/sglang-0.5.23.md) and kept apart, or each such run would end
    there: where prompts come in chunks, the pool holds every row at its longest; mixed steps and chunks carry nothing
    constrained. Who asks for two such fields sees what they do together.
    """
    from specfuzz.campaign.covers import Factors
    from specfuzz.reference.algorithms import ALGORITHMS

    factors = Factors(algorithms=ALGORITHMS.names(), fixed=fixed)
    if "sglang" not in system:
        return factors
    apart: list[tuple[tuple[str, Any], ...]] = [
        (("mixed_chunk", True), ("grammar", True)), (("chunked_prefill", True), ("grammar", True)),
    ]  # fmt: skip
    if fixed.get("mixed_chunk", False) or fixed.get("chunked_prefill", False):
        factors = replace(factors, grammar=(False,))
    if fixed.get("grammar", False):
        factors = replace(factors, mixed_chunk=(False,), chunked_prefill=(False,))
    if fixed.get("chunked_prefill", False):
        factors = replace(factors, pools=_ROOMY)
    else:
        apart += [(("pool", pool), ("chunked_prefill", True)) for pool in factors.pools if pool not in _ROOMY]
    return replace(factors, apart=tuple(apart))


def writable(corpus: str | None) -> None:
    """Raise StoreError before anything has been found, if the folder that was asked for can't be written."""
    from specfuzz.trace.store import CorpusStore

    if corpus is None:
        return
    if not corpus:
        raise StoreError("the corpus can't be written: its folder has no name.")
    CorpusStore(corpus).check_writable()


def kept(trace: Trace, corpus: str | None) -> tuple[str | None, StoreError | None]:
    """Save the trace; (path, None) or (where it is instead, why). Where nobody asked for a folder, none is no error.

    A corpus keeps the shortest trace of a bug; among the findings every one has its own file, so that what is printed
    is what is replayed.
    """
    from specfuzz.trace.store import CorpusStore, save

    if not trace.steps or trace.expected is None:
        return None, None  # the engine failed before the first event
    unwritable: StoreError | None = None
    try:
        if corpus is not None:
            return str(CorpusStore(corpus).add(trace).path), None
    except StoreError as error:  # it could be written when the campaign began
        unwritable = error
    except TraceError as error:  # the finding is printed all the same
        return None, StoreError(str(error))
    try:
        return str(save(trace, CorpusStore(FINDINGS).path_of(trace, trace.expected))), unwritable
    except StoreError:
        return None, unwritable
    except TraceError as error:
        return None, StoreError(str(error))


def _verdict(report: FuzzReport, violated: bool, asked: tuple[str, ...]) -> tuple[str, int]:
    if violated:
        return "violated", FOUND
    if report.interrupted or report.examples == 0 or any(name in report.not_exercised for name in asked):
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
        "interrupted": report.interrupted,
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
    if report.interrupted:
        lines.append("interrupted: this is what was found until then")
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
