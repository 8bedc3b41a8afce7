"""The tensor model equals the integer model of core.language, on ragged rows, empty prefixes and page edges."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specfuzz.core import language
from specfuzz.core.language import FLIP_BIT, STOP_TOKEN
from specfuzz.reference.algorithms.eagle import draft_prefill_kernel
from specfuzz.reference.model import (
    draft_extend_kernel,
    draft_kernel,
    extend_kernel,
    mix,
    pad_windows,
    plan_kernel,
    unembed,
    verify_kernel,
    with_stop,
)
from tests.reference.memory import ACCESS, JUNK, Rows, ints

int64s = st.integers(-(2**63), 2**63 - 1)
STEPS = 3
NO_STOP = [-1]


@given(st.lists(st.tuples(int64s, int64s), min_size=1, max_size=8))
def test_mix_and_unembed_agree_with_the_integers(pairs: list[tuple[int, int]]) -> None:
    a, b = ints([first for first, _ in pairs]), ints([second for _, second in pairs])
    assert mix(a, b).tolist() == [language.mix(*pair) for pair in pairs]
    assert unembed(a).tolist() == [language.unembed(first) for first, _ in pairs]


def test_the_stop_token_stands_only_at_the_armed_position() -> None:
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    positions = torch.tensor([[7, 8, 9], [7, 8, 9]])
    stopped = with_stop(tokens, positions, torch.tensor([[8], [-1]]))
    assert stopped.tolist() == [[1, STOP_TOKEN, 3], [4, 5, 6]]


def test_a_plan_copies_the_rows_of_the_batch_in_its_order() -> None:
    table = torch.arange(12).reshape(4, 3)
    out = torch.zeros(2, 3, dtype=torch.int64)
    plan_kernel(ACCESS, table, out, [3, 1], ints([3, 1]))
    assert out.tolist() == [[9, 10, 11], [3, 4, 5]]


# The bases: an empty prefix, one token, one below, at and one above a page of 4 and of 16.
@pytest.mark.parametrize("base", [0, 1, 3, 4, 5, 15, 16, 17])
@pytest.mark.parametrize("lanes", [1, 4, 5])
def test_a_window_behind_any_prefix_has_the_right_cells_and_reductions(base: int, lanes: int) -> None:
    rows = Rows(1)
    rows.fill_target([base])
    reductions, positions = rows.window([base], lanes)
    text = rows.texts[0]
    assert positions.tolist() == [list(range(base, base + lanes))]
    assert reductions.tolist() == [[text.hidden(base + lane) for lane in range(lanes)]]
    cells = rows.target_kv[rows.slots(0, base, base + lanes)].tolist()
    assert cells == [list(text.target_cell(base + lane)) for lane in range(lanes)]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 18), min_size=1, max_size=4), st.integers(1, 6), st.integers(0, 9))
def test_rows_of_a_ragged_batch_do_not_see_each_other(base: list[int], lanes: int, seed: int) -> None:
    rows = Rows(len(base), seed=seed)
    rows.fill_target(base)
    reductions, _ = rows.window(base, lanes)
    wanted = [[text.hidden(start + lane) for lane in range(lanes)] for text, start in zip(rows.texts, base, strict=True)]
    assert reductions.tolist() == wanted


@settings(max_examples=40)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 9))
def test_any_cut_of_a_prompt_into_chunks_gives_the_same_text(chunks: list[int], seed: int) -> None:
    rows, base = Rows(1, seed=seed), 0
    for lanes in chunks:
        reductions, _ = rows.window([base], lanes)
        base += lanes
    assert reductions[0, -1].item() == rows.texts[0].hidden(base - 1)


@pytest.mark.parametrize("wrong", ["stale", "swapped", "doubled"])
def test_one_wrong_slot_changes_the_reduction(wrong: str) -> None:
    rows = Rows(1)
    rows.fill_target([6])
    row = rows.kv_indices[0]
    if wrong == "stale":
        rows.target_kv[row[2]] = JUNK
    elif wrong == "swapped":
        row[[2, 3]] = row[[3, 2]]
    else:
        row[2] = row[3].item()
    reductions, _ = rows.window([6], 1)
    assert reductions.item() != rows.texts[0].hidden(6)


@pytest.mark.parametrize("extend_lens", [[1], [5], [1, 1, 1], [2, 5, 1], [4, 4], [1, 8]])
@pytest.mark.parametrize("prefix", [0, 4, 7])
def test_an_extend_samples_the_next_token_of_every_row(extend_lens: list[int], prefix: int) -> None:
    count = len(extend_lens)
    rows = Rows(count)
    rows.fill_target([prefix] * count)
    seq_lens = [prefix + length for length in extend_lens]
    windows = [(row, prefix, end) for row, end in enumerate(seq_lens)]
    input_ids = [rows.texts[row].token(p) for row, start, end in windows for p in range(start, end)]
    out_cache_loc = [slot for window in windows for slot in rows.slots(*window)]
    next_ids, hidden = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    extend_kernel(
        ACCESS, rows.target_kv, rows.kv_indices, rows.weights, ints(seq_lens), ints(input_ids), ints(out_cache_loc),
        extend_lens, NO_STOP * count, next_ids, hidden,
    )  # fmt: skip
    # Not `text.token(end)`: inside a prompt the sampled token is another one than the prompt's.
    sampled = [language.unembed(text.hidden(end - 1)) for text, end in zip(rows.texts, seq_lens, strict=True)]
    assert next_ids.tolist() == sampled
    assert hidden.tolist() == [text.hidden(end - 1) for text, end in zip(rows.texts, seq_lens, strict=True)]


def test_padding_lanes_write_to_the_padding_slot_only() -> None:
    rows = Rows(2)
    out_cache_loc = [*rows.slots(0, 0, 1), *rows.slots(1, 0, 3)]
    input_ids = [rows.texts[0].token(0), *(rows.texts[1].token(p) for p in range(3))]
    out = torch.zeros(2, dtype=torch.int64)
    extend_kernel(
        ACCESS, rows.target_kv, rows.kv_indices, rows.weights, ints([1, 3]), ints(input_ids), ints(out_cache_loc),
        [1, 3], NO_STOP * 2, out, out.clone(),
    )  # fmt: skip
    touched = {slot for slot, cell in enumerate(rows.target_kv[:, 0].tolist()) if cell != JUNK}
    assert touched == {0, *out_cache_loc}


def test_windows_are_padded_on_the_right() -> None:
    assert pad_windows(ints([1, 2, 3, 4]), [3, 1]).tolist() == [[1, 2, 3], [4, 0, 0]]
    assert pad_windows(ints([1, 2]), [1, 1]).tolist() == [[1], [2]]
    assert pad_windows(ints([1, 2]), [2]).tolist() == [[1, 2]]


# ------------------------------------------------------------------------------------------------------ the draft side


def draft(rows: Rows, frontier: list[int], flip_at: list[int], stops: list[int] | None = None) -> torch.Tensor:
    """Proposals from the right draft state at these frontiers."""
    count = len(frontier)
    rows.fill_draft(frontier)
    texts = list(zip(rows.texts, frontier, strict=True))
    verify_tokens = torch.zeros(count, STEPS + 1, dtype=torch.int64)
    draft_kernel(
        ACCESS, rows.draft_kv, rows.kv_indices, rows.weights, ints(frontier),
        ints([text.token(c) for text, c in texts]), ints([language.unembed(text.hidden(c)) for text, c in texts]),
        ints([text.hidden(c) for text, c in texts]), stops or NO_STOP * count, flip_at, verify_tokens,
    )  # fmt: skip
    return verify_tokens


@settings(max_examples=30)
@given(st.lists(st.integers(2, 17), min_size=1, max_size=3), st.integers(0, 9))
def test_a_draft_chain_from_right_state_is_the_text(frontier: list[int], seed: int) -> None:
    rows = Rows(len(frontier), seed=seed)
    proposed = draft(rows, frontier, [0] * len(frontier))
    wanted = [[text.token(c + k) for k in range(STEPS + 1)] for text, c in zip(rows.texts, frontier, strict=True)]
    assert proposed.tolist() == wanted


@pytest.mark.parametrize("flip", [1, 2, 3])
def test_a_flipped_proposal_is_wrong_and_those_before_it_are_right(flip: int) -> None:
    rows = Rows(1)
    proposed = draft(rows, [6], [flip])[0].tolist()
    text = rows.texts[0]
    assert proposed[:flip] == [text.token(6 + k) for k in range(flip)]
    assert proposed[flip] == text.token(6 + flip) ^ FLIP_BIT


def test_a_draft_proposes_the_armed_stop() -> None:
    rows = Rows(1)
    rows.texts[0].arm_stop(8)
    assert draft(rows, [6], [0], [8])[0, 2].item() == STOP_TOKEN


def test_one_wrong_draft_cell_makes_the_chain_wrong_from_its_second_proposal() -> None:
    rows = Rows(1)
    right = draft(rows, [6], [0])[0].tolist()
    rows.kv_indices[0, [2, 3]] = rows.kv_indices[0, [3, 2]]
    row = rows.kv_indices.clone()
    verify_tokens = torch.zeros(1, STEPS + 1, dtype=torch.int64)
    text = rows.texts[0]
    draft_kernel(
        ACCESS, rows.draft_kv, row, rows.weights, ints([6]), ints([text.token(6)]),
        ints([language.unembed(text.hidden(6))]), ints([text.hidden(6)]), NO_STOP, [0], verify_tokens,
    )  # fmt: skip
    wrong = verify_tokens[0].tolist()
    assert wrong[:2] == right[:2] and wrong[2] != right[2]


def verify(rows: Rows, frontier: list[int], tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """The outputs of a verify, by name."""
    count = len(frontier)
    names = ("accept_lens", "new_seq_lens", "bonus_tokens", "hidden_states")
    out = {"next_token_ids": torch.zeros_like(tokens)} | {n: torch.zeros(count, dtype=torch.int64) for n in names}
    rows.fill_target(frontier)
    verify_kernel(
        ACCESS, rows.target_kv, rows.kv_indices, rows.weights, ints(frontier), tokens, NO_STOP * count, *out.values()
    )
    return out


@pytest.mark.parametrize("frontier", [[2], [3, 4, 5], [15, 16]])
@pytest.mark.parametrize("flip", [0, 1, 2, 3])
def test_verify_accepts_up_to_the_first_wrong_proposal(frontier: list[int], flip: int) -> None:
    rows = Rows(len(frontier))
    out = verify(rows, frontier, draft(rows, frontier, [flip] * len(frontier)))
    accept = flip or STEPS + 1
    assert out["accept_lens"].tolist() == [accept] * len(frontier)
    for row, (text, c) in enumerate(zip(rows.texts, frontier, strict=True)):
        assert out["next_token_ids"][row, :accept].tolist() == [text.token(c + 1 + k) for k in range(accept)]
        assert out["new_seq_lens"][row].item() == c + accept
        assert out["bonus_tokens"][row].item() == text.token(c + accept)
        assert out["hidden_states"][row].item() == text.hidden(c + accept - 1)


@pytest.mark.parametrize("base", [2, 4, 15])
@pytest.mark.parametrize("last", [0, 1, 3])
def test_draft_extend_ends_at_the_frontier_of_the_accepted_run(base: int, last: int) -> None:
    rows = Rows(1)
    text, frontier = rows.texts[0], base + last + 1
    rows.fill_draft([base])
    following = torch.tensor([[text.token(base + lane + 1) for lane in range(STEPS + 1)]])
    topk, hidden = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    draft_extend_kernel(
        ACCESS, rows.draft_kv, rows.kv_indices, rows.weights, ints([base]), following, ints([last]),
        ints([text.hidden(frontier - 1)]), None, topk, hidden,
    )  # fmt: skip
    assert hidden.item() == text.hidden(frontier)
    assert topk.item() == text.token(frontier + 1)
    cells = rows.draft_kv[rows.slots(0, 0, frontier)].tolist()
    assert cells == [text.draft_cell(position) for position in range(frontier)]


@pytest.mark.parametrize("extend_lens", [[1], [4], [1, 4], [3, 1, 5]])
def test_draft_prefill_pairs_every_position_with_the_token_after_it(extend_lens: list[int]) -> None:
    count = len(extend_lens)
    rows = Rows(count)
    pairs = list(zip(rows.texts, extend_lens, strict=True))
    input_ids = [text.token(p) for text, length in pairs for p in range(length)]
    topk, hidden = torch.zeros(count, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    draft_prefill_kernel(
        ACCESS, rows.draft_kv, rows.kv_indices, rows.weights, ints(extend_lens), ints(input_ids), extend_lens,
        ints([text.token(length) for text, length in pairs]), ints([text.hidden(n - 1) for text, n in pairs]),
        topk, hidden,
    )  # fmt: skip
    assert topk.tolist() == [language.unembed(text.hidden(length)) for text, length in pairs]
    for row, (text, length) in enumerate(pairs):
        assert rows.draft_kv[rows.slots(row, 0, length)].tolist() == [text.draft_cell(p) for p in range(length)]
    written = {slot for row, length in enumerate(extend_lens) for slot in rows.slots(row, 0, length)}
    assert {slot for slot, cell in enumerate(rows.draft_kv.tolist()) if cell != JUNK} <= written | {0}
