"""The event-level shrinker: the same bug in as few, as low and as plain events as single changes can reach.

It sees no system: a callable runs a configuration and events and says which violation they end in. Events are total, so
any subsequence may be tried; what a run really applied replaces the candidate. A shrink keeps the identity (oracle,
owner, phase) exactly, so it can't slide from one bug into another. It ends at a fixpoint of every pass: no event can
go, no argument can fall, no name or configuration field can be simpler, and so shrinking again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.oracle import Oracle
from specfuzz.core.port import System
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import ConfigError, EngineFault, TraceError
from specfuzz.session import Session
from specfuzz.trace.lowering import (
    AXES,
    coarse_numbers,
    lower_numbers,
    lowered,
    lowered_together,
    plain_names,
    renamed,
    rids_in,
    simpler_configs,
    without_rid,
)
from specfuzz.trace.replay import fault_identity

#: Up to this many events every pair is tried for removal; beyond, only pairs at most PAIR_REACH apart.
ALL_PAIRS = 16
PAIR_REACH = 4

Events = tuple[Event, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One run. identity: of the violation or fault that ended it, None if it held; steps: what was really applied.

    stillborn: why the engine failed before the first event, if it did; no event has shown anything then.
    """

    identity: Identity | None
    steps: tuple[TraceStep, ...]
    stillborn: str = ""


#: Runs events under a configuration from a fresh start. It must be deterministic; ConfigError means "can't be run so".
Run = Callable[[EngineConfig, Events], Ran]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrunk:
    """The smallest form that was found.

    before: number of events that the original applied. tries: runs; spared: candidates that were known already.
    minimal: whether every single change was tried and lost the bug; False when the budget ended first.
    repeatable: whether a last run of the result ended in the same identity after the same receipts.
    """

    config: EngineConfig
    steps: tuple[TraceStep, ...]
    identity: Identity
    before: int
    tries: int
    spared: int
    minimal: bool
    repeatable: bool

    @property
    def events(self) -> Events:
        """The events alone."""
        return tuple(step.event for step in self.steps)


def session_run(system: System, oracles: Sequence[Oracle], prefer: Identity | None = None) -> Run:
    """A `Run` on one system that is reset for every try. prefer: taken where an event shows several violations."""

    def run(config: EngineConfig, events: Events) -> Ran:
        try:
            session = Session(system, config, oracles)
        except EngineFault as fault:
            return Ran(identity=None, steps=(), stillborn=str(fault))
        try:
            for event in events:
                session.step(event)
                if session.over:
                    break
        except EngineFault as fault:
            return Ran(identity=fault_identity(fault), steps=tuple(session.steps))
        found = [violation.identity for violation in session.violations]
        identity = prefer if prefer in found else found[0] if found else None
        return Ran(identity=identity, steps=tuple(session.steps))

    return run


def shrink_events(
    config: EngineConfig,
    events: Sequence[Event],
    run: Run,
    identity: Identity | None = None,
    *,
    max_tries: int = 5000,
    stop: Callable[[], bool] = lambda: False,
) -> Shrunk:
    """Shrink to a 1-minimal form of the same identity.

    identity: which violation to keep; None takes the one that the first run shows. max_tries: budget of runs; stop:
    asked before every run, e.g. a deadline. Raises TraceError if the events don't show the violation.
    """
    return _Shrinker(run, max_tries, stop).shrink(config, tuple(events), identity)


def shrink_trace(
    trace: Trace,
    system: System,
    oracles: Sequence[Oracle],
    *,
    max_tries: int = 5000,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Trace, Shrunk]:
    """Shrink a trace on a system, keeping its expected identity; returns the smaller trace and how it went."""
    run = session_run(system, oracles, prefer=trace.expected)
    shrunk = shrink_events(trace.config, trace.events, run, trace.expected, max_tries=max_tries, stop=stop)
    smaller = Trace(
        config=shrunk.config, steps=shrunk.steps, system=system.name, version=system.version, expected=shrunk.identity,
        seed=trace.seed, note=trace.note,
    )  # fmt: skip
    return smaller, shrunk


class _Spent(Exception):
    """The budget ended."""


