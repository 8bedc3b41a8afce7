"""`bench`: checked events per second against a bare machine with the same rules, and where the difference goes.

Slices of three machines take turns in one run, so that all meet the same load on the machine: checked (every oracle and
goal), unchecked (the same system, nobody judges) and bare (`BareSystem`, nobody judges). Each figure is the median over
its slices. Events that were skipped are not counted. Seconds are CPU seconds of this process, so that waiting for a
neighbour on the machine is not counted; only a system in another process is measured by the wall clock.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter, process_time

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.running import Counts, identity_of, run_examples, run_seed, shorter
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import VERBS, Event
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import Oracle, Reachable
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import SpecfuzzError
from specfuzz.session import Session
from specfuzz.state_machine import PROFILES, Profile

#: EAGLE under overlap, 3 draft steps, radix cache and rows for four: the shape that the figures are quoted for.
BENCH_CONFIG = EngineConfig(algorithm="EAGLE", overlap=True, page_size=1, spec_steps=3, draft_token_num=4, max_reqs=4)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """slices: per machine, after one that warms up; slice_examples: examples in each; clock: in seconds."""

    system: System
    oracles: Sequence[Oracle]
    goals: Sequence[Reachable] = ()
    config: EngineConfig = BENCH_CONFIG
    seed: int = 0
    slices: int = 5
    slice_examples: int = 40
    profile: Profile = PROFILES["dev"]
    clock: Callable[[], float] = process_time


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure. baseline, ratio: what it is compared with and the quotient; None where nothing is compared."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchReport:
    """Rows, and the machine that they were measured on."""

    rows: tuple[Row, ...]
    machine: str


class TimedSystem:
    """Passes everything on and adds up the seconds spent in `apply` and in `snapshot`."""

    def __init__(self, system: System, clock: Callable[[], float] = perf_counter) -> None:
        """system: does the work."""
        self._system = system
        self._clock = clock
        self.name, self.version = system.name, system.version
        self.apply_seconds = self.snapshot_seconds = 0.0

    def capabilities(self, config: EngineConfig) -> Capability:
        """As the system has it."""
        return self._system.capabilities(config)

    def reset(self, config: EngineConfig) -> None:
        """A fresh engine; not timed, as it isn't an event."""
        self._system.reset(config)

    def apply(self, event: Event) -> Receipt:
        """Timed."""
        start = self._clock()
        receipt = self._system.apply(event)
        self.apply_seconds += self._clock() - start
        return receipt

    def snapshot(self) -> Snapshot:
        """Timed."""
        start = self._clock()
        snapshot = self._system.snapshot()
        self.snapshot_seconds += self._clock() - start
        return snapshot

    def close(self) -> None:
        """As the system has it."""
        self._system.close()


@dataclass(slots=True)
class _Slices:
    """Seconds per event of one machine, slice by slice, and what its events were."""

    events: int = 0
    per_event: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    decoded_rows: list[int] = field(default_factory=list)
    apply_share: list[float] = field(default_factory=list)
    snapshot_share: list[float] = field(default_factory=list)

    def see(self, session: Session) -> None:
        for step in session.steps:
            self.kinds[VERBS[type(step.event)]] += 1
            if step.receipt.launch is not None and step.receipt.mode == "DECODE":
                self.decoded_rows.append(len(step.receipt.rows))

    @property
    def rate(self) -> float:
        return 1 / median(self.per_event)

    def share(self, kind: str) -> float:
        return self.kinds[kind] / max(1, self.kinds.total())


def run_bench(plan: BenchPlan) -> BenchReport:
    """Measure. Raises SpecfuzzError if the system doesn't hold: a broken run says nothing about throughput."""
    machines = {
        "checked": (plan.system, plan.oracles, plan.goals, _Slices()),
        "unchecked": (plan.system, (), (), _Slices()),
        "bare": (BareSystem(), (), (), _Slices()),
    }
    for number in range(plan.slices + 1):
        for system, oracles, goals, slices in machines.values():
            _slice(plan, system, oracles, goals, slices, number, warm_up=number == 0)
    checked, unchecked, bare = (machines[name][3] for name in machines)
    apply_share, snapshot_share = median(checked.apply_share), median(checked.snapshot_share)
    oracle_share = max(0.0, 1 - checked.rate / unchecked.rate)
    rows = (
        _compared("checked events", checked.rate, "events/s", bare.rate),
        _compared("unchecked events", unchecked.rate, "events/s", bare.rate),
        _compared("bare events", bare.rate, "events/s", None),
        _compared("share engine", apply_share, "of checked time", None),
        _compared("share snapshot", snapshot_share, "of checked time", None),
        _compared("share oracles", oracle_share, "of checked time", None),
        _compared("share verify", checked.share("verify"), "of applied events", bare.share("verify")),
        _compared("share settle", checked.share("settle"), "of applied events", bare.share("settle")),
        _compared("live rows", _mean(checked.decoded_rows), "rows per verify", _mean(bare.decoded_rows)),
        _compared("engine step", apply_share / checked.rate * 1e6, "us per event", None),
    )
    return BenchReport(rows=rows, machine=describe_machine())


def _compared(name: str, value: float, unit: str, baseline: float | None) -> Row:
    return Row(name=name, value=value, unit=unit, baseline=baseline, ratio=value / baseline if baseline else None)


def _slice(
    plan: BenchPlan,
    system: System,
    oracles: Sequence[Oracle],
    goals: Sequence[Reachable],
    slices: _Slices,
    number: int,
    *,
    warm_up: bool,
) -> None:
    timed, counts = TimedSystem(system, plan.clock), Counts()
    seed = run_seed(plan.seed, plan.config, number)
    sessions: list[Session] = []
    start = plan.clock()
    found = run_examples(
        timed, plan.config, oracles, goals=goals, seed=seed, profile=shorter(plan.profile, plan.slice_examples),
        tally=Tally(), counts=counts, on_end=sessions.append,
    )  # fmt: skip
    seconds = plan.clock() - start
    if found is not None:
        raise SpecfuzzError(
            f"`{system.name}` ended in {identity_of(found)}: nothing can be measured on a run that breaks."
        )
    if warm_up:
        return
    for session in sessions:
        slices.see(session)
    slices.events += counts.events
    slices.per_event.append(seconds / counts.events)
    slices.apply_share.append(timed.apply_seconds / seconds)
    slices.snapshot_share.append(timed.snapshot_seconds / seconds)


def describe_machine() -> str:
    """Processor, cores, Python; what a figure is worth nothing without."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"


def bench_rows_of(plan: BenchPlan) -> tuple[Row, ...]:
    """Events per second of another system through the same machine, beside its own step cost; e.g. a real engine.

    Its process has a clock of its own: give `clock=perf_counter`.
    """
    slices = _Slices()
    for number in range(plan.slices + 1):
        _slice(plan, plan.system, plan.oracles, plan.goals, slices, number, warm_up=number == 0)
    name, step = plan.system.name, median(slices.apply_share) / slices.rate
    return (
        Row(name=f"{name} events", value=slices.rate, unit="events/s", baseline=1 / step, ratio=slices.rate * step),
        Row(name=f"{name} engine step", value=step * 1e6, unit="us per event"),
    )


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
