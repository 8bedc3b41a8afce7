"""`specfuzz shrink`: the smallest trace that still breaks the same rule, by the same owner, in the same phase."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from specfuzz.cli.engines import opened, options_of, oracles_of
from specfuzz.cli.findings import show
from specfuzz.cli.flags import ENGINE, OPENING, Flags, with_flags
from specfuzz.cli.interrupts import defer, interrupted_status, stop_asked
from specfuzz.cli.outcome import CANT_SAY, FINE, WRONG_USE, Outcome
from specfuzz.cli.targets import read_target
from specfuzz.errors import StoreError
from specfuzz.trace.shrink import shrink_trace
from specfuzz.trace.store import check_writable, save


@click.command("shrink")
@click.argument("target", metavar="FILE|NOTATION")
@click.option("--out", metavar="FILE", help="For the shrunk trace; default: beside FILE, with `.shrunk` in its name.")
@with_flags("json", "max_time", *OPENING, *ENGINE, "oracles", "seed")
def command(flags: Flags, target: str, out: str | None) -> Outcome:
    """Shrink a trace; its identity (oracle, owner, phase) stays what it is.

    Exit status 0 if the result is 1-minimal: no event can go and no argument can fall; 3 if --max-time ended first.
    """
    wanted = read_target(target, flags)
    trace = replace(wanted.trace, expected=None) if wanted.elsewhere else wanted.trace
    options, oracles = options_of(flags), oracles_of(flags)
    place = out if out is not None else _beside(wanted.path)
    if place is not None:
        check_writable(Path(place))
    deadline = None if flags.max_time is None else time.monotonic() + flags.max_time
    error: StoreError | None = None
    with opened(wanted.system, options) as system:
        defer()
        smaller, shrunk = shrink_trace(
            trace, system, oracles,
            stop=lambda: stop_asked() or (deadline is not None and time.monotonic() >= deadline),
        )  # fmt: skip
        smaller = replace(smaller, system=wanted.system)
        path: str | None = None
        try:
            path = None if place is None else str(save(smaller, place))
        except StoreError as unwritable:
            error = unwritable
        shown = show(smaller, system, wanted.system, options, oracles)
    ended = "an interrupt" if stop_asked() else "the time"
    state = "1-minimal" if shrunk.minimal else f"not minimal: {ended} ended it first"
    status = WRONG_USE if error else FINE if shrunk.minimal else interrupted_status() or CANT_SAY
    verdict_line = f"{shrunk.before} -> {len(smaller.steps)} events in {shrunk.tries} runs, {state}"
    more = {
        "system": wanted.system, "before": shrunk.before, "after": len(smaller.steps), "trace": path,
        "minimal": shrunk.minimal, "repeatable": shrunk.repeatable, "runs": shrunk.tries,
    }  # fmt: skip
    return Outcome(
        verdict="violated", status=status, seed=trace.seed,
        violations=[shown.entry(path=path)] if shown.identity else [], more=more, error=error,
        lines=[*shown.lines(path=path), "", verdict_line + ("" if path is None else f": {path}")],
    )  # fmt: skip


def _beside(path: str | None) -> str | None:
    if path is None:
        return None
    file = Path(path)
    return str(file.with_name(file.stem + ".shrunk.jsonl"))
