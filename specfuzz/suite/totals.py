"""What the tests of one session came to, as plain data that crosses process boundaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specfuzz.core.judge import Tally


@dataclass(slots=True, kw_only=True)
class Totals:
    """Counts of a session; those of several processes can be added up.

    tests: machines and scenarios; traces: corpus files; replayed: stored failures that a machine ran first. applied: by
    oracle, with 0 for those that were asked and never had anything to judge. left_out: configurations that a system
    refuses. problems: what could not be read or written. These, violations and known: one line each.
    """

    tests: int = 0
    traces: int = 0
    examples: int = 0
    events: int = 0
    replayed: int = 0
    applied: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def not_exercised(self) -> tuple[str, ...]:
        """Oracles that were asked and never said anything."""
        return tuple(sorted(name for name, count in self.applied.items() if not count))

    @property
    def is_empty(self) -> bool:
        """Whether nothing of ours ran."""
        return not (self.tests or self.traces or self.problems)

    def count(self, applied: Mapping[str, int]) -> None:
        """Add what oracles said; a name with 0 is remembered."""
        for name, times in applied.items():
            self.applied[name] += times

    def plain(self) -> dict[str, Any]:
        """Built-in types only."""
        return {**asdict(self), "applied": dict(self.applied)}

    def add(self, plain: Mapping[str, Any]) -> None:
        """Add what another process sent."""
        for name in ("tests", "traces", "examples", "events", "replayed"):
            setattr(self, name, getattr(self, name) + int(plain[name]))
        self.count(plain["applied"])
        for name in ("violations", "known", "left_out", "problems"):
            getattr(self, name).extend(plain[name])


def applied_of(tally: Tally) -> dict[str, int]:
    """How often each oracle said something."""
    return {name: count.applied for name, count in tally.oracles.items()}


#: Where `specfuzz.run` counts; whoever runs a session sets it.
CURRENT: ContextVar[Totals | None] = ContextVar("specfuzz_totals", default=None)
