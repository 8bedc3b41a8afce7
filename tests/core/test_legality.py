"""Legality is one fold over (event, receipt), total over all events; the toy supplies receipts of a real run."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.core.asked import Standing
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Advance, Event, Idle, Prefill, Retract, Settle
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.legality import Ledger
from specfuzz.core.notation import parse_events
from specfuzz.core.receipt import Receipt
from tests.trace.strategies import configs, events, few_rids, small
from tests.trace.toy import ToySystem

SYNC = EngineConfig(overlap=False)


def walk(text: str, config: EngineConfig | None = None) -> tuple[Ledger, list[str]]:
    """Apply what is legal to the toy; the ledger, and the tokens that were skipped."""
    config = config or EngineConfig()
    ledger, toy, skipped = Ledger(config), ToySystem(), []
    toy.reset(config)
    for token in text.split():
        (event,) = parse_events(token)
        if ledger.admits(event):
            ledger.record(event, toy.apply(event))
        else:
            skipped.append(token)
    return ledger, skipped


def state(ledger: Ledger) -> object:
    asked = {
        rid: (
            a.submit,
            a.standing,
            a.decided,
            a.settled,
            a.stop_at,
            a.aborted,
            a.was_retracted,
            a.extend_settled,
            a.lives,
        )
        for rid, a in ledger.requests.items()
    }
    return asked, ledger.in_flight, ledger.prepared, ledger.settled, ledger.launches, ledger.published, ledger.events


RUNNING = "submit(a,4,9) prefill(a) settle"


@given(configs(), st.lists(events(few_rids, small), max_size=40))
def test_every_event_has_an_answer_in_every_state_and_asking_changes_nothing(
    config: EngineConfig, sequence: list[Event]
) -> None:
    ledger, toy = Ledger(config), ToySystem()
    toy.reset(config)
    for event in sequence:
        before = deepcopy(state(ledger))
        legal = ledger.admits(event)
        assert isinstance(legal, bool) and ledger.admits(event) is legal
        assert state(ledger) == before
        if legal:
            ledger.record(event, toy.apply(event))


@given(configs(), st.lists(events(few_rids, small), max_size=40))
def test_the_fold_is_a_function_of_events_and_receipts(config: EngineConfig, sequence: list[Event]) -> None:
    ledger, toy, steps = Ledger(config), ToySystem(), []
    toy.reset(config)
    for event in sequence:
        if ledger.admits(event):
            steps.append((event, toy.apply(event)))
            ledger.record(*steps[-1])
    again = Ledger(config)
    for event, receipt in steps:
        again.record(event, receipt)
    assert state(again) == state(ledger)


@given(configs(), st.lists(events(few_rids, small), max_size=40))
def test_in_flight_is_never_more_than_two_and_one_without_overlap(config: EngineConfig, sequence: list[Event]) -> None:
    ledger, toy = Ledger(config), ToySystem()
    toy.reset(config)
    for event in sequence:
        if ledger.admits(event):
            ledger.record(event, toy.apply(event))
        assert len(ledger.in_flight) <= (2 if config.overlap else 1)
        # With something prepared, one launch more is promised already.
        if ledger.prepared is not None:
            assert ledger.may_launch() is False


def test_without_overlap_only_the_settle_may_follow_a_launch() -> None:
    ledger, _ = walk("submit(a,4,9) submit(b,4,9) prefill(a)", SYNC)
    every = parse_events(
        "submit(c,4,9) prefill(b) prepare verify publish advance(forward) settle "
        "finish(a@3) abort(a) retract(a) evict(1) idle"
    )
    assert [event for event in every if ledger.admits(event)] == [Advance("forward"), Settle(), Idle()]


def test_with_overlap_one_launch_may_stay_unsettled_and_two_may_not() -> None:
    assert walk("submit(a,4,9) submit(b,4,9) prefill(a) prefill(b)")[1] == []
    assert walk("submit(a,4,9) submit(b,4,9) submit(c,4,9) prefill(a) prefill(b) prefill(c) prepare")[1] == [
        "prefill(c)", "prepare",
    ]  # fmt: skip


def test_a_retracted_request_waits_until_nothing_in_flight_carries_it() -> None:
    ledger, skipped = walk(RUNNING + " prepare verify retract(a)")
    assert not skipped and ledger.requests["a"].standing is Standing.WAITING
    assert not ledger.admits(Prefill("a"))
    ledger, skipped = walk(RUNNING + " prepare verify retract(a) settle prefill(a)")
    assert not skipped and ledger.requests["a"].lives == 2


def test_a_retracted_request_loses_what_is_in_flight_and_keeps_what_is_settled() -> None:
    ledger, _ = walk(RUNNING + " prepare verify(a=3) retract(a)")
    assert (ledger.requests["a"].decided, ledger.requests["a"].settled) == (1, 1)


@pytest.mark.parametrize(
    ("before", "illegal"),
    [
        ("", "prefill(a) prepare verify publish settle finish(a@0) abort(a) retract(a)"),
        ("submit(a,4,9)", "submit(a,5,9) prepare retract(a) finish(a@12) prefill(a,2) mix(a)"),
        (RUNNING, "prefill(a) verify settle publish finish(a@0)"),
        (RUNNING + " prepare", "prepare evict(1) retract(a)"),
        (RUNNING + " prepare verify(a=3)", "finish(a@3)"),  # decided by a launched forward
        (RUNNING + " finish(a@5)", "finish(a@6)"),
        (RUNNING + " abort(a)", "abort(a)"),
        ("", "submit(a,1,9) submit(a,4,0) submit(a,60,9) submit(a,4,9,5)"),
    ],
)
def test_what_is_not_legal_now_is_skipped(before: str, illegal: str) -> None:
    for token in illegal.split():
        assert walk(f"{before} {token}")[1] == [token]


@pytest.mark.parametrize(
    ("before", "legal"),
    [
        ("", "submit(a,4,9) submit(b,4,9,4) advance(d2h,3) evict(1) idle"),
        (RUNNING, "prepare retract(a) finish(a@1) abort(a)"),
        (RUNNING + " prepare", "verify verify(a=3) abort(a)"),
        (RUNNING + " prepare verify(a=3)", "finish(a@4) publish settle prepare retract(a) abort(a)"),
    ],
)
def test_what_is_legal_now_is_applied(before: str, legal: str) -> None:
    for token in legal.split():
        assert walk(f"{before} {token}")[1] == []


def test_a_publish_covers_one_launch_and_a_settle_covers_those_before() -> None:
    text = "submit(a,4,9) submit(b,4,9) prefill(a) prefill(b)"
    assert walk(text + " publish publish publish")[1] == ["publish"]
    assert walk(text + " settle publish publish")[1] == ["publish"]


def test_chunks_and_mixed_launches_need_their_switch() -> None:
    wide = EngineConfig(mixed_chunk=True, chunked_prefill=True)
    assert walk("submit(a,4,9) prefill(a,2)", wide)[1] == []
    ledger, _ = walk(RUNNING + " submit(b,4,9)", wide)
    assert ledger.admits(parse_events("mix(b,2)")[0]) and ledger.admits(parse_events("mix(b)")[0])


def test_a_request_dropped_by_the_engine_is_retracted_for_the_ledger_too() -> None:
    ledger, _ = walk(RUNNING + " submit(b,4,9) prefill(b) settle")
    (prepare,) = parse_events("prepare")
    ledger.record(prepare, Receipt(rows=("a",), retracted=("b",)))
    assert ledger.prepared == ("a",) and ledger.waiting() == ["b"] and not ledger.admits(Retract("b"))


CONSTRAINED = EngineConfig(grammar=True)


@pytest.mark.parametrize(("event", "legal"), [("grammar=9", True), ("grammar=10", False), ("grammar=1", True)])
def test_a_grammar_ends_within_the_cap_and_needs_the_configuration(event: str, legal: bool) -> None:
    (submit,) = parse_events(f"submit(a,4,9,{event})")
    assert Ledger(CONSTRAINED).admits(submit) is legal
    assert not Ledger(EngineConfig()).admits(submit)


def test_a_stop_is_armed_before_the_end_of_a_grammar_only_and_takes_its_place() -> None:
    ledger, skipped = walk("submit(a,4,9,grammar=5) finish(a@4) finish(a@2) finish(a@1)", CONSTRAINED)
    asked = ledger.requests["a"]
    assert skipped == ["finish(a@4)", "finish(a@1)"] and asked.stop_at == 2
    text = [asked.text.token(4 + index) for index in range(9)]
    assert [index for index, token in enumerate(text) if token == STOP_TOKEN] == [2]


def test_the_text_of_a_grammar_ends_with_its_stop() -> None:
    ledger, _ = walk("submit(a,4,9,grammar=5)", CONSTRAINED)
    asked = ledger.requests["a"]
    assert asked.stop_at == 4 and asked.text.token(8) == STOP_TOKEN and asked.text.token(7) != STOP_TOKEN