class _Shrinker:
    """State of one shrink: the smallest form so far and every candidate that was tried."""

    def __init__(self, run: Run, max_tries: int, stop: Callable[[], bool]) -> None:
        self._run = run
        self._max_tries = max_tries
        self._stop = stop
        self._tried: set[tuple[EngineConfig, Events]] = set()
        self.tries = self.spared = 0

    def shrink(self, config: EngineConfig, events: Events, identity: Identity | None) -> Shrunk:
        first = self._run(config, events)
        self.tries += 1
        if first.stillborn:
            raise TraceError(f"there is nothing to shrink: the engine fails before the first event: {first.stillborn}")
        if first.identity is None or (identity is not None and first.identity != identity):
            wanted, got = identity or "a violation", first.identity or "no violation"
            raise TraceError(f"there is nothing to shrink: the events show {got}, not {wanted}.")
        self._identity = first.identity
        self._config, self._steps = config, first.steps
        before = len(first.steps)
        passes = (self._drop_requests, self._drop_chunks, self._simplify_config, self._lower_coarsely, self._rename,
                  self._drop_pairs, self._lower_together, self._lower_finely)  # fmt: skip
        minimal = True
        try:
            # A pass that helped restarts the round, so that cheap passes come before dear ones. The result is where
            # every pass, in a row and from the same state, found nothing.
            while any(one_pass() for one_pass in passes):
                pass
        except _Spent:
            minimal = False
        last = self._run(self._config, self._events)
        return Shrunk(
            config=self._config, steps=self._steps, identity=self._identity, before=before, tries=self.tries,
            spared=self.spared, minimal=minimal, repeatable=last == Ran(identity=self._identity, steps=self._steps),
        )  # fmt: skip

    @property
    def _events(self) -> Events:
        return tuple(step.event for step in self._steps)

    def _accept(self, events: Events, config: EngineConfig | None = None) -> bool:
        """Try one candidate; if it shows the same bug, it (as far as it was applied) becomes the current form."""
        config = config or self._config
        key = (config, events)
        if key in self._tried:
            self.spared += 1
            return False  # it failed, or it was accepted once and has been improved on since
        if self.tries >= self._max_tries or self._stop():
            raise _Spent
        self._tried.add(key)
        self.tries += 1
        try:
            ran = self._run(config, events)
        except ConfigError:
            return False
        if ran.identity != self._identity:
            return False
        self._config, self._steps = config, ran.steps
        self._tried.add((config, self._events))
        return True

    def _first(self, candidates: Iterable[Events]) -> bool:
        return any(self._accept(candidate) for candidate in candidates)

    # ------------------------------------------------------------------ fewer events
    def _drop_requests(self) -> bool:
        return self._first(without_rid(self._events, rid) for rid in rids_in(self._events))

    def _drop_chunks(self) -> bool:
        """Chunks of half, a quarter, … down to single events, from the end; a success goes on at the same size."""
        helped, size = False, max(1, len(self._steps) // 2)
        while True:
            end = len(self._steps)
            while end > 0:
                events, start = self._events, max(0, end - size)
                if self._accept(events[:start] + events[end:]):
                    helped = True
                end = min(start, len(self._steps))
            if size == 1:
                return helped
            size //= 2

    def _drop_pairs(self) -> bool:
        events = self._events
        reach = len(events) if len(events) <= ALL_PAIRS else PAIR_REACH
        return self._first(
            tuple(event for index, event in enumerate(events) if index not in pair)
            for pair in combinations(range(len(events)), 2)
            if pair[1] - pair[0] <= reach
        )

    # ------------------------------------------------------------------ simpler configuration, arguments, names
    def _simplify_config(self) -> bool:
        helped = False
        for axis in AXES:
            while any(self._accept(self._events, config) for config in simpler_configs(self._config, axis)):
                helped = True
        return helped

    def _lower_each(self, numbers: Callable[[int, int], Iterator[int]]) -> bool:
        """Lower one event after the other, each as far as it goes."""
        helped, index = False, 0
        while index < len(self._steps):
            events = self._events
            if self._first((*events[:index], form, *events[index + 1 :]) for form in lowered(events[index], numbers)):
                helped = True
            else:
                index += 1
        return helped

    def _lower_coarsely(self) -> bool:
        return self._lower_each(coarse_numbers)

    def _lower_finely(self) -> bool:
        return self._lower_each(lower_numbers)

    def _lower_together(self) -> bool:
        return self._first(lowered_together(self._events))

    def _rename(self) -> bool:
        """All rids to a, b, c, … in order of first mention; where that loses the bug, one at a time to a free name."""
        events = self._events
        rids = rids_in(events)
        plain = dict(zip(rids, plain_names(), strict=False))
        if all(old == new for old, new in plain.items()):
            return False
        if self._accept(renamed(events, plain)):
            return True
        return self._first(renamed(events, {old: new}) for old, new in plain.items() if old != new and new not in rids)
