"""Rerun: the same system twice must be the same to the bit; what differs is named down to the innermost field."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Settle
from specfuzz.core.notation import parse_events
from specfuzz.core.port import Comparing, System
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import EngineFault
from specfuzz.session import Session
from specfuzz.systems.rerun import RerunSystem
from tests.trace.toy import ToySystem

TEXT = "submit(a,4,9) submit(b,4,9) prefill(a) settle prepare verify(a=3) settle retract(a) idle"


class Noisy(ToySystem):
    """Differs in its states from the given event on."""

    def __init__(self, since: type[Event]) -> None:
        super().__init__()
        self.since, self.noisy = since, False

    def apply(self, event: Event) -> Receipt:
        receipt = super().apply(event)
        self.noisy = self.noisy or isinstance(event, self.since)
        return receipt

    def snapshot(self) -> Snapshot:
        state = super().snapshot()
        if not self.noisy:
            return state
        return replace(state, reqs={rid: replace(req, retraction_count=7) for rid, req in state.reqs.items()})


def run(first: ToySystem, second: ToySystem, text: str = TEXT) -> tuple[Session, RerunSystem]:
    system = RerunSystem(first, second)
    session = Session(system, EngineConfig(), ())
    for event in parse_events(text):
        session.step(event)
    return session, system


def test_it_is_a_system_that_compares() -> None:
    system = RerunSystem(ToySystem(), ToySystem())
    assert isinstance(system, System) and isinstance(system, Comparing) and system.name == "rerun:toy"


def test_a_deterministic_system_has_no_difference() -> None:
    session, system = run(ToySystem(), ToySystem())
    assert not session.violations and len(session.steps) == 9
    assert system.compared["receipt"] == system.compared["reqs"] == 9


def test_a_state_that_differs_is_named_to_its_innermost_field() -> None:
    session, _ = run(ToySystem(), Noisy(Settle))
    (violation,) = session.violations
    assert (violation.oracle, violation.owner, violation.phase) == ("rerun", "recorder", "after-event")
    assert violation.fact == "first run: reqs[a].retraction_count is 0 after `settle`"
    assert violation.counterfact == "second run: reqs[a].retraction_count is 7 after the same events"
    assert violation.event_index == 3


def test_a_receipt_that_differs_is_a_difference() -> None:
    class Chatty(ToySystem):
        def apply(self, event: Event) -> Receipt:
            return replace(super().apply(event), executed=len(self.reqs))

    session, _ = run(ToySystem(), Chatty())
    assert session.violations[0].fact.startswith("first run: receipt.executed is 0")


def test_the_order_of_a_mapping_counts() -> None:
    class Reversed(ToySystem):
        def snapshot(self) -> Snapshot:
            state = super().snapshot()
            return replace(state, reqs=dict(reversed(state.reqs.items())))

    assert run(ToySystem(), Reversed())[0].violations[0].event_index == 1


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (ToySystem("crash"), ToySystem(), "only the first of two runs of `toy` failed"),
        (ToySystem(), ToySystem("crash"), "only the second of two runs of `toy` failed"),
        (ToySystem("crash"), ToySystem("crash"), "^IndexError: pop"),
    ],
)
def test_a_fault_in_one_run_alone_says_so(first: ToySystem, second: ToySystem, says: str) -> None:
    with pytest.raises(EngineFault, match=says):
        run(first, second, "submit(a,4,9) prefill(a) prepare verify abort(a)")


def test_closing_closes_both() -> None:
    first, second = ToySystem(), ToySystem()
    RerunSystem(first, second).close()
    assert first.closed and second.closed
