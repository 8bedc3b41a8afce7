"""Replay applies the events again and says where it went another way than recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.receipt import Receipt
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity, Verdict
from specfuzz.errors import EngineFault
from specfuzz.session import Session
from specfuzz.trace import replay_many, replay_trace
from tests.trace.toy import ORACLES, ToySystem

LEAK = Identity("pages-conserved", "kv_allocator", "after-event")
STORY = "submit(a,4,9) prefill(a) prepare verify(a=3) settle settle retract(a)"


def record(system: ToySystem, text: str = STORY) -> Trace:
    session = Session(system, EngineConfig(), ORACLES)
    try:
        for event in parse_events(text):
            session.step(event)
    except EngineFault:
        return session.trace(expected=Identity("engine-fault", "engine", "exception"))
    return session.trace()


def test_the_recorded_violation_comes_about() -> None:
    trace = record(ToySystem("leak"))
    again = replay_trace(trace, ToySystem("leak"), ORACLES)
    assert (trace.expected, again.got, again.verdict) == (LEAK, LEAK, Verdict.VIOLATED)
    assert again.came_about and again.divergence is None
    assert again.applied == 7 and again.skipped == 0 and again.trace == trace


def test_another_system_is_expected_to_hold() -> None:
    again = replay_trace(record(ToySystem("leak", name="bad")), ToySystem(), ORACLES)
    assert again.expected is None and again.verdict is Verdict.HOLDS and again.came_about


def test_the_caller_may_say_that_it_is_the_recorded_system() -> None:
    again = replay_trace(record(ToySystem("leak", name="bad")), ToySystem("leak"), ORACLES, same_system=True)
    assert again.expected == LEAK and again.came_about


def test_another_system_that_has_the_bug_too_does_not_pass() -> None:
    again = replay_trace(record(ToySystem("leak", name="bad")), ToySystem("leak"), ORACLES)
    assert again.got == LEAK and not again.came_about


def test_without_oracles_nothing_can_be_said() -> None:
    assert replay_trace(record(ToySystem()), ToySystem(), ()).verdict is Verdict.UNKNOWN


def test_a_receipt_that_differs_is_a_divergence_with_its_first_field() -> None:
    trace = record(ToySystem())
    steps = list(trace.steps)
    steps[5] = TraceStep(event=steps[5].event, receipt=replace(steps[5].receipt, emitted=(("a", (1,)),), executed=9))
    again = replay_trace(replace(trace, steps=tuple(steps)), ToySystem(), ORACLES)
    assert again.divergence is not None and not again.came_about
    assert (again.divergence.index, again.divergence.field) == (5, "emitted")
    assert "event 5 `settle`: emitted (('a', (1,)),) -> (('a', (1, 2, 3)),)" in str(again.divergence)
    assert "rerun:toy" in again.divergence.cause


def test_device_progress_is_no_decision() -> None:
    trace = record(ToySystem())
    steps = tuple(TraceStep(event=s.event, receipt=replace(s.receipt, executed=5)) for s in trace.steps)
    assert replay_trace(replace(trace, steps=steps), ToySystem(), ORACLES).came_about


def test_another_version_is_named_as_the_likely_cause() -> None:
    trace = record(ToySystem())
    steps = (*trace.steps[:-1], TraceStep(event=trace.steps[-1].event, receipt=Receipt(evicted=1)))
    again = replay_trace(replace(trace, steps=steps, version="0"), ToySystem(), ORACLES)
    assert again.divergence is not None and "the engine has changed" in again.divergence.cause


def test_an_event_that_is_not_legal_is_skipped_and_diverges() -> None:
    trace = record(ToySystem())
    again = replay_trace(replace(trace, steps=(*trace.steps, *trace.steps[3:4])), ToySystem(), ORACLES)
    assert again.skipped == 1 and again.divergence is not None and again.divergence.field == "legality"


def test_a_trace_written_by_hand_has_no_receipts_to_diverge_from() -> None:
    steps = tuple(TraceStep(event=event) for event in parse_events("settle " + STORY))
    again = replay_trace(Trace(config=EngineConfig(), steps=steps, system="toy"), ToySystem(), ORACLES)
    assert again.divergence is None and again.skipped == 1 and again.came_about


def test_a_violation_before_the_last_event_is_a_divergence() -> None:
    trace = record(ToySystem(), STORY + " idle")
    again = replay_trace(trace, ToySystem("leak"), ORACLES)
    assert again.divergence is not None and again.divergence.field == "verdict" and again.divergence.index == 6
    assert again.skipped == 1


def test_an_engine_fault_is_a_finding_with_its_own_identity() -> None:
    trace = record(ToySystem("crash"), "submit(a,4,9) prefill(a) prepare verify abort(a)")
    again = replay_trace(trace, ToySystem("crash"), ORACLES)
    assert again.got == ("engine-fault", "engine", "exception") and again.came_about
    assert again.fault is not None and again.applied == 5


def test_a_thousand_replays_have_one_digest() -> None:
    repeats = replay_many(record(ToySystem("leak")), ToySystem("leak"), ORACLES, repeat=1000)
    assert repeats.deterministic and repeats.repeats == 1000 and repeats.first.came_about


def test_a_system_that_remembers_its_last_run_has_more_digests() -> None:
    class Forgetful(ToySystem):
        def reset(self, config: EngineConfig) -> None:
            super().reset(config)
            self.used = self.opened % 2

    repeats = replay_many(record(ToySystem()), Forgetful(), ORACLES[1:], repeat=4)
    assert len(repeats.digests) == 2 and not repeats.deterministic and repeats.odd is not None


@pytest.mark.parametrize("bug", ["leak", "late", "long"])
def test_the_clean_toy_holds_on_every_bugs_trace(bug: str) -> None:
    text = "submit(a,4,9) submit(b,4,9) prefill(a) settle prepare verify(a=3) settle prefill(b) retract(b) settle"
    trace = record(ToySystem(bug, name="bad"), text)
    assert trace.expected is not None
    assert replay_trace(trace, ToySystem(), ORACLES).came_about


class HangsAtStart(ToySystem):
    def reset(self, config: EngineConfig) -> None:
        raise EngineFault("no answer within 3 seconds", kind="hang")


def test_an_engine_that_fails_before_the_first_event_is_a_finding() -> None:
    trace = record(ToySystem())
    again = replay_trace(trace, HangsAtStart(), ORACLES)
    assert (again.got, again.verdict) == (("engine-fault", "engine", "hang"), Verdict.VIOLATED)
    assert again.fault is not None and not again.came_about
    assert (again.applied, again.skipped, again.trace.events) == (0, 7, trace.events)
    assert replay_many(trace, HangsAtStart(), ORACLES, repeat=3).deterministic


def test_repetitions_end_when_they_are_stopped() -> None:
    repeats = replay_many(record(ToySystem()), ToySystem(), ORACLES, repeat=9, stop=iter([False, False, True]).__next__)
    assert repeats.repeats == 3 and repeats.deterministic
