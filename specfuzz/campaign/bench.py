"""`bench`: checked events per second against a bare machine with the same rules, and where the difference goes.

Slices of three machines take turns in one run, so that all meet the same load: checked (the system, every oracle and
goal), bare (`BareSystem`, nobody judges) and stock (bare, but Hypothesis chooses the rules by itself: what a state
machine costs that was not made fast). Each figure is the median over its slices; skipped events are not counted.
Seconds are CPU seconds of this process, so that waiting for a neighbour on the machine is not counted; a system that
may live in another process is measured by the wall clock.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter, process_time
from typing import Any

from specfuzz.campaign.bare import BareSystem
from specfuzz.campaign.running import Counts, identity_of, run_examples, run_seed, shorter
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import VERBS, Event
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import Oracle, Reachable, Step
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.core.verdict import Violation
from specfuzz.errors import SpecfuzzError
from specfuzz.session import Session
from specfuzz.state_machine import PROFILES, Profile

#: EAGLE under overlap, 3 draft steps, radix cache and rows for four: the shape that the figures are quoted for.
BENCH_CONFIG = EngineConfig(algorithm="EAGLE", overlap=True, page_size=1, spec_steps=3, draft_token_num=4, max_reqs=4)

#: The same with trees: four branches, eight nodes per verify.
TREE_CONFIG = BENCH_CONFIG.with_(topk=4, draft_token_num=8)

#: Systems that do all their work in this process.
IN_PROCESS = frozenset({"bare", "mutated", "reference"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchPlan:
    """slices: per machine, after one that warms up; slice_examples: examples in each; clock: None takes `clock_for`.

    tree_config: a second shape that is measured in the same slices, None = none. weighted: as for `make_machine`.
    """

    system: System
    oracles: Sequence[Oracle]
    goals: Sequence[Reachable] = ()
    config: EngineConfig = BENCH_CONFIG
    seed: int = 0
    slices: int = 5
    slice_examples: int = 40
    profile: Profile = PROFILES["dev"]
    clock: Callable[[], float] | None = None
    weighted: bool = True
    tree_config: EngineConfig | None = None


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
    """Passes everything on and adds up the seconds spent in `apply`, in `snapshot` and in judging."""

    def __init__(self, system: System, clock: Callable[[], float] = process_time) -> None:
        """system: does the work."""
        self._system = system
        self.clock = clock
        self.name, self.version = system.name, system.version
        self.apply_seconds = self.snapshot_seconds = self.judge_seconds = 0.0

    def capabilities(self, config: EngineConfig) -> Capability:
        """As the system has it."""
        return self._system.capabilities(config)

    def reset(self, config: EngineConfig) -> None:
        """A fresh engine; not timed, as it isn't an event."""
        self._system.reset(config)

    def apply(self, event: Event) -> Receipt:
        """Timed."""
        start = self.clock()
        receipt = self._system.apply(event)
        self.apply_seconds += self.clock() - start
        return receipt

    def snapshot(self) -> Snapshot:
        """Timed."""
        start = self.clock()
        snapshot = self._system.snapshot()
        self.snapshot_seconds += self.clock() - start
        return snapshot

    def close(self) -> None:
        """As the system has it."""
        self._system.close()

    def time_judge_of(self, session: Session) -> None:
        """Time the session's judge from now on."""
        session._judge = _TimedJudge(session._judge, self)  # type: ignore[assignment]


class _TimedJudge:
    """Stands before the judge of one session; the judge itself is shared by many."""

    def __init__(self, judge: Any, timed: TimedSystem) -> None:
        self._judge = judge
        self._timed = timed

    def judge(self, step: Step) -> list[Violation]:
        clock = self._timed.clock
        start = clock()
        found = self._judge.judge(step)
        self._timed.judge_seconds += clock() - start
        return found


