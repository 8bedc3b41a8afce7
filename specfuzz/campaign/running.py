"""Runs examples of one configuration: joins a machine, a system and oracles, and ends a run at its first finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

from hypothesis import seed as with_seed
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.judge import Tally
from specfuzz.core.oracle import Oracle, Reachable
from specfuzz.core.port import System
from specfuzz.core.trace import TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import EngineFault
from specfuzz.session import Session
from specfuzz.state_machine import Profile, machine_settings, make_machine
from specfuzz.trace.replay import fault_identity


class _EndRun(BaseException):
    """Ends a Hypothesis run at once. Not an Exception: Hypothesis would take it for a bug and run the example again."""


@dataclass(slots=True, kw_only=True)
class Counts:
    """What examples added up to. lazy: examples in which device work was pending at a host event."""

    examples: int = 0
    events: int = 0
    skipped: int = 0
    lazy: int = 0

    def add(self, session: Session) -> None:
        """Count one ended session."""
        self.examples += 1
        self.events += len(session.steps)
        self.skipped += session.skipped
        self.lazy += session.lazy


def run_examples(
    system: System,
    config: EngineConfig,
    oracles: Sequence[Oracle],
    *,
    seed: int,
    profile: Profile,
    goals: Sequence[Reachable] = (),
    tally: Tally | None = None,
    counts: Counts | None = None,
    on_start: Callable[[Session], None] | None = None,
    on_end: Callable[[Session], None] | None = None,
    keep_going: Callable[[], bool] = lambda: True,
    weighted: bool = True,
) -> Session | EngineFault | None:
    """Up to `profile.max_examples` examples; returns the session that ended in a violation or fault, None if all held.

    The same arguments give the same examples. keep_going: asked after every example, False ends the run. weighted: as
    for `make_machine`. A fault of the engine's start is returned bare. Raises ConfigError if the system can't run the
    configuration.
    """
    ended: list[Session | EngineFault] = []
    total = counts if counts is not None else Counts()
    shared = tally if tally is not None else Tally()

    def new_session() -> Session:
        try:
            session = Session(system, config, oracles, goals, tally=shared)
        except EngineFault as fault:
            ended.append(fault)
            raise _EndRun from fault
        if on_start is not None:
            on_start(session)
        return session

    def after_example(session: Session) -> None:
        total.add(session)
        if on_end is not None:
            on_end(session)
        if session.over:
            ended.append(session)
        if session.over or not keep_going():
            raise _EndRun

    machine = with_seed(seed)(make_machine(new_session, profile=profile, on_end=after_example, weighted=weighted))
    try:
        run_state_machine_as_test(machine, settings=machine_settings(profile))
    except _EndRun:
        pass
    except FlakyStrategyDefinition as complaint:  # on choices that it had met before, the run went another way
        ours = _below(complaint)
        if not isinstance(ours, _EndRun):
            raise ours or complaint from None
    return ended[0] if ended else None


def _below(error: BaseException | None) -> BaseException | None:
    """What went through Hypothesis before it complained: a fault of the engine, an interrupt, a failure of ours."""
    while error is not None and type(error).__module__.startswith("hypothesis."):
        error = error.__context__
    return error


def run_seed(seed: int, config: EngineConfig, number: int) -> int:
    """Seed of the number-th run of a configuration; it depends on nothing else that a campaign walks.

    Only on what differs from the defaults, so that a new field leaves old seeds what they were.
    """
    default = EngineConfig().as_dict()
    choices = sorted((name, value) for name, value in config.as_dict().items() if value != default[name])
    return crc32(repr((seed, choices, number)).encode())


def identity_of(found: Session | EngineFault) -> Identity:
    """What a run ended in."""
    if isinstance(found, EngineFault):
        return fault_identity(found)
    if found.violations:
        return found.violations[0].identity
    assert found.fault is not None
    return fault_identity(found.fault)


def shorter(profile: Profile, examples: int) -> Profile:
    """The profile with another number of examples."""
    return replace(profile, max_examples=examples)


def run_events(
    system: System, config: EngineConfig, events: Sequence[Event], oracles: Sequence[Oracle]
) -> tuple[Identity | None, tuple[TraceStep, ...]]:
    """Apply events from a fresh start: the identity that they end in (None: all holds) and what was really applied."""
    session = Session(system, config, oracles)
    try:
        for event in events:
            session.step(event)
            if session.over:
                break
    except EngineFault:
        pass
    return (identity_of(session) if session.over else None), tuple(session.steps)


def first_violations(
    system: System, config: EngineConfig, events: Sequence[Event], oracles: Sequence[Oracle]
) -> dict[str, int]:
    """Index of the event at which each oracle is first violated, also behind the violations of others.

    It ends where the engine raises: from then on nobody can say what an oracle would have seen.
    """
    session = Session(system, config, oracles, to_the_end=True)
    found: dict[str, int] = {}
    try:
        for event in events:
            for violation in session.step(event):
                found.setdefault(violation.oracle, violation.event_index)
    except EngineFault:
        pass
    return found
