"""What came of trying to kill mutants: by seed, by mutant, and of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from specfuzz.core.capability import Capability
from specfuzz.core.trace import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedKill:
    """One seed. by: named oracles that were violated; empty when it survived.

    found: the trace as generated; shrunk: None without a shrinker. first: index of the event at which each oracle of
    the plan is first violated on `found`. events, seconds: spent until then. other: identities, faults included, that
    ended examples on the way and are no kill.
    """

    seed: int
    by: tuple[str, ...]
    found: Trace | None
    shrunk: Trace | None
    first: Mapping[str, int]
    events: int
    seconds: float
    other: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        """Whether this seed killed it."""
        return bool(self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantReport:
    """One mutant over all seeds; keys of `mutants --json` in the same words."""

    name: str
    source: str
    needs: Capability
    seeds: tuple[SeedKill, ...]

    @property
    def killed(self) -> bool:
        """Whether every seed killed it."""
        return bool(self.seeds) and all(seed.killed for seed in self.seeds)

    @property
    def by(self) -> tuple[str, ...]:
        """Named oracles that killed it, over all seeds."""
        return tuple(dict.fromkeys(name for seed in self.seeds for name in seed.by))

    @property
    def seeds_found(self) -> int:
        """How many seeds killed it."""
        return sum(seed.killed for seed in self.seeds)

    @property
    def events_to_find(self) -> float | None:
        """Median over the seeds that killed it."""
        return _median(seed.events for seed in self.seeds if seed.killed)

    @property
    def seconds_to_find(self) -> float | None:
        """Median over the seeds that killed it."""
        return _median(seed.seconds for seed in self.seeds if seed.killed)

    @property
    def shrunk_events(self) -> float | None:
        """Median length of the shrunk traces."""
        return _median(len(seed.shrunk.steps) for seed in self.seeds if seed.shrunk is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KillReport:
    """All mutants. equivalent: (name, why), not tried and not counted.

    redundant_oracles: those that never were among the first to see a mutant: on each trace another one fires earlier,
    or they don't fire at all. Nothing would be caught later without any single one of them. interrupted, error: what
    ended it early; the last mutant may then have fewer seeds, and later ones are missing.
    """

    mutants: tuple[MutantReport, ...]
    equivalent: tuple[tuple[str, str], ...]
    redundant_oracles: tuple[str, ...]
    interrupted: bool = False
    error: Exception | None = None

    @property
    def killed(self) -> int:
        """Mutants that every seed killed."""
        return sum(mutant.killed for mutant in self.mutants)

    @property
    def total(self) -> int:
        """Mutants without the equivalent ones."""
        return len(self.mutants)


def redundant_oracles(names: Sequence[str], reports: Sequence[MutantReport]) -> tuple[str, ...]:
    """Oracles that were never among the first to fire on the trace of a kill."""
    first = {
        name
        for report in reports
        for seed in report.seeds
        if seed.first
        for name, index in seed.first.items()
        if index == min(seed.first.values())
    }
    return tuple(name for name in names if name not in first)


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return float(median(found)) if found else None
