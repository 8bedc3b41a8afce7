"""The array model equals the integer model of core.language, on ragged rows, empty prefixes and page edges."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specfuzz.core import language
from specfuzz.core.language import FLIP_BIT, STOP_TOKEN
from specfuzz.gpu.arrays import Array, Arrays, NumpyArrays, TorchArrays
from specfuzz.reference.model import (
    Weights,
    extend_kernel,
    pad_windows,
    plan_kernel,
    verify_kernel,
)
from specfuzz.reference.model_draft import draft_after_verify_kernel, draft_kernel, draft_prefill_kernel
from tests.reference.memory import ACCESS, JUNK, Rows, touched

int64s = st.integers(-(2**63), 2**63 - 1)
STEPS = 3
NO_STOP = [-1]
# The face is the same object for every example, so a function-scoped fixture does no harm.
faces_stay = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["numpy", "torch"])
def xp(request: pytest.FixtureRequest) -> Arrays:
    return NumpyArrays() if request.param == "numpy" else TorchArrays(torch.device("cpu"))


@faces_stay
@given(st.lists(st.tuples(int64s, int64s), min_size=1, max_size=8))
def test_mix_and_unembed_agree_with_the_integers(xp: Arrays, pairs: list[tuple[int, int]]) -> None:
    a, b = xp.array([first for first, _ in pairs]), xp.array([second for _, second in pairs])
    weights = Weights(1, xp)
    assert weights.mix(a, b).tolist() == [language.mix(*pair) for pair in pairs]
    assert weights.unembed(a).tolist() == [language.unembed(first) for first, _ in pairs]


def test_a_plan_copies_the_rows_of_the_batch_in_its_order(xp: Arrays) -> None:
    table, out = xp.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]), xp.full((2, 3), 0)
    plan_kernel(ACCESS, Weights(3, xp), table, out, [3, 1], xp.array([3, 1]))
    assert out.tolist() == [[9, 10, 11], [3, 4, 5]]


def test_windows_are_padded_on_the_right(xp: Arrays) -> None:
    padded = [
        pad_windows(xp, xp.array(flat), lens).tolist()
        for flat, lens in (([1, 2, 3, 4], [3, 1]), ([1, 2], [1, 1]), ([1, 2], [2]))
    ]
    assert padded == [[[1, 2, 3], [4, 0, 0]], [[1], [2]], [[1, 2]]]


# ----------------------------------------------------------------------------------------------------- the target side


# The bases: an empty prefix, one token, one below, at and one above a page of 4 and of 16.
@pytest.mark.parametrize("base", [0, 1, 3, 4, 5, 15, 16, 17])
@pytest.mark.parametrize("lanes", [1, 4, 5])
def test_a_window_behind_any_prefix_has_the_right_cells_and_reductions(xp: Arrays, base: int, lanes: int) -> None:
    rows = Rows(1, xp)
    rows.fill_target([base])
    text, window = rows.texts[0], range(base, base + lanes)
    assert rows.window([base], lanes) == [[text.hidden(position) for position in window]]
    assert rows.target_cells(0, base, base + lanes) == [text.target_cell(position) for position in window]


@faces_stay
@given(st.lists(st.integers(0, 18), min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 9))
def test_rows_of_a_ragged_batch_do_not_see_each_other(xp: Arrays, base: list[int], lanes: int, seed: int) -> None:
    rows = Rows(len(base), xp, seed)
    rows.fill_target(base)
    wanted = [
        [text.hidden(start + lane) for lane in range(lanes)] for text, start in zip(rows.texts, base, strict=True)
    ]
    assert rows.window(base, lanes) == wanted


@faces_stay
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 9))
def test_any_cut_of_a_prompt_into_chunks_gives_the_same_text(xp: Arrays, chunks: list[int], seed: int) -> None:
    rows, base = Rows(1, xp, seed), 0
    for lanes in chunks:
        reductions = rows.window([base], lanes)
        base += lanes
    assert reductions[0][-1] == rows.texts[0].hidden(base - 1)


@pytest.mark.parametrize("wrong", ["stale", "swapped", "doubled"])
def test_one_wrong_slot_changes_the_reduction(xp: Arrays, wrong: str) -> None:
    rows = Rows(1, xp)
    rows.fill_target([6])
    row = rows.row_slots[0]
    if wrong == "stale":
        rows.target_v2[row[2]] = JUNK
    elif wrong == "swapped":
        row[2], row[3] = row[3], row[2]
    else:
        row[2] = row[3]
    assert rows.window([6], 1) != [[rows.texts[0].hidden(6)]]


def extend(rows: Rows, prefix: int, extend_lens: list[int], stops: list[int]) -> tuple[list[int], list[int]]:
    """(sampled tokens, hidden states) of an extend of every row behind `prefix` right cells."""
    count, xp = len(extend_lens), rows.xp
    rows.fill_target([prefix] * count)
    windows = [(row, prefix, prefix + length) for row, length in enumerate(extend_lens)]
    input_ids = [rows.texts[row].token(p) for row, start, end in windows for p in range(start, end)]
    out_cache_loc = [slot for window in windows for slot in rows.slots(*window)]
    next_ids, hidden = rows.zeros(count), rows.zeros(count)
    extend_kernel(
        ACCESS, rows.weights, rows.target_v1, rows.target_v2, rows.kv_indices, xp.array([end for *_, end in windows]),
        xp.array(input_ids), xp.array(out_cache_loc), extend_lens, stops, next_ids, hidden,
    )  # fmt: skip
    return next_ids.tolist(), hidden.tolist()


@pytest.mark.parametrize("extend_lens", [[1], [5], [1, 1, 1], [2, 5, 1], [4, 4], [1, 8]])
@pytest.mark.parametrize("prefix", [0, 4, 7])
def test_an_extend_samples_the_next_token_of_every_row(xp: Arrays, extend_lens: list[int], prefix: int) -> None:
    rows = Rows(len(extend_lens), xp)
    next_ids, hidden = extend(rows, prefix, extend_lens, NO_STOP * len(extend_lens))
    wanted = [text.hidden(prefix + length - 1) for text, length in zip(rows.texts, extend_lens, strict=True)]
    assert hidden == wanted
    # Not `text.token`: inside a prompt the sampled token is another one than the prompt's.
    assert next_ids == [language.unembed(reduction) for reduction in wanted]


def test_an_extend_samples_the_stop_only_where_it_is_armed(xp: Arrays) -> None:
    """Row by row: armed at the next position, one too late, one too early."""
    next_ids, _ = extend(Rows(3, xp), 4, [2, 2, 2], [6, 7, 5])
    assert [token == STOP_TOKEN for token in next_ids] == [True, False, False]


def test_padding_lanes_of_an_extend_write_to_the_padding_slot_only(xp: Arrays) -> None:
    rows = Rows(2, xp)
    extend(rows, 0, [1, 3], NO_STOP * 2)
    assert touched(rows.target_v1) == touched(rows.target_v2) == {0, *rows.slots(0, 0, 1), *rows.slots(1, 0, 3)}


# ------------------------------------------------------------------------------------------------------ the draft side


def draft(rows: Rows, frontier: list[int], flip_at: list[int], stops: list[int] | None = None) -> tuple[Array, Array]:
    """(verify tokens, digests) from the relay's right state at these frontiers, whatever the draft cells are."""
    count, xp = len(frontier), rows.xp
    hidden = [text.hidden(c) for text, c in zip(rows.texts, frontier, strict=True)]
    bonus = [text.token(c) for text, c in zip(rows.texts, frontier, strict=True)]
    verify_tokens, digests = rows.zeros(count, STEPS + 1), rows.zeros(count)
    draft_kernel(
        ACCESS, rows.weights, rows.draft_kv, rows.kv_indices, xp.array(frontier), xp.array(bonus),
        xp.array([language.unembed(reduction) for reduction in hidden]), xp.array(hidden), stops or NO_STOP * count,
        flip_at, verify_tokens, digests,
    )  # fmt: skip
    return verify_tokens, digests


