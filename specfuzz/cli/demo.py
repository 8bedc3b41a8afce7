"""`specfuzz demo`: find a planted bug, shrink it, show the three clocks, replay it; in some seconds, without a GPU."""

from __future__ import annotations

import time
from dataclasses import replace

import click
from rich.text import Text

from specfuzz.cli.engines import opened, options_of, oracles_of
from specfuzz.cli.findings import show
from specfuzz.cli.flags import Flags, with_flags
from specfuzz.cli.fuzz import kept
from specfuzz.cli.outcome import FINE, FOUND, Outcome
from specfuzz.cli.tables import paragraph, report_width

#: The default bug: it shows all three clocks, and needs a launch, a death and a late result to be seen.
MUTANT = "late-result-for-finished"
#: Fixed, so that everybody sees the same.
SEED = 1
#: Seconds for the search and, again, for the shrinker.
MAX_TIME = 8.0


@click.command("demo")
@click.option("--mutant", default=MUTANT, show_default=True, help="Which bug to plant; see `specfuzz mutants --list`.")
@with_flags("json", "seed", "max_time")
def command(flags: Flags, mutant: str) -> Outcome:
    """Plant a bug into the reference engine, find it, shrink it, show the three clocks and replay it.

    Exit status 0 if it was found, shrunk, and replayed with the same verdict.
    """
    from specfuzz.campaign.covers import Factors, covering_configs
    from specfuzz.campaign.fuzz import FuzzPlan, run_fuzz
    from specfuzz.mutants import MUTANTS
    from specfuzz.trace.replay import replay_trace
    from specfuzz.trace.shrink import shrink_trace

    planted = MUTANTS.get(mutant)
    spec, seed, limit = (
        f"mutated:{planted.name}",
        SEED if flags.seed is None else flags.seed,
        flags.max_time or MAX_TIME,
    )
    oracles, options = oracles_of(flags), options_of(flags)
    fixed = dict(planted.config)
    if planted.algorithm is not None:
        fixed["algorithm"] = planted.algorithm
    lines: list[Text | str] = [
        *paragraph(
            f"Planted into the reference engine: `{planted.name}` ({planted.source}). {planted.summary}", report_width()
        )
    ]
    with opened(spec, options) as system:
        configs = [
            config
            for config in covering_configs(Factors(algorithms=("EAGLE",), fixed=fixed))
            if planted.needs in system.capabilities(config)
        ]
        found = run_fuzz(
            FuzzPlan(
                system=system, configs=configs, oracles=oracles, seed=seed, max_examples=None, max_time=limit,
                stop_at_first=True,
            )
        )  # fmt: skip
        more: dict[str, object] = {"system": spec, "examples": found.examples, "events": found.events}
        if not found.findings:
            lines += ["", f"NOT FOUND in {found.examples} examples, {found.events} events; seed {seed}"]
            return Outcome(verdict="unknown", status=FOUND, seed=seed, lines=lines, more=more)
        before = found.findings[0].found
        deadline = time.monotonic() + limit
        trace, shrunk = shrink_trace(before, system, oracles, stop=lambda: time.monotonic() >= deadline)
        trace = replace(trace, system=spec, note=f"found by `specfuzz demo --seed {seed}`")
        path, _unwritable = kept(trace, None)
        shown = show(trace, system, spec, options, oracles)
        again = replay_trace(trace, system, oracles)
    with opened("reference", options) as clean:
        holds = replay_trace(trace, clean, oracles)
    good = again.got == trace.expected and holds.got is None and shown.identity is not None
    lines += [
        f"Found after {found.examples} examples, {found.events} events; shrunk from {shrunk.before} to "
        f"{len(trace.steps)} events.",
        "", *shown.lines(path=path), "",
        Text.assemble(("REPLAYED " if good else "NOT REPLAYED ", "bold green" if good else "bold red"),
                      f"again {again.got or 'holds'}; the same events on the clean reference: {holds.got or 'holds'}"),
    ]  # fmt: skip
    more |= {
        "before": shrunk.before, "after": len(trace.steps), "trace": path, "expected": str(trace.expected),
        "got": str(again.got), "clean": str(holds.got or "holds"), "digest": again.digest,
    }  # fmt: skip
    return Outcome(
        verdict="violated", status=FINE if good else FOUND, seed=seed, lines=lines, more=more,
        violations=[shown.entry(path=path)] if shown.identity else [],
    )  # fmt: skip