@dataclass(slots=True)
class _Slices:
    """One machine, slice by slice: seconds per event, shares of them, and what its events were."""

    tally: Tally = field(default_factory=Tally)
    per_event: list[float] = field(default_factory=list)
    shares: dict[str, list[float]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    decoded_rows: list[int] = field(default_factory=list)

    def see(self, session: Session) -> None:
        for step in session.steps:
            self.kinds[VERBS[type(step.event)]] += 1
            if step.receipt.launch is not None and step.receipt.mode == "DECODE":
                self.decoded_rows.append(len(step.receipt.rows))

    def split(self, seconds: float, timed: TimedSystem) -> None:
        spent = {"engine": timed.apply_seconds, "snapshot": timed.snapshot_seconds, "oracles": timed.judge_seconds}
        for name, part in spent.items():
            self.shares.setdefault(name, []).append(part / seconds)

    @property
    def rate(self) -> float:
        return 1 / median(self.per_event)

    @property
    def rounds(self) -> float:
        return self.rate * self.share("verify")

    def time_share(self, name: str) -> float:
        return median(self.shares[name])

    def share(self, kind: str) -> float:
        return self.kinds[kind] / max(1, self.kinds.total())

    @property
    def rows(self) -> float:
        return sum(self.decoded_rows) / len(self.decoded_rows) if self.decoded_rows else 0.0


def run_bench(plan: BenchPlan) -> BenchReport:
    """Measure. Raises SpecfuzzError if the system doesn't hold: a broken run says nothing about throughput."""
    checked, bare, stock, tree, bare_tree = (_Slices() for _ in range(5))
    bare_plan = replace(plan, system=BareSystem(), oracles=(), goals=(), clock=plan.clock or clock_for(plan.system))
    for number in range(plan.slices + 1):
        _slice(plan, checked, number)
        _slice(bare_plan, bare, number)
        _slice(replace(bare_plan, weighted=False), stock, number)
        _slice(plan, checked, number, split=True)
        if plan.tree_config is not None:
            _slice(replace(plan, config=plan.tree_config), tree, number)
            _slice(replace(bare_plan, config=plan.tree_config), bare_tree, number)
    rows = (
        _row("checked events", checked.rate, "events/s", bare.rate),
        _row("bare events", bare.rate, "events/s"),
        _row("stock events", stock.rate, "events/s"),
        _row("checked to stock", checked.rate, "events/s", stock.rate),
        *(_row(f"share {name}", checked.time_share(name), "of checked time") for name in checked.shares),
        _row("engine step", checked.time_share("engine") / checked.rate * 1e6, "us per event"),
        _row("share verify", checked.share("verify"), "of applied events", bare.share("verify")),
        _row("share settle", checked.share("settle"), "of applied events", bare.share("settle")),
        _row("live rows", checked.rows, "rows per verify", bare.rows),
        _row("rounds", checked.rounds, "verifies/s", bare.rounds),
    )
    if plan.tree_config is not None:
        label = f"topk {plan.tree_config.topk}"
        rows += (
            _row(f"checked events, {label}", tree.rate, "events/s", bare_tree.rate),
            _row(f"rounds, {label}", tree.rounds, "verifies/s", bare_tree.rounds),
        )
    return BenchReport(rows=rows, machine=describe_machine())


def bench_rows_of(plan: BenchPlan) -> tuple[Row, ...]:
    """Events per second of another system through the same machine, beside its own step cost; e.g. a real engine."""
    slices = _Slices()
    for number in range(plan.slices + 1):
        _slice(plan, slices, number)
        _slice(plan, slices, number, split=True)
    name, step = plan.system.name, slices.time_share("engine") / slices.rate
    return (
        _row(f"{name} events", slices.rate, "events/s", 1 / step),
        _row(f"{name} engine step", step * 1e6, "us per event"),
    )


def _row(name: str, value: float, unit: str, baseline: float | None = None) -> Row:
    return Row(name=name, value=value, unit=unit, baseline=baseline, ratio=value / baseline if baseline else None)


def _slice(plan: BenchPlan, slices: _Slices, number: int, *, split: bool = False) -> None:
    """Slice 0 warms up and is not kept. split: measure the parts of the time; the clocks of that would slow a rate."""
    clock = plan.clock or clock_for(plan.system)
    timed, counts = TimedSystem(plan.system, clock) if split else None, Counts()
    start = clock()
    found = run_examples(
        plan.system if timed is None else timed, plan.config, plan.oracles, goals=plan.goals,
        seed=run_seed(plan.seed, plan.config, number), profile=shorter(plan.profile, plan.slice_examples),
        tally=slices.tally, counts=counts, on_start=None if timed is None else timed.time_judge_of,
        on_end=slices.see if number and not split else None, weighted=plan.weighted,
    )  # fmt: skip
    seconds = clock() - start
    if found is not None:
        raise SpecfuzzError(
            f"`{plan.system.name}` ended in {identity_of(found)}: nothing can be measured on a run that breaks."
        )
    if number and timed is None:
        slices.per_event.append(seconds / counts.events)
    elif number and timed is not None:
        slices.split(seconds, timed)


def clock_for(system: System) -> Callable[[], float]:
    """CPU seconds where all the work is known to be done in this process, else the wall clock."""
    return process_time if system.name.partition(":")[0] in IN_PROCESS else perf_counter


def describe_machine() -> str:
    """Architecture, cores, Python: what a figure is worth nothing without."""
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"
