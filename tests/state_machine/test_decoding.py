"""Arguments: decoded from one integer, always legal, with the extremes in reach."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.conformance.walks import Walk
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Prefill, Prepare, Submit, Verify
from specfuzz.core.legality import Ledger
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.session import Session
from specfuzz.state_machine import decoding
from specfuzz.state_machine.offers import offers
from specfuzz.state_machine.scenes import Scene
from specfuzz.state_machine.strategies import FIRST_ROLL, LAST_ROLL, accept_patterns, engine_configs, rolls, submits
from specfuzz.state_machine.tempers import GENTLE, STRONG, temper_of
from specfuzz.systems.reference import ReferenceSystem

BITS = range(1 << decoding.ARGUMENT_BITS)


PLAIN = EngineConfig()


def ledger_with_a_running_row(config: EngineConfig = PLAIN, max_new: int = 20) -> Ledger:
    """submit(a) prefill(a) settle prepare"""
    ledger = Ledger(config)
    ledger.record(Submit("a", 5, max_new), NOTHING)
    ledger.record(Prefill("a"), Receipt(launch=1, mode="EXTEND", rows=("a",), admitted=(("a", 0, 5),)))
    ledger.record(Prepare(), Receipt(rows=("a",)))
    return ledger


@given(st.data())
def test_a_submitted_request_fits_every_configuration(data: st.DataObject) -> None:
    config = data.draw(engine_configs())
    assert Ledger(config).admits(data.draw(submits(config)))


@pytest.mark.parametrize("seed", range(4))
def test_a_scene_sees_who_may_be_launched_as_the_ledger_does(seed: int) -> None:
    config = EngineConfig(mixed_chunk=True, chunked_prefill=True, num_pages=60, max_reqs=3)
    session, walk = Session(ReferenceSystem(check_races=False), config, ()), Walk(seed, config, 80)
    event = walk(session.ledger, None)
    seen = set()
    while event is not None:
        session.step(event)
        scene, ledger = Scene(session.ledger), session.ledger
        assert (scene.waiting, scene.running) == (ledger.waiting(), ledger.running())
        assert (scene.chunked, scene.live) == (ledger.chunked() is not None, len(ledger.live()))
        seen |= {scene.chunked, bool(scene.waiting)}
        event = walk(ledger, session.steps[-1].receipt)
    assert seen == {True, False}


def test_prompts_and_caps_reach_their_extremes() -> None:
    scene = Scene(Ledger(EngineConfig()))
    found = [decoding.submit_of(scene, bits) for bits in BITS]
    assert {event.prompt_len for event in found} == set(range(2, 21))
    assert {min(event.max_new for event in found), max(event.max_new for event in found)} == {1, 24}
    assert {event.shared_len == event.prompt_len for event in found} == {True, False}


def test_prompts_reach_past_the_first_page() -> None:
    scene = Scene(Ledger(EngineConfig(page_size=64, num_pages=8, context_len=128)))
    assert max(decoding.submit_of(scene, bits).prompt_len for bits in BITS) > 64


def test_verify_reaches_every_accept_length() -> None:
    scene = Scene(ledger_with_a_running_row())
    assert {decoding.verify_of(scene, bits).accept for bits in BITS} == {(), (("a", 2),), (("a", 3),), (("a", 4),)}


def test_without_drafts_nothing_is_said_about_accept_lengths() -> None:
    scene = Scene(ledger_with_a_running_row(EngineConfig(algorithm="NONE")))
    assert {decoding.verify_of(scene, bits) for bits in BITS} == {Verify()}


def test_an_armed_stop_mostly_lies_inside_the_next_run() -> None:
    scene = Scene(ledger_with_a_running_row())
    found = [decoding.finish_of(scene, bits).at for bits in BITS]
    inside = sum(1 <= at < 1 + scene.config.max_accept for at in found)
    assert inside >= 0.75 * len(found)
    assert {1, 2, 3, 4} <= set(found)
    assert all(scene.ledger.admits(decoding.finish_of(scene, bits)) for bits in range(256))


def test_a_stop_lies_no_further_behind_the_cap_than_the_last_run_reaches() -> None:
    scene = Scene(ledger_with_a_running_row(max_new=2))
    assert {decoding.finish_of(scene, bits).at for bits in BITS} == set(range(1, 1 + scene.config.max_accept))


def test_new_requests_are_named_in_order_and_never_twice() -> None:
    ledger = Ledger(EngineConfig())
    for name in ("a", "c", "r2"):
        ledger.record(Submit(name, 2, 1), NOTHING)
    assert Scene(ledger).fresh_rid() == "d"
    ledger.record(Submit("e", 2, 1), NOTHING)
    assert Scene(ledger).fresh_rid() == "r0"


@given(st.integers(0, (1 << 24) - 1), st.sampled_from([GENTLE, STRONG]))
def test_no_temper_mutes_the_loop(bits: int, factors: tuple[int, ...]) -> None:
    temper = temper_of(bits, 4, factors)
    assert all(temper.weights[kind] > 0 for kind in ("submit", "prefill", "prepare", "verify", "settle"))
    assert 1 <= temper.rows <= 4


@pytest.mark.parametrize("ledger", [Ledger(EngineConfig()), ledger_with_a_running_row()], ids=["empty", "prepared"])
def test_something_is_always_on_offer(ledger: Ledger) -> None:
    everything_muted = temper_of((1 << 24) - 1, 4, (0, 0, 0, 0))
    assert offers(Scene(ledger), everything_muted)


def test_the_first_offer_is_the_natural_step() -> None:
    temper = temper_of(0, 4)
    assert offers(Scene(Ledger(EngineConfig())), temper)[0][0] == "submit"
    assert offers(Scene(ledger_with_a_running_row()), temper)[0][0] == "verify"


@given(rolls())
def test_rolls_stay_in_their_range(roll: int) -> None:
    assert FIRST_ROLL <= roll <= LAST_ROLL


@given(accept_patterns(("a", "b"), 4))
def test_accept_patterns_leave_out_what_accepts_one(pattern: tuple[tuple[str, int], ...]) -> None:
    assert all(2 <= run <= 4 for _rid, run in pattern)
    assert [rid for rid, _run in pattern] == sorted({rid for rid, _run in pattern})
