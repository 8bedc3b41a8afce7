"""The clock table as text: one block per request, width-safe, the first bad cell marked with and without colour."""

from __future__ import annotations

import textwrap
from itertools import groupby

from rich.text import Text

from specfuzz.report.explain import Block, ClockTable, Column, Place

#: Narrowest column for the events; below it the terminal wraps.
LEAST_EVENT = 12
#: Widest event in the table; the whole list stands above it.
MOST_EVENT = 34
_GROUP = " | "
_CLOCK_STYLE = {"host": "cyan", "relay": "magenta", "device": "green"}


def render_clocks(table: ClockTable, width: int = 80) -> list[Text]:
    """Lines of the table, none longer than `width` as long as the blocks fit."""
    lines: list[Text] = []
    for block in table.blocks:
        lines += [*_render_block(table, block, width), Text()]
    return [*lines, *_legend(table, width)]


def _cell(table: ClockTable, block: Block, row: int, at: int) -> str:
    text = block.cells[row][at]
    place = Place(row=row, subject=block.subject, header=block.columns[at].header)
    if place == table.first_bad:
        return f">{text}<"
    return f"{text}!" if place == table.noticed else text


def _render_block(table: ClockTable, block: Block, width: int) -> list[Text]:
    rows = range(len(table.events))
    cells = [[_cell(table, block, row, at) for at in range(len(block.columns))] for row in rows]
    widths = [
        max(len(column.header), *(len(line[at]) for line in cells), 0) if cells else len(column.header)
        for at, column in enumerate(block.columns)
    ]
    clocks = [list(group) for _, group in groupby(range(len(block.columns)), key=lambda at: block.columns[at].clock)]
    spans = [sum(widths[at] for at in group) + len(group) - 1 for group in clocks]
    number = len(str(max(len(table.events) - 1, 0)))
    longest = max((len(event) for event in table.events), default=LEAST_EVENT)
    left = width - (number + 1) - sum(spans) - len(_GROUP) * len(spans)
    phases = [str(table.phases[row].get(block.subject, "")) for row in rows]
    phase_width = max((len(phase) for phase in phases), default=0)
    shows_phase = phase_width > 0 and left - phase_width - 1 >= min(longest, MOST_EVENT)
    event_width = max(LEAST_EVENT, min(longest, MOST_EVENT, left - (phase_width + 1 if shows_phase else 0)))

    def lead(row: int | None) -> str:
        if row is None:
            text = " " * (number + 1) + " " * event_width
            return text + (" " + "phase".ljust(phase_width) if shows_phase else "")
        event = table.events[row]
        short = event if len(event) <= event_width else event[: event_width - 3] + "..."
        text = f"{row:>{number}} {short.ljust(event_width)}"
        return text + (" " + phases[row].ljust(phase_width) if shows_phase else "")

    subject = "the pool" if block.subject == "pool" else f"request {block.subject}"
    title = Text(subject.ljust(len(lead(None))))
    for group, span in zip(clocks, spans, strict=True):
        clock = str(block.columns[group[0]].clock)
        title.append(_GROUP).append(clock.center(span), style=f"bold {_CLOCK_STYLE[clock]}")
    head = Text(lead(None))
    for group in clocks:
        head.append(_GROUP).append(" ".join(block.columns[at].header.rjust(widths[at]) for at in group), style="dim")
    lines = [title, head]
    for row in rows:
        skipped = row in table.skipped
        line = Text(lead(row), style="dim" if skipped else "")
        for group in clocks:
            line.append(_GROUP)
            for place, at in enumerate(group):
                line.append(" " if place else "")
                line.append(cells[row][at].rjust(widths[at]), style=_style(table, block, row, at))
        if skipped:
            line = Text(lead(row).rstrip() + "   (not applied)", style="dim")
        lines.append(line)
    for line in lines:
        line.rstrip()
    return lines


def _style(table: ClockTable, block: Block, row: int, at: int) -> str:
    place = Place(row=row, subject=block.subject, header=block.columns[at].header)
    if place == table.first_bad:
        return "bold white on red"
    if place == table.noticed:
        return "bold red"
    changed = row > 0 and block.cells[row][at] != block.cells[row - 1][at]
    return _CLOCK_STYLE[str(block.columns[at].clock)] if changed else "dim"


def _legend(table: ClockTable, width: int) -> list[Text]:
    lines: list[Text] = []
    bad, noticed = table.first_bad, table.noticed
    if bad is not None:
        name = _name(table, bad)
        where = f"event {bad.row} `{table.events[bad.row]}`, {bad.subject}, {name}"
        if table.began is not None:
            lines.append(Text(f">first bad cell<: {where}: {table.clean} has {table.expected} there", style="red"))
            if noticed is not None and noticed != bad:
                seen = f"event {noticed.row} `{table.events[noticed.row]}`, {noticed.subject}, {_name(table, noticed)}"
                lines.append(Text(f"noticed!: {seen}"))
        else:
            lines.append(Text(f">first bad cell<: {where}", style="red"))
    for line in _glossary(table):
        lines.append(Text(line, style="dim"))
    return [piece for line in lines for piece in _wrapped(line, width)]


def _column(table: ClockTable, place: Place) -> Column | None:
    columns = (c for block in table.blocks if block.subject == place.subject for c in block.columns)
    return next((column for column in columns if column.header == place.header), None)


def _name(table: ClockTable, place: Place) -> str:
    column = _column(table, place)
    return place.header if column is None else f"{column.clock} {column.name}"


def _glossary(table: ClockTable) -> list[str]:
    columns = list(dict.fromkeys(column for block in table.blocks for column in block.columns))
    return [
        f"{clock}: " + ", ".join(f"{c.header} = {c.name}" for c in group if c.header not in c.name.split())
        for clock, group in ((k, list(g)) for k, g in groupby(columns, key=lambda column: column.clock))
        if any(c.header not in c.name.split() for c in group)
    ]


def _wrapped(line: Text, width: int) -> list[Text]:
    pieces = textwrap.wrap(line.plain, max(width, 20), subsequent_indent="  ", break_on_hyphens=False)
    return [Text(piece, style=line.style) for piece in pieces]
