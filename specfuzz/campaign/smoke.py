"""`mutants --smoke`: does one common pool of seed traces, which holds on the clean engine, kill the planted bugs?

A mutant runs the traces that its configuration allows, until each oracle that it names has been violated: then it is
known which of them see it. It is killed if one is, and the engine raised nothing up to and including that event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter

from specfuzz.campaign.kill import Mutant, named_oracles
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.oracle import Oracle
from specfuzz.core.port import System, accepted_configs
from specfuzz.core.stumbles import ORACLE_FAULT
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Verdict
from specfuzz.errors import ConfigError, EngineFault
from specfuzz.session import Session
from specfuzz.trace.replay import fault_identity, replay_trace

#: A pool that kills fewer of the mutants needs more seeds.
LEAST_SHARE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokePlan:
    """pool: traces that are expected to hold. open_mutant: a system with that mutant planted, by name. clean: the same
    engine without. oracles: all that may judge. stop: asked after every trace.
    """

    mutants: Sequence[Mutant]
    open_mutant: Callable[[str], System]
    clean: System
    oracles: Sequence[Oracle]
    pool: Sequence[Trace]
    stop: Callable[[], bool] = lambda: False
    progress: Callable[[str], None] = lambda line: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoked:
    """One mutant. by: named oracles that were violated on some trace.

    seeds: traces that it ran; seeds_found: those on which a named oracle was violated. events, seconds: until the first
    of them had ended. other: faults of the engine or of an oracle, which are no kill.
    """

    name: str
    source: str
    needs: Capability
    by: tuple[str, ...]
    seeds: int
    seeds_found: int
    events: int | None
    seconds: float | None
    other: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        """Whether some trace of the pool killed it."""
        return bool(self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeReport:
    """All mutants. equivalent: (name, why), not counted. pool: traces that were used; spoilt: (number, what) of those
    that don't hold on the clean engine, and are used for nothing. oracles: names of all that judged.
    """

    mutants: tuple[Smoked, ...]
    equivalent: tuple[tuple[str, str], ...]
    oracles: tuple[str, ...]
    pool: int
    spoilt: tuple[tuple[int, str], ...] = ()
    interrupted: bool = False

    @property
    def killed(self) -> int:
        """Mutants that the pool kills."""
        return sum(mutant.killed for mutant in self.mutants)

    @property
    def survivors(self) -> tuple[str, ...]:
        """Mutants that it doesn't."""
        return tuple(mutant.name for mutant in self.mutants if not mutant.killed)

    @property
    def share(self) -> float:
        """Killed by total; 0 without a mutant."""
        return self.killed / len(self.mutants) if self.mutants else 0.0

    @property
    def redundant_oracles(self) -> tuple[str, ...]:
        """Oracles without any single one of which the same mutants are killed."""
        needed = {mutant.by[0] for mutant in self.mutants if len(mutant.by) == 1}
        return tuple(name for name in self.oracles if name not in needed)

    @property
    def without_kill(self) -> tuple[str, ...]:
        """Oracles that kill no mutant: none that names them violates them on the pool."""
        killing = {name for mutant in self.mutants for name in mutant.by}
        return tuple(name for name in self.oracles if name not in killing)


def run_smoke(plan: SmokePlan) -> SmokeReport:
    """Run the pool on the clean engine, then on every mutant."""
    pool, spoilt = _holding(plan)
    smoked, equivalent = [], []
    for mutant in plan.mutants:
        if mutant.equivalent is not None:
            equivalent.append((mutant.name, mutant.equivalent))
        elif not plan.stop():
            smoked.append(_smoke(plan, mutant, pool))
    return SmokeReport(
        mutants=tuple(smoked), equivalent=tuple(equivalent), oracles=tuple(oracle.name for oracle in plan.oracles),
        pool=len(pool), spoilt=spoilt, interrupted=plan.stop(),
    )  # fmt: skip


def _holding(plan: SmokePlan) -> tuple[list[Trace], tuple[tuple[int, str], ...]]:
    """The traces that the clean engine runs and passes, and what is wrong with the others it runs."""
    pool, spoilt = [], []
    for number, trace in enumerate(plan.pool):
        try:
            replay = replay_trace(trace, plan.clean, plan.oracles, same_system=False)
        except ConfigError:
            continue  # made for an engine that can do more
        if replay.verdict is Verdict.VIOLATED:
            spoilt.append((number, str(replay.got)))
        else:
            pool.append(trace)
    return pool, tuple(spoilt)


def _smoke(plan: SmokePlan, mutant: Mutant, pool: Sequence[Trace]) -> Smoked:
    started, seeds, found, events = perf_counter(), 0, 0, 0
    fired, other = dict[str, None](), dict[str, None]()
    first: tuple[int, float] | None = None
    named = named_oracles(mutant, plan.oracles)
    system = plan.open_mutant(mutant.name)
    try:
        for trace in pool:
            if plan.stop() or len(fired) == len(named):
                break
            if not _allows(mutant, system, trace.config):
                continue
            seeds += 1
            violated, applied, raised = _violated(system, trace, named)
            events += applied
            fired.update(violated)
            other.update(raised)
            if violated:
                found += 1
                first = first or (events, perf_counter() - started)
    finally:
        system.close()
    by = tuple(name for name in mutant.killed_by if name in fired)
    outcome = f"killed by {', '.join(by)}" if by else "survives"
    plan.progress(f"{mutant.name}: {outcome}, {found} of {seeds} traces")
    return Smoked(
        name=mutant.name, source=mutant.source, needs=mutant.needs, by=by, seeds=seeds, seeds_found=found,
        other=tuple(other),
        events=None if first is None else first[0], seconds=None if first is None else first[1],
    )  # fmt: skip


def _allows(mutant: Mutant, system: System, config: EngineConfig) -> bool:
    """Whether the mutant shows under this configuration: its pins hold, and the engine has what it needs."""
    pins: Mapping[str, object] = mutant.config
    if mutant.algorithm not in (None, config.algorithm) or any(getattr(config, k) != v for k, v in pins.items()):
        return False
    accepted, _refused = accepted_configs(system, [config])
    return any(mutant.needs in capabilities for capabilities in accepted.values())


def _violated(
    system: System, trace: Trace, oracles: Sequence[Oracle]
) -> tuple[dict[str, None], int, dict[str, None]]:  # fmt: skip
    """Oracles that are violated on the trace, also behind the first of them; events; faults, by identity.

    An engine goes on with a broken state there: it may raise, which ends the run, and so may an oracle that can't read
    what it meets.
    """
    fired, raised = dict[str, None](), dict[str, None]()
    try:
        session = Session(system, trace.config, oracles, to_the_end=True)
    except EngineFault as fault:
        return fired, 0, {str(fault_identity(fault)): None}
    try:
        for event in trace.events:
            for violation in session.step(event):
                if violation.oracle == ORACLE_FAULT:
                    raised[str(violation.identity)] = None
                else:
                    fired[violation.oracle] = None
    except EngineFault as fault:
        raised[str(fault_identity(fault))] = None
    return fired, len(session.steps), raised
