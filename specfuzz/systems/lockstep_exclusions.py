"""What lockstep does not compare, and why: the only place where a known difference of two systems may be written down.

An excluded cell is counted under `excluded`, never under `compared`. An entry needs a reason that a reader can check in
the engine's source; a divergence that nobody has explained yet is no reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusion:
    """One field that is not compared in some situation.

    field: as in the printed counts, e.g. `req.holds_lock`. when: the situation, from the configuration and the event.
    systems: names between which it applies, as a prefix each (`sglang` also means `sglang:…`). reason: with its source.
    """

    field: str
    when: Callable[[EngineConfig, Event], bool]
    reason: str
    systems: tuple[str, str] = ("", "")

    def applies(self, a: str, b: str) -> bool:
        """Whether it is about this pair of systems, in either order."""
        first, second = self.systems
        return (a.startswith(first) and b.startswith(second)) or (a.startswith(second) and b.startswith(first))


#: Empty is the goal: today nothing is excluded.
EXCLUSIONS: tuple[Exclusion, ...] = ()
