"""Sampling state: a row's penalties go where the row goes, and a forward's copy stays what it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specfuzz.reference.sampling import Penalizer, SamplingBatchInfo


def info(*rows: tuple[int, ...]) -> SamplingBatchInfo:
    penalizer = Penalizer(len(rows))
    penalizer.cumulated = list(rows)
    return SamplingBatchInfo(penalizer)


def test_a_prepare_counts_one_token_per_row() -> None:
    batch = info((), (5,))
    assert batch.penalizer is not None
    batch.penalizer.cumulate_output_tokens([1, 2])
    assert batch.penalties == ((1,), (5, 2))


@given(st.lists(st.integers(0, 4), unique=True))
def test_rows_keep_their_penalties_in_a_filter_and_a_merge(keep: list[int]) -> None:
    batch, other = info(*((row,) for row in range(5))), info((8,), (9,))
    batch.filter_batch(keep)
    batch.merge_batch(other)
    assert batch.penalties == (*((row,) for row in keep), (8,), (9,))


def test_a_copy_for_a_forward_counts_nothing_and_is_reached_by_nothing() -> None:
    batch = info((1,), (2,))
    copy = batch.copy_for_forward()
    assert copy.penalizer is None
    batch.filter_batch([1])
    copy.filter_batch([0])
    copy.merge_batch(batch)
    assert copy.penalties == ((1,), (2,)) and batch.penalties == ((2,),)
