"""A failure as text, always in the same order, so that the eye learns where to look.

oracle [clock, owner, phase] · formula with the values · the two facts that clash · the smallest event list · the three
clocks by event · how to replay · source
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rich.text import Text

from specfuzz.core.event import Event
from specfuzz.core.notation import format_events
from specfuzz.core.verdict import Violation
from specfuzz.errors import EngineFault
from specfuzz.report.clocks import render_clocks
from specfuzz.report.explain import ClockTable

#: Width of the words at the left margin.
_MARGIN = 11


def render_failure(
    violation: Violation,
    events: Sequence[Event],
    *,
    table: ClockTable | None = None,
    replay: Iterable[str] = (),
    known: str | None = None,
    others: Sequence[str] = (),
    width: int = 80,
) -> list[Text]:
    """Lines of the report. replay: commands that show it again, never wrapped. known: reason from the baseline file.

    others: titles of what the same event violated besides.
    """
    lines = [Text.assemble(("VIOLATED ", "bold red"), (violation.title, "bold"))]
    if known is not None:
        lines += _field("known", known, width)
    lines += _field("formula", violation.formula, width)
    lines += _field("values", violation.values, width)
    lines += _field("fact", violation.fact, width)
    lines += _field("but", violation.counterfact, width)
    lines += [*_tail(events, violation.source, table, replay, width)]
    return [*lines, *(_field("also", "; ".join(others), width) if others else [])]


def render_fault(
    fault: EngineFault | str,
    events: Sequence[Event],
    *,
    table: ClockTable | None = None,
    replay: Iterable[str] = (),
    known: str | None = None,
    width: int = 80,
) -> list[Text]:
    """Lines for an engine that raised, hung or died: a finding, but not one that an oracle made."""
    kind = fault.kind if isinstance(fault, EngineFault) else "exception"
    lines = [Text.assemble(("VIOLATED ", "bold red"), (f"engine-fault [{kind}]", "bold"))]
    lines += _field("known", known or "", width)
    lines += _field("fact", str(fault), width)
    return [*lines, *_tail(events, "", table, replay, width)]


def _tail(
    events: Sequence[Event], source: str, table: ClockTable | None, replay: Iterable[str], width: int
) -> list[Text]:
    lines = _field(f"{len(events)} event" + ("s" if len(events) != 1 else ""), format_events(events), width)
    if table is not None and table.events:
        lines += [Text(), *render_clocks(table, width), Text()]
    for command in replay:
        lines.append(Text.assemble(("replay".ljust(_MARGIN), "bold"), command))
    return [*lines, *_field("source", source, width)]


def _field(word: str, value: str, width: int) -> list[Text]:
    """`word  value` with a hanging indent; nothing for an empty value."""
    if not value.strip():
        return []
    room = max(width - _MARGIN, 20)
    value = "".join(c if c.isprintable() else " " for c in value)  # an engine's words may hold anything
    pieces = textwrap.wrap(value, room, break_on_hyphens=False, break_long_words=False)
    return [
        Text.assemble((word.ljust(_MARGIN) if not at else " " * _MARGIN, "bold"), piece)
        for at, piece in enumerate(pieces)
    ]


def plain(lines: Iterable[Text]) -> str:
    """The lines without colour, for files, tests and pipes."""
    return "\n".join(line.plain.rstrip() for line in lines)
