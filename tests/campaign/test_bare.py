"""The bare system's receipts are those of a scheduler with an endless pool."""

from __future__ import annotations

from specfuzz.campaign.bare import BareSystem
from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.receipt import Receipt
from specfuzz.session import Session


def receipts(text: str, config: EngineConfig | None = None) -> list[Receipt]:
    session = Session(BareSystem(), config or EngineConfig(), ())
    for event in parse_events(text):
        session.step(event)
    assert session.skipped == 0
    return [step.receipt for step in session.steps]


def test_a_request_ends_at_its_cap() -> None:
    last = receipts("submit(a,2,3) prefill(a) prepare verify(a=4) settle settle")[-1]
    assert last.settled == 2 and last.finished == (("a", "length", 3),)


def test_a_stop_before_the_cap_wins() -> None:
    last = receipts("submit(a,2,9) prefill(a) settle finish(a@2) prepare verify(a=4) settle")[-1]
    assert last.finished == (("a", "stop", 3),)


def test_an_abort_of_a_running_row_waits_for_its_next_result() -> None:
    found = receipts("submit(a,2,9) submit(b,2,9) prefill(a) abort(a) abort(b) settle")
    assert [receipt.finished for receipt in found[3:]] == [(), (("b", "abort", None),), (("a", "abort", None),)]


def test_the_late_result_of_a_retracted_row_is_settled_and_changes_nothing() -> None:
    found = receipts("submit(a,2,9) prefill(a) settle prepare verify retract(a) settle prefill(a) idle")
    assert found[6] == Receipt(settled=2)
    assert found[-1].emitted == (("a", (0,)),)


def test_rows_are_limited() -> None:
    found = receipts("submit(a,2,9) submit(b,2,9) prefill(a) prefill(b)", EngineConfig(max_reqs=1))
    assert found[-1].refused == "no free row"


def test_running_rows_ride_along() -> None:
    config = EngineConfig(mixed_chunk=True)
    found = receipts("submit(a,2,9) submit(b,2,9) prefill(a) settle mix(b) settle", config)
    assert (found[4].mode, found[4].rows) == ("MIXED", ("b", "a"))
    assert found[5].emitted == (("b", (0,)), ("a", (0,)))
