"""`mutants`: does an oracle that a mutant names catch it, from every seed, on a trace that the clean engine passes?

A kill, in the design's sense: on a legal trace that the clean system passes, an oracle named by the mutant is violated,
and the engine raised nothing up to and including that event. A fault of the engine is a finding and never a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter
from typing import Any, Protocol

from specfuzz.campaign.covers import Factors, covering_configs
from specfuzz.campaign.running import Counts, first_violations, identity_of, run_events, run_examples, run_seed, shorter
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.oracle import Oracle
from specfuzz.core.port import System
from specfuzz.core.trace import Trace
from specfuzz.errors import ConfigError, UsageError
from specfuzz.session import Session
from specfuzz.state_machine import PROFILES, Profile

#: Examples per configuration before the next one gets its turn, doubled after each walk over all of them: most mutants
#: show at once where they can show at all, so every configuration is asked soon.
FIRST_ROUND, LONGEST_ROUND = 4, 32

Shrink = Callable[[Trace, System, Sequence[Oracle]], Trace]


class Mutant(Protocol):
    """What is read of a mutant's declaration. algorithm None: any. config: pinned fields. equivalent: why it lives."""

    name: str
    source: str
    killed_by: tuple[str, ...]
    algorithm: str | None
    needs: Capability
    config: Mapping[str, Any]
    equivalent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPlan:
    """What to kill and how hard to try.

    open_mutant: a system with that mutant planted, by name. clean: the same engine without. oracles: all that may
    judge. seeds: 1..seeds. max_examples, max_time (seconds): per mutant and seed. factors: narrowed by each mutant.
    shrink: called for the trace of every kill, with the oracles that the mutant names.
    """

    mutants: Sequence[Mutant]
    open_mutant: Callable[[str], System]
    clean: System
    oracles: Sequence[Oracle]
    seeds: int = 5
    max_examples: int = 2000
    max_time: float = 60.0
    profile: Profile = PROFILES["dev"]
    factors: Factors = field(default_factory=Factors)
    shrink: Shrink | None = None
    progress: Callable[[str], None] | None = None


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
    or they don't fire at all. Nothing would be caught later without any single one of them.
    """

    mutants: tuple[MutantReport, ...]
    equivalent: tuple[tuple[str, str], ...]
    redundant_oracles: tuple[str, ...]

    @property
    def killed(self) -> int:
        """Mutants that every seed killed."""
        return sum(mutant.killed for mutant in self.mutants)

    @property
    def total(self) -> int:
        """Mutants without the equivalent ones."""
        return len(self.mutants)


def run_kill(plan: KillPlan) -> KillReport:
    """Try every mutant from every seed. Raises UsageError where a mutant names no oracle of the plan."""
    reports, equivalent = [], []
    for mutant in plan.mutants:
        if mutant.equivalent is not None:
            equivalent.append((mutant.name, mutant.equivalent))
            continue
        reports.append(_try_mutant(plan, mutant))
    return KillReport(
        mutants=tuple(reports), equivalent=tuple(equivalent),
        redundant_oracles=redundant_oracles([oracle.name for oracle in plan.oracles], reports),
    )  # fmt: skip


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


def _try_mutant(plan: KillPlan, mutant: Mutant) -> MutantReport:
    named = [oracle for oracle in plan.oracles if oracle.name in mutant.killed_by]
    if not named:
        asked = ", ".join(f"`{name}`" for name in mutant.killed_by) or "none"
        raise UsageError(f"mutant `{mutant.name}` is killed by {asked}: none of the oracles in use is among them.")
    system = plan.open_mutant(mutant.name)
    try:
        configs = _configs(plan, mutant, system)
        seeds = []
        for seed in range(1, plan.seeds + 1):
            seeds.append(_Search(plan, system, named, configs, seed).run())
            if plan.progress is not None:
                done = seeds[-1]
                outcome = f"killed by {', '.join(done.by)} after {done.events} events" if done.killed else "survived"
                plan.progress(f"{mutant.name} seed {seed}: {outcome}")
    finally:
        system.close()
    return MutantReport(name=mutant.name, source=mutant.source, needs=mutant.needs, seeds=tuple(seeds))


def _configs(plan: KillPlan, mutant: Mutant, system: System) -> list[EngineConfig]:
    """The cover, narrowed to what the mutant pins and needs; raises ConfigError if nothing is left."""
    pinned: dict[str, Any] = {**plan.factors.fixed, **mutant.config}
    if mutant.algorithm is not None:
        pinned["algorithm"] = mutant.algorithm
    usable = []
    for config in covering_configs(replace(_narrowed(plan.factors, mutant.needs), fixed=pinned)):
        try:
            capabilities = system.capabilities(config)
        except ConfigError:
            continue
        if mutant.needs in capabilities:
            usable.append(config)
    if not usable:
        raise ConfigError(
            f"mutant `{mutant.name}` needs {mutant.needs!r} with {pinned}: `{system.name}` has no such configuration "
            "among those of the cover. Widen the configuration or choose another mutant."
        )
    return usable


def _narrowed(factors: Factors, needs: Capability) -> Factors:
    """Only choices that can have what is needed, so that the cover is not spent on the others."""
    if Capability.SPECULATIVE in needs:
        factors = replace(factors, algorithms=tuple(name for name in factors.algorithms if name != "NONE"))
    if Capability.OVERLAP in needs:
        factors = replace(factors, overlap=(True,))
    if Capability.RADIX in needs:
        factors = replace(factors, radix=(True,))
    if Capability.PAGED in needs:
        factors = replace(factors, page_sizes=tuple(size for size in factors.page_sizes if size > 1))
    if Capability.MIXED_CHUNK in needs:
        factors = replace(factors, mixed_chunk=(True,))
    if Capability.CHUNKED_PREFILL in needs:
        factors = replace(factors, chunked_prefill=(True,))
    return factors


class _Search:
    """One mutant, one seed."""

    def __init__(
        self, plan: KillPlan, system: System, named: Sequence[Oracle], configs: Sequence[EngineConfig], seed: int
    ) -> None:
        self.plan, self.system, self.named, self.seed = plan, system, named, seed
        start = seed % len(configs)  # seeds begin at different configurations
        self.configs = [*configs[start:], *configs[:start]]
        self.counts = Counts()
        self.other: dict[str, None] = {}
        self.started = perf_counter()

    def run(self) -> SeedKill:
        number, examples = 0, FIRST_ROUND
        while self._has_budget():
            for config in self.configs:
                if not self._has_budget():
                    break
                ended = run_examples(
                    self.system, config, self.named, seed=run_seed(self.seed, config, number), counts=self.counts,
                    profile=shorter(self.plan.profile, examples), keep_going=self._has_budget,
                )  # fmt: skip
                if ended is None:
                    continue
                events, seconds = self.counts.events, perf_counter() - self.started
                if isinstance(ended, Session) and self._is_kill(ended):
                    return self._killed(ended, events, seconds)
                self.other[str(identity_of(ended))] = None
            number, examples = number + 1, min(2 * examples, LONGEST_ROUND)
        return SeedKill(
            seed=self.seed, by=(), found=None, shrunk=None, first={}, events=self.counts.events,
            seconds=perf_counter() - self.started, other=tuple(self.other),
        )  # fmt: skip

    def _has_budget(self) -> bool:
        in_time = perf_counter() - self.started < self.plan.max_time
        return in_time and self.counts.examples < self.plan.max_examples

    def _is_kill(self, ended: Session) -> bool:
        """A named oracle was violated, nothing was raised, and the clean system passes the same events."""
        if not ended.violations or ended.fault is not None:
            return False
        events = tuple(step.event for step in ended.steps)
        identity, _steps = run_events(self.plan.clean, ended.config, events, self.plan.oracles)
        if identity is not None:
            self.other[f"clean:{identity}"] = None
        return identity is None

    def _killed(self, ended: Session, events: int, seconds: float) -> SeedKill:
        found = ended.trace(seed=self.seed)
        shrunk = None if self.plan.shrink is None else self.plan.shrink(found, self.system, self.named)
        return SeedKill(
            seed=self.seed, by=tuple(dict.fromkeys(violation.oracle for violation in ended.violations)), found=found,
            shrunk=shrunk, first=first_violations(self.system, found.config, found.events, self.plan.oracles),
            events=events, seconds=seconds, other=tuple(self.other),
        )  # fmt: skip


def _median(values: Any) -> float | None:
    found = list(values)
    return float(median(found)) if found else None
