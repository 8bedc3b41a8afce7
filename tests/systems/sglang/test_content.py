"""The fake model's vectorised arithmetic is `core.language`, cell by cell and token by token."""

from __future__ import annotations

import numpy as np
import pytest

from specfuzz.core import language
from specfuzz.core.language import STOP_TOKEN, Continuation, prompt_tokens
from specfuzz.systems.sglang.content import ToyModel, Window, mix, unembed

WIDTH, SLOTS = 40, 64


def window(text: Continuation, cells: np.ndarray, start: int, end: int, stops: frozenset[int] = frozenset()) -> Window:
    tokens = np.array([text.token(position) for position in range(start, end)], dtype=np.int64)
    return Window(start=start, tokens=tokens, loc=cells[start:end], cells=cells[:end], stops=stops)


@pytest.fixture
def text() -> Continuation:
    return Continuation(prompt_tokens("a", 9))


@pytest.fixture
def cells() -> np.ndarray:
    """A row whose slots are scattered over the pool."""
    return np.random.default_rng(7).permutation(np.arange(1, SLOTS))[:WIDTH].astype(np.int64)


@pytest.mark.parametrize("left", [0, 1, -1, STOP_TOKEN, -(1 << 63), (1 << 63) - 1])
@pytest.mark.parametrize("right", [0, 3, -(1 << 63), 1 << 62])
def test_mix_and_unembed_agree_with_python_integers(left: int, right: int) -> None:
    found = mix(np.array([left], dtype=np.int64), np.array([right], dtype=np.int64))
    assert int(found[0]) == language.mix(left, right)
    assert int(unembed(found)[0]) == language.unembed(language.mix(left, right))


def test_an_extend_writes_the_right_cells_and_samples_the_next_token(text: Continuation, cells: np.ndarray) -> None:
    model = ToyModel(SLOTS, WIDTH, draft=False)
    [(reductions, following)] = model.target_forward([window(text, cells, 0, 9)])
    assert [int(token) for token in following[:-1]] != [
        text.token(p) for p in range(1, 9)
    ]  # a prompt is not greedy text
    assert int(following[-1]) == text.token(9)
    assert int(reductions[-1]) == text.hidden(8)
    for position in range(9):
        slot = cells[position]
        assert (int(model.target_v1[slot]), int(model.target_v2[slot])) == text.target_cell(position)


def test_a_prefix_in_other_slots_is_read_through_the_row(text: Continuation, cells: np.ndarray) -> None:
    model = ToyModel(SLOTS, WIDTH, draft=False)
    model.target_forward([window(text, cells, 0, 5)])
    [(_, following)] = model.target_forward([window(text, cells, 5, 9)])
    assert int(following[-1]) == text.token(9)


def test_one_stale_slot_changes_the_text(text: Continuation, cells: np.ndarray) -> None:
    model = ToyModel(SLOTS, WIDTH, draft=False)
    model.target_forward([window(text, cells, 0, 5)])
    model.target_v1[cells[3]] ^= 1
    [(_, following)] = model.target_forward([window(text, cells, 5, 9)])
    assert int(following[-1]) != text.token(9)


def test_the_draft_predicts_the_target_while_its_state_is_right(text: Continuation, cells: np.ndarray) -> None:
    model = ToyModel(SLOTS, WIDTH, draft=True)
    following = np.array([text.token(position) for position in range(1, 10)], dtype=np.int64)
    model.draft_extend(cells[:9], 0, following)
    hidden = model.draft_reduction(cells, 9, text.token(9), text.hidden(8))
    assert hidden == text.hidden(9)
    assert language.unembed(hidden) == text.token(10)
    assert model.draft_step(cells, 10, text.token(10), hidden) == text.hidden(10)
    assert model.draft_v1 is not None
    assert [int(model.draft_v1[cells[p]]) for p in range(10)] == [text.draft_cell(p) for p in range(10)]


def test_an_armed_stop_replaces_the_token_at_its_position(text: Continuation, cells: np.ndarray) -> None:
    model = ToyModel(SLOTS, WIDTH, draft=False)
    [(_, following)] = model.target_forward([window(text, cells, 0, 9, frozenset({9}))])
    assert int(following[-1]) == STOP_TOKEN