@faces_stay
@given(st.lists(st.integers(0, 14), min_size=1, max_size=3), st.integers(0, 9))
def test_a_draft_chain_from_right_state_is_the_text(xp: Arrays, decoded: list[int], seed: int) -> None:
    rows = Rows(len(decoded), xp, seed)
    frontier = [2 + row + more for row, more in enumerate(decoded)]  # at or behind the end of the prompt
    rows.fill_draft(frontier)
    proposed, _ = draft(rows, frontier, [0] * len(frontier))
    wanted = [[text.token(c + k) for k in range(STEPS + 1)] for text, c in zip(rows.texts, frontier, strict=True)]
    assert proposed.tolist() == wanted


@pytest.mark.parametrize("flip", [1, 2, 3])
def test_a_flipped_proposal_is_wrong_and_those_before_it_are_right(xp: Arrays, flip: int) -> None:
    rows = Rows(1, xp)
    rows.fill_draft([6])
    proposed, text = draft(rows, [6], [flip])[0].tolist()[0], rows.texts[0]
    assert proposed[:flip] == [text.token(6 + k) for k in range(flip)]
    assert proposed[flip] == text.token(6 + flip) ^ FLIP_BIT


def test_a_draft_proposes_the_armed_stop(xp: Arrays) -> None:
    rows = Rows(1, xp)
    rows.fill_draft([6])
    assert draft(rows, [6], [0], [8])[0].tolist()[0][2] == STOP_TOKEN


