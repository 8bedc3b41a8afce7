"""`specfuzz explain`: the three clocks of a trace, event by event, with the first bad cell marked."""

from __future__ import annotations

import sys

import click
from rich.text import Text

from specfuzz.cli.engines import opened, options_of, oracles_of
from specfuzz.cli.findings import commands_of, fault_entry, record_clean, violation_entry
from specfuzz.cli.flags import ENGINE, OPENING, Flags, with_flags
from specfuzz.cli.outcome import FINE, FOUND, Outcome
from specfuzz.cli.targets import read_target
from specfuzz.report.clocks import render_clocks
from specfuzz.report.console import width_of
from specfuzz.report.explain import ClockTable, Place, clock_table
from specfuzz.report.recording import record
from specfuzz.report.text import render_failure, render_fault


@click.command("explain")
@click.argument("target", metavar="FILE|NOTATION")
@with_flags("json", *OPENING, *ENGINE, "oracles", "seed")
def command(flags: Flags, target: str) -> Outcome:
    """Show what host, relay and device said after every event of a trace file or of a line of events.

    \b
    The notation, one word per event:
      submit(RID,PROMPT,MAX_NEW[,SHARED])  prefill(RID[,N])  mix(RID[,N])  prepare
      verify[(RID=ACCEPTED,...)]  publish  advance(STREAM[,COUNT])  settle
      finish(RID@INDEX)  abort(RID)  retract(RID)  evict(N)  idle

    Where the system has a planted bug, the same events run on its clean twin too, and the first cell that differs is
    the first bad one. Exit status 0 if nothing is violated, else 1.
    """
    wanted = read_target(target, flags)
    options, oracles = options_of(flags), oracles_of(flags)
    with opened(wanted.system, options) as system:
        recording = record(system, wanted.trace.config, wanted.trace.events, oracles)
    found = next((v for v in recording.violations if v.identity == wanted.trace.expected), None)
    found = found or (recording.violations[0] if recording.violations else None)
    table = clock_table(recording, clean=record_clean(wanted.system, wanted.trace, options), violation=found)
    width = width_of(sys.__stdout__ or sys.stdout)
    replay = commands_of(wanted.trace, wanted.system, wanted.path)
    lines: list[Text | str]
    if found is not None:
        lines = [*render_failure(found, recording.events, table=table, replay=replay, width=width)]
    elif recording.fault is not None:
        lines = [*render_fault(recording.fault, recording.events, table=table, replay=replay, width=width)]
    else:
        lines = [
            *render_clocks(table, width),
            Text.assemble(("HOLDS ", "bold green"), f"{wanted.name} on {wanted.system}"),
        ]
    entries = [violation_entry(v, wanted.trace, path=wanted.path) for v in recording.violations]
    if recording.fault is not None:
        entries.append(fault_entry(recording.fault, wanted.trace, path=wanted.path))
    more = {"system": wanted.system, "events": len(recording.applied), "clocks": clocks_object(table)}
    return Outcome(
        verdict="violated" if entries else "holds", status=FOUND if entries else FINE, seed=flags.seed,
        violations=entries, more=more, lines=lines,
    )  # fmt: skip


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
