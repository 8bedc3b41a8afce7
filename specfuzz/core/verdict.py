"""The verdict lattice, findings of one oracle application, and violations with a designed identity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    """What a judgement says; `join` of many is the worst, in the order VIOLATED > UNKNOWN > HOLDS > NOT_APPLICABLE."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not-applicable"

    def join(self, other: Verdict) -> Verdict:  # type: ignore[override]  # of str, which nobody means here
        """The worse of the two; commutative, associative, with NOT_APPLICABLE as identity."""
        return self if _RANK[self] >= _RANK[other] else other


_RANK = {Verdict.NOT_APPLICABLE: 0, Verdict.HOLDS: 1, Verdict.UNKNOWN: 2, Verdict.VIOLATED: 3}


class Identity(NamedTuple):
    """What makes two violations the same bug; shrinking may not change it."""

    oracle: str
    owner: str
    phase: str

    def __str__(self) -> str:
        return f"{self.oracle}/{self.owner}/{self.phase}"


@dataclass(frozen=True, slots=True)
class Clash:
    """A rule is broken: the formula with its values, and the two facts that can't both be right.

    rid: the request that they speak about, where the rule itself is about a batch, a pool or a run.
    """

    values: str
    fact: str
    counterfact: str
    rid: str | None = None


#: What one application of an oracle returns: HOLDS, UNKNOWN, a Clash, or None where it doesn't apply.
Finding = Verdict | Clash | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One broken rule at one event of a trace.

    event_index: 0-based position among the applied events. rid: the request it speaks about, None if there is none.
    """

    oracle: str
    owner: str
    clock: str
    phase: str
    formula: str
    values: str
    fact: str
    counterfact: str
    source: str
    event_index: int
    rid: str | None = None

    @property
    def identity(self) -> Identity:
        """(oracle, owner, phase)."""
        return Identity(self.oracle, self.owner, self.phase)

    @property
    def title(self) -> str:
        """`oracle [clock, owner, phase]`, the first line of every report."""
        return f"{self.oracle} [{self.clock}, {self.owner}, {self.phase}]"
