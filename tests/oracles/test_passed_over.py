"""What the judge passes over for speed has nothing to say, and what is shared for speed stays apart."""

from __future__ import annotations

from specfuzz.core.event import Abort, Finish, Prefill, Retract, Submit
from specfuzz.core.legality import Ledger
from specfuzz.core.receipt import NOTHING, Receipt
from tests.oracles.build import EAGLE, gone, step, verdict

WAITING = gone()


def test_an_abort_that_changes_nothing_on_a_waiting_request_is_seen() -> None:
    assert verdict("abort-waits-for-a-result", step(Abort("a"), (WAITING,), (WAITING,))) == "violated"


def test_an_admission_that_changes_nothing_is_seen() -> None:
    row = step(Prefill("a"), (WAITING,), (WAITING,), receipt=Receipt(admitted=(("a", 0, 4),)))
    assert verdict("extend-commits-its-window", row) == "violated"


def test_a_retraction_that_changes_nothing_is_seen() -> None:
    row = step(Retract("a"), (WAITING,), (WAITING,), receipt=Receipt(retracted=("a",)))
    assert verdict("retraction-resets", row) == "violated"


def test_a_stop_that_one_ledger_arms_stays_out_of_the_text_of_another() -> None:
    armed, plain = Ledger(EAGLE), Ledger(EAGLE)
    for ledger in (armed, plain):
        ledger.record(Submit("a", 4, 8), NOTHING)
    armed.record(Finish("a", 2), NOTHING)
    assert armed.requests["a"].text.token(6) != plain.requests["a"].text.token(6)
    assert not plain.requests["a"].text.stops
