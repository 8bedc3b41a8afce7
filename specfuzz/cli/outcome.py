"""What a verb returns: its verdict, its exit status, the keys of its JSON object and the lines of its report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.text import Text

#: Exit statuses; see the docstring of each verb for what it calls fine.
FINE, FOUND, WRONG_USE, CANT_SAY, MISSING = 0, 1, 2, 3, 4
INTERRUPTED, BROKEN_PIPE = 130, 141


@dataclass(kw_only=True)
class Outcome:
    """One verb's result. violations: JSON entries. more: the verb's own JSON keys. lines: the report for people.

    error: what went wrong beside it: a finding could not be kept, a campaign ended early. What was found stands in
    violations and lines all the same.
    """

    verdict: str
    status: int
    seed: int | None = None
    violations: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    lines: list[Text | str] = field(default_factory=list)
    error: Exception | None = None
