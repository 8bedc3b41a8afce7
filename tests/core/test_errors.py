"""What an error quotes is tamed in one place: printable, of one line, and short."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.errors import EngineFault, SpecfuzzError, UsageError, tame


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("there is no system `re\nference`.", r"there is no system `re\nference`."),
        ("`\x1b[2J` clears the screen", r"`\x1b[2J` clears the screen"),
        ("`\udcff` is no text", r"`\udcff` is no text"),
    ],
)
def test_what_can_not_be_shown_is_escaped(message: str, shown: str) -> None:
    assert str(UsageError(message)) == shown


@pytest.mark.parametrize("value", ["A" * 1_000_000, "9" * 5000, "a b " * 250_000, "\n" * 100_000])
def test_a_value_without_end_is_cut_and_what_to_do_stays(value: str) -> None:
    message = str(UsageError(f"there is no oracle `{value}`. Known: page-has-one-owner."))
    assert len(message) <= 4000
    assert message.startswith("there is no oracle `") and message.endswith("Known: page-has-one-owner.")


@given(st.text(max_size=300), st.integers(0, 40))
def test_taming_twice_changes_nothing(text: str, times: int) -> None:
    once = tame(text * times)
    assert once.isprintable() and tame(once) == once


def test_a_fault_survives_the_way_from_another_process() -> None:
    fault = pickle.loads(pickle.dumps(EngineFault("no\nluck", kind="hang", where="settle")))
    assert (str(fault), fault.kind, fault.where) == (r"no\nluck", "hang", "settle")
    assert isinstance(fault, SpecfuzzError)
