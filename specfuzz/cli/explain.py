"""`specfuzz explain`: the three clocks of a trace, event by event, with the first bad cell marked."""

from __future__ import annotations

import click
from rich.text import Text

from specfuzz.cli.engines import opened, options_of, oracles_of
from specfuzz.cli.findings import show
from specfuzz.cli.flags import ENGINE, OPENING, Flags, with_flags
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, Outcome
from specfuzz.cli.targets import read_target
from specfuzz.report.explain import ClockTable, Place


@click.command("explain")
@click.argument("target", metavar="FILE|NOTATION")
@with_flags("json", *OPENING, *ENGINE, "oracles", "seed")
def command(flags: Flags, target: str) -> Outcome:
    """Show what host, relay and device said after every event of a trace file or of a line of events.

    \b
    The notation, one word per event:
      submit(RID,PROMPT,MAX_NEW[,SHARED][,grammar=N])  prefill(RID[,N])
      mix(RID[,N])  prepare  verify[(RID=ACCEPTED,...)]  publish
      advance(STREAM[,COUNT])  settle  finish(RID@INDEX)  abort(RID)
      retract(RID)  evict(N)  idle
    mix needs --config mixed_chunk=true, the N of prefill and mix
    chunked_prefill=true; grammar (at most MAX_NEW tokens, the stop token
    last) needs grammar=true.

    Where the system has a planted bug, the same events run on its clean twin too, and the first cell that differs is
    the first bad one. Exit status 0 if nothing is violated, 1 if something is, 3 if no event was legal.
    """
    wanted = read_target(target, flags)
    options, oracles = options_of(flags), oracles_of(flags)
    with opened(wanted.system, options) as system:
        shown = show(wanted.trace, system, wanted.system, options, oracles)
    lines: list[Text | str] = [*shown.lines(path=wanted.path)]
    entries = [] if shown.identity is None else [shown.entry(path=wanted.path)]
    applied = len(shown.recording.applied)
    if entries:
        verdict, status = "violated", FOUND
    elif applied:
        verdict, status = "holds", FINE
        lines.append(Text.assemble(("HOLDS ", "bold green"), f"{wanted.name} on {wanted.system}"))
    else:
        verdict, status = "unknown", CANT_SAY
        lines.append(Text.assemble(("UNKNOWN ", "bold yellow"), f"no event of {wanted.name} was legal"))
    more = {"system": wanted.system, "events": applied, "clocks": clocks_object(shown.table)}
    return Outcome(verdict=verdict, status=status, seed=flags.seed, violations=entries, lines=lines, more=more)


def clocks_object(table: ClockTable) -> dict[str, object]:
    """The table as JSON: rows by event, cells as the terminal shows them, the first bad cell by its place."""
    blocks = [
        {
            "subject": block.subject,
            "columns": [{"header": c.header, "clock": str(c.clock), "name": c.name} for c in block.columns],
            "cells": [list(row) for row in block.cells],
        }
        for block in table.blocks
    ]
    return {
        "events": list(table.events), "blocks": blocks, "first_bad": _place(table.first_bad),
        "noticed": _place(table.noticed),
        "expected": table.expected or None, "clean": table.clean or None,
    }  # fmt: skip


def _place(place: Place | None) -> dict[str, object] | None:
    return None if place is None else {"row": place.row, "subject": place.subject, "column": place.header}
