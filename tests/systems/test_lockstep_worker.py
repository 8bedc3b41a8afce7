"""Lockstep compares what workers saw and decided, row by row, for rows that were alive when they were launched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specfuzz.core.snapshot import Snapshot, WorkerEntry, WorkerExit
from tests.systems.test_lockstep import STATE, differences

ENTRY = WorkerEntry(seq_lens=(5,), input_tokens=((7,),), window=((3,),), prefix_lens=(4,))
EXIT = WorkerExit(accept_lens=(1,), new_seq_lens=(5,), next_tokens=((9,),), published=(5,))


def with_launch(**changes: Any) -> Snapshot:
    return replace(STATE, launches=(replace(STATE.launches[0], **{"rids": ("a",), "dead": (), **changes}),))


@pytest.mark.parametrize(
    ("field", "changed", "owner"),
    [
        ("seq_lens", {"entry": replace(ENTRY, seq_lens=(6,))}, "future_map"),
        ("prefix_lens", {"entry": replace(ENTRY, prefix_lens=(5,))}, "future_map"),
        ("input_tokens", {"entry": replace(ENTRY, input_tokens=((8,),))}, "future_map"),
        ("new_seq_lens", {"exit": replace(EXIT, new_seq_lens=(6,))}, "spec_worker"),
        ("next_tokens", {"exit": replace(EXIT, next_tokens=((8,),))}, "spec_worker"),
        ("published", {"exit": replace(EXIT, published=(4,))}, "spec_worker"),
    ],
)
def test_a_row_that_differs_names_field_and_owner(field: str, changed: dict[str, Any], owner: str) -> None:
    one, two = with_launch(entry=ENTRY, exit=EXIT), with_launch(**{"entry": ENTRY, "exit": EXIT, **changed})
    (found,), system = differences(two, one)
    assert (found.formula, found.owner, found.clock) == (
        f"a.launch.{field}[1 a] == b.launch.{field}[1 a]",
        owner,
        "device",
    )
    assert system.compared[f"launch.{field}"] == 1


def test_slots_are_each_engine_s_own() -> None:
    found, _ = differences(with_launch(entry=replace(ENTRY, window=((4,),))), with_launch(entry=ENTRY))
    assert not found


def test_a_row_that_was_dead_at_its_launch_has_no_content() -> None:
    other = replace(ENTRY, seq_lens=(6,))
    found, system = differences(with_launch(entry=other, dead=("a",)), with_launch(entry=ENTRY, dead=("a",)))
    assert not found and not system.compared["launch.seq_lens"]


def test_what_one_worker_has_not_reached_yet_is_not_compared() -> None:
    found, system = differences(with_launch(entry=ENTRY), with_launch(entry=None))
    assert not found
    assert (system.compared["launch.seq_lens"], system.uncompared["launch.seq_lens"]) == (0, 1)
