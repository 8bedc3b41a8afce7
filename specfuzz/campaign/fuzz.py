"""`fuzz`: walk a cover of configurations, divide the budget, report what held, what was exercised and what broke."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TypeVar

from specfuzz.campaign.running import Counts, identity_of, run_examples, run_seed, shorter
from specfuzz.core.config import EngineConfig
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import Oracle, Reachable
from specfuzz.core.port import Comparing, System, accepted_configs
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Violation
from specfuzz.errors import ConfigError, EngineFault, TraceError, UsageError
from specfuzz.session import Session
from specfuzz.state_machine import PROFILES, Profile

#: Examples per configuration and round. Small enough that a time limit hits every configuration alike, large enough
#: that the plainest example, with which each run of Hypothesis starts, is a small part.
ROUND_EXAMPLES = 25

T = TypeVar("T")

#: Shrinks a found trace on the system that it was found on.
Shrink = Callable[[Trace, System, Sequence[Oracle]], Trace]


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzPlan:
    """What to fuzz and for how long.

    configs: walked in turn; those that the system can't run are left out. seed: fixes every example. max_examples: over
    all configurations, None = no bound; max_time: seconds, None = no bound; one of the two must be given. With a time
    limit the same seed repeats the same prefix. stop_at_first: end at the first finding instead of leaving its
    configuration. order: what one event brought, root first; the first gives the identity. shrink: called for every
    distinct finding after the fuzzing. stop: asked after every example; True ends the campaign with what it has.
    progress: gets one line per run.
    """

    system: System
    configs: Sequence[EngineConfig]
    oracles: Sequence[Oracle]
    goals: Sequence[Reachable] = ()
    seed: int = 0
    max_examples: int | None = 300
    max_time: float | None = None
    profile: Profile = PROFILES["dev"]
    stop_at_first: bool = False
    order: Callable[[Sequence[Violation]], Sequence[Violation]] = tuple
    shrink: Shrink | None = None
    stop: Callable[[], bool] = lambda: False
    progress: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One distinct identity. found: the trace as the machine generated it; shrunk: None without a shrinker.

    violations: of the last event, empty for a fault of the engine, which is then in `fault`. examples, events:
    generated up to and including the finding. times: how many configurations ran into it.
    """

    identity: Identity
    violations: tuple[Violation, ...]
    fault: str | None
    found: Trace
    shrunk: Trace | None
    examples: int
    events: int
    times: int = 1

    @property
    def trace(self) -> Trace:
        """The smallest trace that there is."""
        return self.shrunk if self.shrunk is not None else self.found


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzReport:
    """What a campaign came to; keys of `fuzz --json` in the same words.

    oracles: counts by verdict. reached: goals. not_exercised: oracles that never said holds or violated. lazy_share:
    share of examples with device work pending at a host event. compared: cells by field, of a comparing system.
    seconds: of the fuzzing, without shrinking. refused: configurations that the system can't run, with its reason.
    interrupted: `stop` or an interrupt ended it. error: what did, if it was something else; only beside findings.
    """

    system: str
    version: str
    algorithms: tuple[str, ...]
    configs: tuple[EngineConfig, ...]
    examples: int
    events: int
    skipped: int
    seconds: float
    oracles: Mapping[str, Mapping[str, int]]
    reached: Mapping[str, int]
    not_exercised: tuple[str, ...]
    lazy_share: float
    findings: tuple[Finding, ...]
    compared: Mapping[str, int]
    refused: tuple[tuple[EngineConfig, str], ...] = ()
    interrupted: bool = False
    error: Exception | None = None

    @property
    def events_per_second(self) -> float:
        """Applied events by wall clock of the fuzzing."""
        return self.events / self.seconds if self.seconds else 0.0


