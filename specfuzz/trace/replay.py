"""Replays a trace on a system and says where it went another way than recorded.

A receipt is never an input of replay: events are applied again, and what the engine decides this time is compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from specfuzz.core.event import Event
from specfuzz.core.judge import Tally
from specfuzz.core.notation import format_event
from specfuzz.core.oracle import Oracle, Reachable
from specfuzz.core.port import System
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.trace import Trace
from specfuzz.core.verdict import Identity, Verdict, Violation
from specfuzz.errors import EngineFault
from specfuzz.session import Session

#: Oracle name of an engine exception, hang or crash; its owner is the whole engine, its phase what failed and where.
FAULT = "engine-fault"

#: Receipt fields that are not decisions: how much device work an event happened to run depends on what runs it.
NOT_COMPARED = frozenset({"executed"})


def fault_identity(fault: EngineFault) -> Identity:
    """The identity under which an engine fault is a finding."""
    place = re.sub("[^a-z0-9]+", "-", f"{fault.kind} {fault.where}".lower()).strip("-")
    return Identity(FAULT, "engine", place[:80])


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """The first place where a replay left its record. index: 0-based position in the recorded trace.

    field: of the receipt; or `legality` (the event could not be applied) or `verdict` (the run ended earlier).
    """

    index: int
    event: Event
    field: str
    recorded: str
    replayed: str
    cause: str

    def __str__(self) -> str:
        return (
            f"trace diverged at event {self.index} `{format_event(self.event)}`: {self.field} {self.recorded} -> "
            f"{self.replayed}. {self.cause}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a replay came to. trace: as it ran this time, with the new receipts.

    verdict: VIOLATED by a violation or a fault, UNKNOWN if nothing judged, else HOLDS. expected: what the header asks
    for, or None (holds) on another system than the recorded one. got: the expected identity if it is among the
    violations, else that of the first. digest: of every event, receipt and state. skipped: recorded events that were
    not applied.
    """

    verdict: Verdict
    expected: Identity | None
    got: Identity | None
    violations: tuple[Violation, ...]
    fault: EngineFault | None
    divergence: Divergence | None
    digest: str
    applied: int
    skipped: int
    same_system: bool
    trace: Trace

    @property
    def came_about(self) -> bool:
        """Whether the expected verdict came about; on the recorded system also along the recorded way."""
        return self.got == self.expected and not (self.same_system and self.divergence is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Many replays of one trace. digests: those seen, in order of appearance; one means deterministic.

    odd: the first replay that differed from the first one, or None.
    """

    first: Replay
    digests: tuple[str, ...]
    repeats: int
    odd: Replay | None = None

    @property
    def deterministic(self) -> bool:
        """Whether every replay went the same way, to the bit."""
        return len(self.digests) == 1


#: Sorts violations of one event, the root first.
Order = Callable[[Sequence[Violation]], list[Violation]]


def replay_trace(
    trace: Trace,
    system: System,
    oracles: Sequence[Oracle],
    goals: Sequence[Reachable] = (),
    *,
    tally: Tally | None = None,
    same_system: bool | None = None,
    order: Order = list,
) -> Replay:
    """Apply the trace's events to a fresh `system` and judge them; raises ConfigError if the system can't run them.

    same_system: whether the header's expected verdict applies to this system; None asks whether the names are equal.
    order: puts the violation to speak about first, where the trace doesn't name one.
    """
    counts = tally if tally is not None else Tally()
    before = sum(count.applied for count in counts.oracles.values())
    if same_system is None:
        same_system = system.name == trace.system
    try:
        session = Session(system, trace.config, oracles, goals, tally=counts, keep_digest=True)
    except EngineFault as fault:
        return _stillborn(trace, fault, same_system)
    recorded = _has_receipts(trace)
    divergence: Divergence | None = None
    for index, step in enumerate(trace.steps):
        if session.over:
            if recorded and divergence is None:
                divergence = _ended_early(trace, index, session)
            break
        if not session.ledger.admits(step.event):
            session.skipped += 1
            if recorded and divergence is None:
                divergence = _divergence(trace, index, "legality", "applied", "not legal, skipped", system)
            continue
        try:
            session.step(step.event)
        except EngineFault:
            continue
        if recorded and divergence is None:
            last = index == len(trace.steps) - 1
            if last and step.receipt == NOTHING and trace.expected is not None and trace.expected.oracle == FAULT:
                continue  # the engine faulted here, so it left no receipt
            divergence = _compare(trace, index, session.steps[-1].receipt, system)
    expected = trace.expected if same_system else None
    violations = order(session.violations)
    found = [violation.identity for violation in violations]
    if session.fault is not None:
        found.append(fault_identity(session.fault))
    got = expected if expected in found else found[0] if found else None
    judged = sum(count.applied for count in counts.oracles.values()) > before
    return Replay(
        verdict=Verdict.VIOLATED if found else Verdict.HOLDS if judged else Verdict.UNKNOWN,
        expected=expected, got=got, violations=tuple(violations), fault=session.fault, divergence=divergence,
        digest=session.digest(), applied=len(session.steps), skipped=len(trace.steps) - len(session.steps),
        same_system=same_system, trace=session.trace(expected=got, seed=trace.seed, note=trace.note),
    )  # fmt: skip


def _stillborn(trace: Trace, fault: EngineFault, same_system: bool) -> Replay:
    """The engine failed before the first event: what the trace holds is what has to be run to see it again."""
    got = fault_identity(fault)
    return Replay(
        verdict=Verdict.VIOLATED, expected=trace.expected if same_system else None, got=got, violations=(), fault=fault,
        divergence=None, digest="", applied=0, skipped=len(trace.steps), same_system=same_system,
        trace=replace(trace, expected=got),
    )  # fmt: skip


def replay_many(
    trace: Trace,
    system: System,
    oracles: Sequence[Oracle],
    *,
    repeat: int,
    same_system: bool | None = None,
    stop: Callable[[], bool] = lambda: False,
    order: Order = list,
) -> Repeats:
    """Replay `repeat` times (at least once) on one system, reset in between, and collect the digests.

    stop: asked before every repetition; True leaves it at those so far. order: as for `replay_trace`.
    """
    first = replay_trace(trace, system, oracles, same_system=same_system, order=order)
    digests, odd, repeats = {first.digest: None}, None, 1
    while repeats < repeat and not stop():
        again = replay_trace(trace, system, oracles, same_system=same_system)
        repeats += 1
        digests[again.digest] = None
        if odd is None and again.digest != first.digest:
            odd = again
    return Repeats(first=first, digests=tuple(digests), repeats=repeats, odd=odd)


def _has_receipts(trace: Trace) -> bool:
    """A trace that was written by hand has none, and then there is nothing to diverge from."""
    return any(step.receipt != NOTHING for step in trace.steps)


def _compare(trace: Trace, index: int, got: Receipt, system: System) -> Divergence | None:
    wanted = trace.steps[index].receipt
    if wanted == got:
        return None
    for field in fields(Receipt):
        ours, theirs = getattr(wanted, field.name), getattr(got, field.name)
        if ours != theirs and field.name not in NOT_COMPARED:
            return _divergence(trace, index, field.name, repr(ours), repr(theirs), system)
    return None


def _ended_early(trace: Trace, index: int, session: Session) -> Divergence:
    """A violation or fault at an event that was not the last recorded one."""
    last = index - 1
    what = str(session.violations[0].identity) if session.violations else f"{FAULT}: {session.fault}"
    return _divergence(trace, last, "verdict", "nothing wrong", what, session.system)


def _divergence(trace: Trace, index: int, field: str, recorded: str, replayed: str, system: System) -> Divergence:
    return Divergence(
        index=index, event=trace.steps[index].event, field=field, recorded=recorded, replayed=replayed,
        cause=_likely_cause(trace, field, system),
    )  # fmt: skip


def _likely_cause(trace: Trace, field: str, system: System) -> str:
    if system.name != trace.system:
        return f"Recorded on `{trace.system}`, replayed on `{system.name}`: they decide differently here."
    if system.version != trace.version:
        return f"Recorded with version `{trace.version}`, replayed with `{system.version}`: the engine has changed."
    if field == "legality":
        return "Likely the rules of legality changed since it was recorded, or the trace was edited by hand."
    if field == "verdict":
        return "Likely the oracles changed since it was recorded, or only some of them were asked for then."
    return (
        "Likely the engine's code changed, or there is randomness outside of the trace; "
        f"run it with `--system rerun:{system.name}` to tell the two apart."
    )