def test_one_wrong_draft_cell_makes_the_chain_wrong_from_its_second_proposal(xp: Arrays) -> None:
    rows = Rows(1, xp)
    rows.fill_draft([6])
    rows.draft_kv[rows.slots(0, 2, 3)[0]] = JUNK
    proposed, text = draft(rows, [6], [0])[0].tolist()[0], rows.texts[0]
    assert [proposed[k] == text.token(6 + k) for k in range(STEPS + 1)] == [True, True, False, False]


@pytest.mark.parametrize("frontier", [[2], [3, 4, 5], [15, 16]])
@pytest.mark.parametrize("flip", [0, 1, 2, 3])
def test_verify_accepts_up_to_the_first_wrong_proposal(xp: Arrays, frontier: list[int], flip: int) -> None:
    rows, count = Rows(len(frontier), xp), len(frontier)
    rows.fill_draft(frontier)
    rows.fill_target(frontier)
    tokens, _ = draft(rows, frontier, [flip] * count)
    next_ids, accept_lens = rows.zeros(count, STEPS + 1), rows.zeros(count)
    new_seq_lens, bonus, hidden = rows.zeros(count), rows.zeros(count), rows.zeros(count)
    verify_kernel(
        ACCESS, rows.weights, rows.target_v1, rows.target_v2, rows.kv_indices, xp.array(frontier), tokens,
        NO_STOP * count, next_ids, accept_lens, new_seq_lens, bonus, hidden,
    )  # fmt: skip
    accept = flip or STEPS + 1
    assert accept_lens.tolist() == [accept] * count
    ends = [(text, c + accept) for text, c in zip(rows.texts, frontier, strict=True)]
    runs = [run[:accept] for run in next_ids.tolist()]
    assert runs == [[text.token(end - accept + 1 + k) for k in range(accept)] for text, end in ends]
    assert new_seq_lens.tolist() == [end for _, end in ends]
    assert bonus.tolist() == [text.token(end) for text, end in ends]
    assert hidden.tolist() == [text.hidden(end - 1) for text, end in ends]


@pytest.mark.parametrize("base", [2, 4, 15])
@pytest.mark.parametrize("accept", [1, 2, 4])
def test_draft_extend_ends_at_the_frontier_of_the_accepted_run(xp: Arrays, base: int, accept: int) -> None:
    rows = Rows(1, xp)
    rows.fill_draft([base])
    text, frontier = rows.texts[0], base + accept
    _, digest = draft(rows, [base], [accept])  # leaves scratch behind the frontier
    following = [text.token(base + lane + 1) if lane < accept else JUNK for lane in range(STEPS + 1)]
    topk, hidden = rows.zeros(1), rows.zeros(1)
    draft_after_verify_kernel(
        ACCESS, rows.weights, rows.draft_kv, rows.kv_indices, xp.array([base]), digest, xp.array([following]),
        xp.array([accept]), xp.array([text.hidden(frontier - 1)]), topk, hidden,
    )  # fmt: skip
    assert hidden.tolist() == [text.hidden(frontier)]
    assert topk.tolist() == [text.token(frontier + 1)]
    assert rows.draft_cells(0, frontier) == [text.draft_cell(position) for position in range(frontier)]


@pytest.mark.parametrize("extend_lens", [[1], [4], [1, 4], [3, 1, 5]])
@pytest.mark.parametrize("prefix", [0, 4])
@pytest.mark.parametrize("middle", [False, True])
def test_draft_prefill_pairs_every_position_with_the_token_after_it(
    xp: Arrays, extend_lens: list[int], prefix: int, middle: bool
) -> None:
    rows, count = Rows(len(extend_lens), xp), len(extend_lens)
    rows.fill_draft([prefix] * count)
    ends = [(text, prefix + length) for text, length in zip(rows.texts, extend_lens, strict=True)]
    input_ids = [text.token(p) for text, end in ends for p in range(prefix, end)]
    topk, hidden = rows.zeros(count), rows.zeros(count)
    # Behind a middle chunk stands a prompt token that the host knows, and what was sampled there means nothing.
    sampled = [text.token(end) for text, end in ends]
    known = [sampled[0], *[-1] * (count - 1)] if middle else [-1] * count
    sampled[0] = JUNK if middle else sampled[0]
    draft_prefill_kernel(
        ACCESS, rows.weights, rows.draft_kv, rows.kv_indices, xp.array([end for _, end in ends]), xp.array(input_ids),
        extend_lens, known, xp.array(sampled),
        xp.array([text.hidden(end - 1) for text, end in ends]), topk, hidden,
    )  # fmt: skip
    assert hidden.tolist() == [text.hidden(end) for text, end in ends]
    assert topk.tolist() == [language.unembed(text.hidden(end)) for text, end in ends]
    for row, (text, end) in enumerate(ends):
        assert rows.draft_cells(row, end) == [text.draft_cell(position) for position in range(end)]
    own = {slot for row, (_, end) in enumerate(ends) for slot in rows.slots(row, 0, end)}
    assert touched(rows.draft_kv) <= own | {0}