class _Campaign:
    """State of one walk."""

    def __init__(self, plan: FuzzPlan) -> None:
        self.plan = plan
        self.tally = Tally()
        self.counts = Counts()
        self.findings: dict[Identity, Finding] = {}
        self.refused: list[tuple[EngineConfig, UsageError]] = []
        self.interrupted = False
        self.error: Exception | None = None
        self.started = perf_counter()

    def go_on(self) -> bool:
        limit = self.plan.max_time
        in_time = limit is None or perf_counter() - self.started < limit
        return in_time and not self.plan.stop()

    def guarded(self, work: Callable[[], T], otherwise: T) -> T:
        """What is interrupted or fails must not take the findings along; without any it may."""
        try:
            return work()
        except KeyboardInterrupt:
            self.interrupted = True
        except Exception as error:
            if not self.findings:
                raise
            self.error = self.error or error
        return otherwise

    def walk(self) -> None:
        accepted, refused = accepted_configs(self.plan.system, self.plan.configs)
        self.refused += refused.items()
        left = _budgets(self.plan, tuple(accepted))
        number = 0
        while left:
            for config in list(left):
                if not self.go_on():
                    return
                examples = min(ROUND_EXAMPLES, left[config])
                try:
                    found = self._run(config, examples, number)
                except ConfigError as error:  # the engine itself knows better than its capabilities
                    self.refused.append((config, error))
                    del left[config]
                    continue
                left[config] -= examples
                if found is not None:
                    self._record(found, config)
                self._tell(config, found)
                if found is not None and self.plan.stop_at_first:
                    return
                if found is not None or left[config] <= 0:
                    del left[config]
            number += 1
        if self.refused and not self.counts.examples and not self.findings:
            raise self.refused[0][1]

    def _run(self, config: EngineConfig, examples: int, number: int) -> Session | EngineFault | None:
        plan = self.plan
        return run_examples(
            plan.system, config, plan.oracles, goals=plan.goals, tally=self.tally, counts=self.counts,
            seed=run_seed(plan.seed, config, number), profile=shorter(plan.profile, examples), keep_going=self.go_on,
        )  # fmt: skip

    def _tell(self, config: EngineConfig, found: Session | EngineFault | None) -> None:
        if self.plan.progress is not None:
            outcome, counts = "holds" if found is None else str(self._root(found)[0]), self.counts
            self.plan.progress(f"{config.label()}: {counts.examples} examples, {counts.events} events: {outcome}")

    def _root(self, found: Session | EngineFault) -> tuple[Identity, tuple[Violation, ...]]:
        """The identity under which a finding is kept and told, and its violations, the root first."""
        violations = tuple(self.plan.order(found.violations)) if isinstance(found, Session) else ()
        return violations[0].identity if violations else identity_of(found), violations

    def _record(self, found: Session | EngineFault, config: EngineConfig) -> None:
        identity, violations = self._root(found)
        known = self.findings.get(identity)
        if known is not None:
            self.findings[identity] = replace(known, times=known.times + 1)
            return
        system, seed = self.plan.system, self.plan.seed
        if isinstance(found, Session):
            trace, fault = found.trace(expected=identity, seed=seed), found.fault
        else:
            trace = Trace(
                config=config, steps=(), system=system.name, version=system.version, expected=identity, seed=seed
            )
            fault = found
        self.findings[identity] = Finding(
            identity=identity, violations=violations, fault=None if fault is None else str(fault), found=trace,
            shrunk=None, examples=self.counts.examples, events=self.counts.events,
        )  # fmt: skip

    def report(self) -> FuzzReport:
        seconds = perf_counter() - self.started
        plan, counts = self.plan, self.counts
        findings = tuple(self.guarded(partial(self._shrunk, finding), finding) for finding in self.findings.values())
        oracles = {
            oracle.name: {
                "applied": count.applied, "violated": count.violated, "unknown": count.unknown,
                "not_applicable": count.not_applicable,
            }
            for oracle in plan.oracles
            for count in [self.tally.of(oracle.name)]
        }  # fmt: skip
        return FuzzReport(
            system=plan.system.name, version=plan.system.version,
            algorithms=tuple(dict.fromkeys(config.algorithm for config in plan.configs)), configs=tuple(plan.configs),
            examples=counts.examples, events=counts.events, skipped=counts.skipped, seconds=seconds, oracles=oracles,
            reached=dict(self.tally.reached),
            not_exercised=tuple(name for name, count in oracles.items() if not count["applied"]),
            lazy_share=counts.lazy / counts.examples if counts.examples else 0.0,
            findings=findings, compared=dict(plan.system.compared) if isinstance(plan.system, Comparing) else {},
            refused=tuple((config, str(error)) for config, error in self.refused),
            interrupted=self.interrupted or plan.stop(), error=self.error,
        )  # fmt: skip

    def _shrunk(self, finding: Finding) -> Finding:
        plan = self.plan
        if plan.shrink is None or not finding.found.steps or self.interrupted:
            return finding
        try:
            return replace(finding, shrunk=plan.shrink(finding.found, plan.system, plan.oracles))
        except TraceError:  # it doesn't come about again: whoever shows it will say so
            return finding


def run_fuzz(plan: FuzzPlan) -> FuzzReport:
    """Fuzz until the budget or the configurations end, or somebody ends it.

    Raises the first refusal if the system can run no configuration, and what else stands in the way as long as nothing
    has been found.
    """
    campaign = _Campaign(plan)
    campaign.guarded(campaign.walk, None)
    return campaign.report()


def _budgets(plan: FuzzPlan, configs: Sequence[EngineConfig]) -> dict[EngineConfig, int]:
    if plan.max_examples is None:
        if plan.max_time is None:
            raise ConfigError("neither `max_examples` nor `max_time` is given: the campaign would never end.")
        return dict.fromkeys(configs, 1 << 62)
    share, rest = divmod(plan.max_examples, max(1, len(configs)))
    budgets = {config: share + (index < rest) for index, config in enumerate(configs)}
    return {config: examples for config, examples in budgets.items() if examples}
