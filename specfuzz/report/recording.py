"""A run written down moment by moment: the event, the receipt, the state after it and each request's phase."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from specfuzz.core.clock import Phase
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.oracle import Oracle, Reachable
from specfuzz.core.phase import phase_of
from specfuzz.core.port import System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.core.verdict import Violation
from specfuzz.errors import EngineFault
from specfuzz.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One event that was asked for. receipt, snapshot: None where it was not legal, or the engine failed in it.

    phases: of every request that was submitted so far, by rid.
    """

    event: Event
    receipt: Receipt | None = None
    snapshot: Snapshot | None = None
    phases: Mapping[str, Phase]

    @property
    def applied(self) -> bool:
        """Whether the engine ran it to its end."""
        return self.snapshot is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All moments of one run, up to and including the first violation or fault.

    violations: what the last applied event showed. fault: what the engine raised, if it did. digest: of the whole run.
    """

    system: str
    version: str
    config: EngineConfig
    moments: tuple[Moment, ...]
    violations: tuple[Violation, ...] = ()
    fault: EngineFault | None = None
    digest: str = ""

    @property
    def applied(self) -> tuple[Moment, ...]:
        """The moments that the engine ran; `Violation.event_index` counts these."""
        return tuple(moment for moment in self.moments if moment.applied)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events that belong into a trace: the applied ones and the one in which the engine failed."""
        failed = self.moments[-1:] if self.fault is not None else ()
        return tuple(moment.event for moment in (*self.applied, *failed))


def record(
    system: System,
    config: EngineConfig,
    events: Iterable[Event],
    oracles: Sequence[Oracle] = (),
    goals: Sequence[Reachable] = (),
) -> Recording:
    """Run the events on the system and write down what each clock said; stops after the first violation or fault."""
    try:
        session = Session(system, config, oracles, goals, keep_digest=True)
    except EngineFault as fault:  # it failed before the first event
        return Recording(system=system.name, version=system.version, config=config, moments=(), fault=fault)
    moments: list[Moment] = []
    for event in events:
        before = len(session.steps)
        try:
            session.step(event)
        except EngineFault:
            moments.append(Moment(event=event, phases=_phases(session)))
            break
        if len(session.steps) == before:
            moments.append(Moment(event=event, phases=_phases(session)))
            continue
        receipt = session.steps[-1].receipt
        moments.append(Moment(event=event, receipt=receipt, snapshot=session.state, phases=_phases(session)))
        if session.over:
            break
    return Recording(
        system=system.name, version=system.version, config=config, moments=tuple(moments),
        violations=tuple(session.violations), fault=session.fault, digest=session.digest(),
    )  # fmt: skip


def _phases(session: Session) -> dict[str, Phase]:
    return {rid: phase_of(rid, session.ledger, session.state) for rid in session.ledger.requests}
