"""The one-line notation: what is written is read again, what can't be read is quoted."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.core.event import EVENT_TYPES, STREAMS, Advance, Event, Submit, Verify
from specfuzz.core.notation import format_event, format_events, parse_events
from specfuzz.errors import NotationError
from tests.trace.strategies import events


@given(st.lists(events(), max_size=8).map(tuple))
def test_what_is_written_is_read_again(sequence: tuple[Event, ...]) -> None:
    assert parse_events(format_events(sequence)) == sequence


@given(events())
def test_an_event_is_one_token_that_begins_with_its_verb(event: Event) -> None:
    text = format_event(event)
    assert not set(text) & set(" \t\n") and text.partition("(")[0] in EVENT_TYPES


def test_arguments_at_their_default_are_left_out() -> None:
    assert format_events((Submit("a", 5, 9), Verify(), Advance("copy"))) == "submit(a,5,9) verify advance(copy)"


def test_a_grammar_is_named_with_and_without_a_shared_prefix() -> None:
    for event, text in (
        (Submit("a", 5, 9, 0, 3), "submit(a,5,9,grammar=3)"),
        (Submit("a", 5, 9, 4, 3), "submit(a,5,9,4,grammar=3)"),
    ):
        assert format_event(event) == text and parse_events(text) == (event,)


def test_white_space_between_tokens_and_arguments_is_free() -> None:
    assert parse_events(" submit( a, 5 ,9 )\n\tverify(a=3, b=2) ") == (Submit("a", 5, 9), Verify((("a", 3), ("b", 2))))


@pytest.mark.parametrize(
    "text",
    [
        "submit(a,5,9,grammar=)", "submit(a,5,9,length=3)", "submit(a,5,grammar=3)", "submit(a,5,9,grammar=3,0)",
        "submit(a,5,9,0,grammar=3,1)", "submit(grammar=3)",
        "explode", "submit", "submit(a)", "submit(a,5)", "submit(a,5,9,0,1)", "submit(a,5,x)", "submit(a,-5,9)",
        "submit(a,5,99999999)", "submit(1a,5,9)", "submit(,5,9)", "submit(" + "a" * 65 + ",5,9)", "prefill",
        "prefill(a,b)", "prepare(a)", "verify(a)", "verify(a=)", "verify(a=1=2)", "advance", "advance(river)",
        "finish(a)", "finish(a@)", "finish(a@1@2)", "abort", "abort(a,b)", "abort(a b)", "evict", "evict(٣)",
        "evict(1)(2)", "idleidle(", "settle)", "submit(a,5,9", "(a)", "prepare,verify", "SETTLE", "submit(a/../b,5,9)",
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_quoted_in_one_sentence(text: str) -> None:
    with pytest.raises(NotationError) as caught:
        parse_events(f"idle {text}")
    assert "\n" not in str(caught.value) and text[:4] in str(caught.value)


@given(st.text(alphabet="abidle(),=@0123 \n\x00٣", max_size=30))
def test_no_text_brings_another_exception(text: str) -> None:
    with contextlib.suppress(NotationError):
        parse_events(text)


def test_streams_of_the_notation_are_those_of_the_device() -> None:
    assert [parse_events(f"advance({stream},2)") for stream in STREAMS] == [(Advance(s, 2),) for s in STREAMS]
