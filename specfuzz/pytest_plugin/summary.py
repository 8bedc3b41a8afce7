"""The lines at the end of a session: what ran, what was judged, what never was, what broke."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from specfuzz.suite.totals import Totals

_WIDTH = 80
#: A small suite leaves most oracles without anything to judge; all of their names would be a page that nobody reads.
_MOST_NAMES = 12


def summary_lines(totals: Totals, seed: int, *, every: bool = False) -> Iterator[str]:
    """Plain lines of at most 80 characters, unless a path is longer. every: name all that was not exercised."""
    parts = [
        _counted(totals.tests, "test"), _counted(totals.traces, "corpus trace"), _counted(totals.examples, "example"),
        _counted(totals.events, "event"), _counted(totals.replayed, "stored failure") + " replayed",
    ]  # fmt: skip
    yield from _wrapped(f"seed {seed}: {', '.join(part for part in parts if not part.startswith('0 '))}")
    used = sorted((count, name) for name, count in totals.applied.items() if count)
    if used:
        least = ", ".join(f"{name} {count}" for count, name in used[:3])
        yield from _wrapped(f"{_counted(len(used), 'oracle')} applied; least: {least}")
    if totals.applied:
        yield from _wrapped(f"not exercised: {_named(totals.not_exercised, every)}")
    yield f"{_counted(len(totals.violations), 'violation')}" + (":" if totals.violations else "")
    for line in totals.violations:
        yield f"  {line}"
    for word, lines in (("known", totals.known), ("left out", totals.left_out), ("problem", totals.problems)):
        for line in lines:
            yield from _wrapped(f"{word}: {line}")


def _named(names: Sequence[str], every: bool) -> str:
    left = 0 if every else max(0, len(names) - _MOST_NAMES)
    more = f" and {left} more, which -v lists" if left else ""
    return ", ".join(names[: len(names) - left]) + more or "none"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(
        line, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
