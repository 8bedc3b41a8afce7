"""Unguarded records are what the frozen dataclass was, but for the guard."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.records import unguarded


@unguarded
@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    x: int
    y: int = 7
    names: tuple[str, ...] = ()


def test_defaults_equality_hash_and_text_are_those_of_the_dataclass() -> None:
    one, other = Point(x=1), Point(x=1, y=7, names=())
    assert one == other and hash(one) == hash(other) and one is not other
    assert repr(one).endswith("Point(x=1, y=7, names=())")
    assert replace(one, x=2) == Point(x=2) != one


def test_fields_are_asked_for_by_name_and_nothing_else_can_be_set() -> None:
    with pytest.raises(TypeError):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point(x=1, z=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Point(x=1).z = 2  # type: ignore[attr-defined]


def test_a_receipt_of_nothing_is_the_default() -> None:
    assert Receipt() == NOTHING != Receipt(executed=1)
