"""What a conformance run says: clauses that passed or failed, and those that nobody could judge, each with a reason."""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.core.config import EngineConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One clause of the contract. because: what was looked at, or the first thing that breaks it."""

    name: str
    passed: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unjudged:
    """A clause that says nothing about this subject. because: the missing capability, or what ended the run before."""

    name: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """One subject. configs: those that were run; events: applied ones, over all runs."""

    subject: str
    version: str
    configs: tuple[EngineConfig, ...]
    clauses: tuple[Judged, ...]
    not_applicable: tuple[Unjudged, ...]
    events: int

    @property
    def passed(self) -> bool:
        """Whether at least one clause was judged and none failed."""
        return bool(self.clauses) and not self.broken

    @property
    def broken(self) -> tuple[Judged, ...]:
        """The clauses that failed."""
        return tuple(clause for clause in self.clauses if not clause.passed)

    def must_pass(self) -> None:
        """Raise AssertionError with one line per broken clause; for a test of one line."""
        if not self.passed:
            lines = [f"{clause.name}: {clause.because}" for clause in self.broken] or ["no clause could be judged"]
            raise AssertionError(f"{self.subject} breaks its contract\n" + "\n".join(lines))
