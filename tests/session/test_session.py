"""The session: illegal events leave no mark, a fault or a violation ends it, nonsense is refused, differences count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.judge import Tally
from specfuzz.core.notation import parse_events
from specfuzz.core.oracle import Oracle, Reachable, Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.core.verdict import Clash, Identity, Verdict, Violation
from specfuzz.errors import EngineFault
from specfuzz.session import Session
from tests.trace.toy import ORACLES, ToySystem

FLOW = "submit(a,4,9) prefill(a) settle prepare verify(a=2) settle"


def run(text: str, system: ToySystem | None = None, oracles: tuple[Oracle, ...] = ORACLES) -> Session:
    session = Session(system or ToySystem(), EngineConfig(), oracles, keep_digest=True)
    for event in parse_events(text):
        session.step(event)
    return session


@pytest.mark.parametrize(
    "noise",
    ["verify", "settle prepare prefill(b)", "submit(a,4,9)", "retract(z) abort(z) finish(z@3)", "publish evict(0)"],
)
def test_an_illegal_event_leaves_no_mark(noise: str) -> None:
    quiet = run("submit(a,4,9) prefill(a) prepare verify(a=2)")
    noisy = run("submit(a,4,9)")
    for event in parse_events(noise):
        if not noisy.ledger.admits(event):
            noisy.step(event)
    skipped = noisy.skipped
    for event in parse_events("prefill(a) prepare verify(a=2)"):
        noisy.step(event)
    assert skipped > 0
    assert noisy.digest() == quiet.digest() and noisy.steps == quiet.steps


def test_a_skipped_event_returns_no_violation_and_is_counted() -> None:
    session = run(FLOW)
    assert session.step(parse_events("verify")[0]) == []
    assert session.skipped == 1 and len(session.steps) == 6


def test_a_step_stores_the_event_with_what_the_engine_decided() -> None:
    session = run("submit(a,4,9) prefill(a)")
    assert session.steps[1].event == parse_events("prefill(a)")[0]
    assert session.steps[1].receipt.launch == 1


# ------------------------------------------------------------------------------------------------------- how it ends


def test_a_fault_of_the_engine_is_raised_and_recorded_as_the_last_event() -> None:
    session = run("submit(a,4,9) prefill(a) prepare verify", ToySystem("crash"))
    with pytest.raises(EngineFault, match="pop from an empty list") as caught:
        session.step(parse_events("abort(a)")[0])
    assert session.fault is caught.value
    assert session.steps[-1].event == parse_events("abort(a)")[0] and session.steps[-1].receipt == Receipt()


def test_a_fault_ends_the_session() -> None:
    session = run("submit(a,4,9) prefill(a) prepare verify", ToySystem("crash"))
    with pytest.raises(EngineFault):
        session.step(parse_events("abort(a)")[0])
    count = len(session.steps)
    assert session.over and session.step(parse_events("settle")[0]) == []
    assert len(session.steps) == count and session.skipped == 1


def test_a_violation_ends_the_session() -> None:
    session = run("submit(a,4,9) prefill(a) settle retract(a) submit(b,4,9)", ToySystem("leak"))
    assert [violation.oracle for violation in session.violations] == ["pages-conserved"]
    assert session.violations[0].event_index == 3 and len(session.steps) == 4 and session.skipped == 1


def test_a_session_that_runs_to_the_end_goes_on_behind_a_violation() -> None:
    events = parse_events("submit(a,4,9) prefill(a) settle retract(a) submit(b,4,9)")
    session = Session(ToySystem("leak"), EngineConfig(), ORACLES, to_the_end=True)
    found = [[violation.oracle for violation in session.step(event)] for event in events]
    assert found == [[], [], [], ["pages-conserved"], ["pages-conserved"]]
    assert [violation.event_index for violation in session.violations] == [4]
    assert session.skipped == 0 and not session.over


def test_a_fault_ends_also_a_session_that_runs_to_the_end() -> None:
    session = Session(ToySystem("crash"), EngineConfig(), ORACLES, to_the_end=True)
    *events, crashing, behind = parse_events("submit(a,4,9) prefill(a) prepare verify abort(a) settle")
    for event in events:
        session.step(event)
    with pytest.raises(EngineFault):
        session.step(crashing)
    assert session.over and session.step(behind) == [] and session.skipped == 1


def test_the_trace_expects_the_first_violation() -> None:
    session = run("submit(a,4,9) prefill(a) settle retract(a)", ToySystem("leak"))
    assert session.trace().expected == Identity("pages-conserved", "kv_allocator", "after-event")


def test_the_trace_of_a_run_that_holds_expects_nothing() -> None:
    trace = run(FLOW).trace(note="fine")
    assert trace.expected is None and trace.system == "toy" and trace.note == "fine"
    assert trace.events == parse_events(FLOW)


# ------------------------------------------------------------------------------------------------------------ oracles


def oracle(answer: object, scope: Scope = Scope.RUN) -> Oracle:
    return Oracle(
        name="odd", formula="-", clock=Clock.HOST, owner=Owner.SCHEDULER, point=Point.AFTER_EVENT, scope=scope,
        source="-", twin="-", check=lambda *_: answer,
    )  # fmt: skip


@pytest.mark.parametrize("scope", [Scope.RUN, Scope.REQUEST, Scope.POOL])
@pytest.mark.parametrize("nonsense", [True, False, "fine", 0, Verdict.VIOLATED])
def test_an_oracle_that_returns_nonsense_is_a_type_error_that_names_it(nonsense: object, scope: Scope) -> None:
    with pytest.raises(TypeError, match="`odd` returned"):
        run("submit(a,4,9) prefill(a)", oracles=(oracle(nonsense, scope),))


def clumsy(name: str = "clumsy", scope: Scope = Scope.RUN) -> Oracle:
    def check(step: Step, *subject: object) -> Verdict:
        return Verdict.HOLDS if step.index < 2 else (Verdict.HOLDS, Verdict.HOLDS)[step.index]

    return replace(oracle(Verdict.HOLDS, scope), name=name, check=check)


@pytest.mark.parametrize("scope", [Scope.RUN, Scope.REQUEST, Scope.POOL])
def test_an_oracle_that_raises_is_a_finding_that_names_it_and_the_line(scope: Scope) -> None:
    tally = Tally()
    session = Session(ToySystem(), EngineConfig(), (clumsy(scope=scope),), tally=tally)
    for event in parse_events("submit(a,4,9) submit(b,4,9) prefill(a) settle"):
        session.step(event)
    found = session.violations[0]
    assert found.identity == Identity("oracle-fault", "recorder", "indexerror-in-clumsy") and found.event_index == 2
    assert "IndexError: tuple index out of range at `return Verdict.HOLDS if step.index < 2" in found.values
    assert session.over and session.trace().expected == found.identity
    count = tally.of("clumsy")
    assert (count.violated, count.unsure) == (0, len(session.violations)), "it has not judged"


def test_behind_an_oracle_that_raises_the_others_judge_and_their_violations_stand_in_front() -> None:
    run_rule = replace(oracle(Clash("1 == 2", "1", "2")), name="broken")
    goal = Reachable(name="goal", reached=lambda step: bool((1,)[step.index]), doc="raises as well")
    rules = (clumsy("first"), run_rule, clumsy("second"))
    session = Session(ToySystem(), EngineConfig(), rules, (goal,), to_the_end=True)
    for event in parse_events("submit(a,4,9) submit(b,4,9) submit(c,4,9)"):
        session.step(event)
    found = [(violation.oracle, violation.phase) for violation in session.violations]
    assert found == [
        ("broken", "after-event"), ("oracle-fault", "indexerror-in-first"), ("oracle-fault", "indexerror-in-second"),
        ("oracle-fault", "indexerror-in-goal"),
    ]  # fmt: skip


def test_a_receipt_that_makes_no_sense_is_a_fault() -> None:
    class Inventing(ToySystem):
        def apply(self, event: Event) -> Receipt:
            return replace(super().apply(event), retracted=("nobody",))

    session = Session(Inventing(), EngineConfig(), ORACLES)
    with pytest.raises(EngineFault, match=r"the receipt of `submit\(a,4,9\)` makes no sense \(KeyError: 'nobody'\)"):
        session.step(parse_events("submit(a,4,9)")[0])
    assert session.over and len(session.steps) == 1


def test_verdicts_are_counted_across_sessions() -> None:
    tally = Tally()
    answers: list[object] = [Verdict.HOLDS, Verdict.UNKNOWN, None]
    for answer in answers:
        session = Session(ToySystem(), EngineConfig(), (oracle(answer),), tally=tally)
        session.step(parse_events("submit(a,4,9)")[0])
    count = tally.of("odd")
    assert (count.holds, count.unknown, count.not_applicable, count.violated) == (1, 1, 1, 0)


def test_an_oracle_sees_the_state_on_both_sides_of_the_event() -> None:
    seen: list[tuple[int, int, int]] = []

    def check(step: Step) -> Verdict:
        seen.append((step.index, len(step.before.reqs), len(step.after.reqs)))
        return Verdict.HOLDS

    watching = Oracle(
        name="watching", formula="-", clock=Clock.HOST, owner=Owner.SCHEDULER, point=Point.AFTER_EVENT,
        scope=Scope.RUN, source="-", twin="-", check=check,
    )  # fmt: skip
    run("submit(a,4,9) verify submit(b,4,9)", oracles=(watching,))
    assert seen == [(0, 0, 1), (1, 1, 2)]


def test_a_goal_is_counted_when_it_is_reached() -> None:
    tally = Tally()
    goal = Reachable(name="two", reached=lambda step: len(step.after.reqs) == 2, doc="two requests")
    session = Session(ToySystem(), EngineConfig(), (), (goal,), tally=tally)
    for event in parse_events("submit(a,4,9) submit(b,4,9) submit(c,4,9)"):
        session.step(event)
    assert tally.reached == {"two": 1}


# --------------------------------------------------------------------------------------------------- comparing systems


class Differing(ToySystem):
    """Two systems in one, which differ from the second event on."""

    def __init__(self) -> None:
        super().__init__()
        self.compared: Mapping[str, int] = {}
        self.asked: list[int] = []

    def take_differences(self, event_index: int) -> list[Violation]:
        self.asked.append(event_index)
        if event_index == 0:
            return []
        return [
            Violation(
                oracle="lockstep", owner="scheduler", clock="host", phase="after-event", formula="same",
                values="1 != 2", fact="first", counterfact="second", source="-", event_index=event_index,
            )
        ]  # fmt: skip


def test_a_difference_between_compared_systems_is_a_violation() -> None:
    system = Differing()
    session = run("submit(a,4,9) verify submit(b,4,9)", system)
    assert [violation.identity for violation in session.violations] == [
        Identity("lockstep", "scheduler", "after-event")
    ]
    assert system.asked == [0, 1] and session.over


def test_differences_stand_behind_what_the_oracles_found() -> None:
    class Both(Differing):
        def snapshot(self) -> Snapshot:
            self.used = len(self.reqs)  # pages that nobody holds
            return super().snapshot()

    session = Session(Both(), EngineConfig(), ORACLES)
    session.step(parse_events("submit(a,4,9)")[0])
    assert [violation.oracle for violation in session.violations] == ["pages-conserved"]


def test_the_system_is_reset_when_a_session_begins() -> None:
    system = ToySystem()
    for _ in range(2):
        session = Session(system, EngineConfig(), ())
        assert session.state.reqs == {}
        session.step(parse_events("submit(a,4,9)")[0])
    assert system.opened == 2


def test_the_digest_covers_receipts_and_states() -> None:
    class Chatty(ToySystem):
        def apply(self, event: Event) -> Receipt:
            super().apply(event)
            return Receipt(executed=1)

    assert run("submit(a,4,9)").digest() != run("submit(a,4,9)", Chatty()).digest()
