"""Plain tables and declarations for listings: aligned, wrapped to the width, readable without colour."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich.text import Text

from specfuzz.report.console import width_of

#: The last column gets at least this much before the table grows beyond the width.
_LEAST_LAST = 24


def columns(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> list[Text]:
    """Left-aligned columns (numbers right-aligned); the last one is wrapped to what the width leaves."""
    table = [[_word(value) for value in row] for row in rows]
    raw = [list(row) for row in table]
    numeric = [bool(raw) and all(_is_number(row[at]) for row in raw) for at in range(len(headers))]
    widths = [
        max(len(header), *(len(row[at]) for row in table)) if table else len(header)
        for at, header in enumerate(headers)
    ]
    total = report_width()
    room = max(total - sum(widths[:-1]) - 2 * (len(headers) - 1), min(_LEAST_LAST, widths[-1]))
    lines = [
        Text("  ".join(_fit(h, w, n) for h, w, n in zip(headers, widths, numeric, strict=True)).rstrip(), style="bold")
    ]
    for row in table:
        pieces = textwrap.wrap(row[-1], room, break_on_hyphens=False, break_long_words=False) or [""]
        last = row[-1].rjust(widths[-1]) if numeric[-1] else pieces[0]
        head = "  ".join(_fit(c, w, n) for c, w, n in zip(row[:-1], widths[:-1], numeric[:-1], strict=True))
        lines.append(Text((head + "  " + last if len(headers) > 1 else last).rstrip()))
        indent = " " * (sum(widths[:-1]) + 2 * (len(headers) - 1))
        lines += [Text(indent + piece) for piece in pieces[1:] if not numeric[-1]]
    return lines


def declaration(fields: Mapping[str, object]) -> list[Text]:
    """One thing in full: its name, then field by field, then an empty line."""
    width = report_width()
    margin = max(len(name) for name in fields) + 2
    lines = [Text(str(fields["name"]), style="bold")]
    for name, value in fields.items():
        text = _word(value)
        if name == "name" or not text:
            continue
        pieces = textwrap.wrap(text, max(width - margin - 2, 20), break_on_hyphens=False)
        lines.append(Text("  " + name.ljust(margin) + pieces[0]))
        lines += [Text("  " + " " * margin + piece) for piece in pieces[1:]]
    return [*lines, Text()]


def _word(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).replace("-", "", 1).replace("e+", "", 1).isdigit()


def _fit(text: str, width: int, numeric: bool) -> str:
    return text.rjust(width) if numeric else text.ljust(width)


def paragraph(text: str, width: int) -> list[Text]:
    """Prose wrapped to the width, continued with an indent."""
    return [Text(piece) for piece in textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)]


def report_width() -> int:
    """Width of the report: stdout's, also while libraries are kept away from it."""
    return width_of(sys.__stdout__ or sys.stdout)
