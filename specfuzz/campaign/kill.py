"""`mutants`: does an oracle that a mutant names catch it, from every seed, on a trace that the clean engine passes?

A kill, in the design's sense: on a legal trace that the clean system passes, an oracle named by the mutant is violated,
and the engine raised nothing up to and including that event. A fault of the engine or of an oracle is a finding and
never a kill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Protocol

from specfuzz.campaign.covers import Factors, configs_with
from specfuzz.campaign.kills import KillReport, MutantReport, SeedKill, redundant_oracles
from specfuzz.campaign.running import Counts, first_violations, identity_of, run_events, run_examples, run_seed, shorter
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.oracle import Oracle
from specfuzz.core.port import System
from specfuzz.core.trace import Trace
from specfuzz.errors import ConfigError, EngineFault, TraceError, UsageError
from specfuzz.session import Session
from specfuzz.state_machine import PROFILES, Profile
from specfuzz.trace.replay import fault_identity

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
    shrink: called for the trace of every kill, with the oracles that the mutant names. stop: asked after every example;
    True ends the campaign with the seeds that were tried to their end.
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
    stop: Callable[[], bool] = lambda: False
    progress: Callable[[str], None] | None = None


def run_kill(plan: KillPlan) -> KillReport:
    """Try every mutant from every seed. Raises UsageError where a mutant names no oracle of the plan.

    What else stands in the way, or an interrupt, is raised only as long as no seed has been tried.
    """
    counted = [mutant for mutant in plan.mutants if mutant.equivalent is None]
    for mutant in counted:
        named_oracles(mutant, plan.oracles)
    reports: list[MutantReport] = []
    error: Exception | None = None
    interrupted = False
    for mutant in counted:
        seeds: list[SeedKill] = []
        try:
            _try_mutant(plan, mutant, seeds)
        except KeyboardInterrupt:
            interrupted = True
        except Exception as failure:
            if not (reports or seeds):
                raise
            error = failure
        if seeds:
            reports.append(MutantReport(name=mutant.name, source=mutant.source, needs=mutant.needs, seeds=tuple(seeds)))
        interrupted = interrupted or plan.stop()
        if interrupted or error is not None:
            break
    return KillReport(
        mutants=tuple(reports),
        equivalent=tuple((m.name, m.equivalent) for m in plan.mutants if m.equivalent is not None),
        redundant_oracles=redundant_oracles([oracle.name for oracle in plan.oracles], reports),
        interrupted=interrupted, error=error,
    )  # fmt: skip


def named_oracles(mutant: Mutant, oracles: Sequence[Oracle]) -> list[Oracle]:
    """Those of the oracles in use that the mutant names; raises UsageError if there is none."""
    named = [oracle for oracle in oracles if oracle.name in mutant.killed_by]
    if not named:
        asked = ", ".join(f"`{name}`" for name in mutant.killed_by) or "none"
        raise UsageError(f"mutant `{mutant.name}` is killed by {asked}: none of the oracles in use is among them.")
    return named


def _try_mutant(plan: KillPlan, mutant: Mutant, seeds: list[SeedKill]) -> None:
    """Try one mutant; seeds: gets what came of each, so that nothing is lost where a later one fails."""
    named, system = named_oracles(mutant, plan.oracles), plan.open_mutant(mutant.name)
    try:
        configs = _configs(plan, mutant, system)
        for seed in range(1, plan.seeds + 1):
            done = _Search(plan, system, named, configs, seed).run()
            if plan.stop() and not done.killed:
                return  # it might have been found in the time that it did not get
            seeds.append(done)
            if plan.progress is not None:
                outcome = f"killed by {', '.join(done.by)} after {done.events} events" if done.killed else "survived"
                plan.progress(f"{mutant.name} seed {seed}: {outcome}")
    finally:
        system.close()


def _configs(plan: KillPlan, mutant: Mutant, system: System) -> list[EngineConfig]:
    """The cover, narrowed to what the mutant pins and needs; raises ConfigError if nothing is left."""
    pinned: dict[str, Any] = {**plan.factors.fixed, **mutant.config}
    if mutant.algorithm is not None:
        pinned["algorithm"] = mutant.algorithm
    usable = configs_with(replace(plan.factors, fixed=pinned), mutant.needs, system)
    if not usable:
        raise ConfigError(
            f"mutant `{mutant.name}` needs {mutant.needs!r} with {pinned}: `{system.name}` has no such configuration "
            "among those of the cover. Widen the configuration or choose another mutant."
        )
    return usable


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
        in_time = perf_counter() - self.started < self.plan.max_time and not self.plan.stop()
        return in_time and self.counts.examples < self.plan.max_examples

    def _is_kill(self, ended: Session) -> bool:
        """A named oracle was violated, nothing was raised, and the clean system passes the same events."""
        if not self._killers(ended) or ended.fault is not None:
            return False
        events = tuple(step.event for step in ended.steps)
        try:
            identity, _steps = run_events(self.plan.clean, ended.config, events, self.plan.oracles)
        except EngineFault as fault:  # the clean engine doesn't start: it can't vouch for the events
            identity = fault_identity(fault)
        if identity is not None:
            self.other[f"clean:{identity}"] = None
        return identity is None

    def _killers(self, ended: Session) -> tuple[str, ...]:
        names = {oracle.name for oracle in self.named}
        return tuple(dict.fromkeys(found.oracle for found in ended.violations if found.oracle in names))

    def _killed(self, ended: Session, events: int, seconds: float) -> SeedKill:
        found, shrunk = ended.trace(seed=self.seed), None
        first: dict[str, int] = {}
        # An engine that behaves another way when it is asked again takes the kill's details, not the kill.
        with suppress(EngineFault, TraceError):
            first = first_violations(self.system, found.config, found.events, self.plan.oracles)
            shrunk = None if self.plan.shrink is None else self.plan.shrink(found, self.system, self.named)
        return SeedKill(
            seed=self.seed, by=self._killers(ended), found=found, shrunk=shrunk, first=first, events=events,
            seconds=seconds, other=tuple(self.other),
        )  # fmt: skip
