"""Trees on arrays equal a slow walk on integers, whatever the shape, the page and the accept length, on both faces."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specfuzz.core.draft_tree import branch_stride, right_branch, right_path, seeds
from specfuzz.core.language import FLIP_BIT, STOP_TOKEN
from specfuzz.gpu.arrays import Arrays, NumpyArrays, TorchArrays
from specfuzz.reference.model import Weights
from specfuzz.reference.model_tree import Tree, right_branches
from specfuzz.reference.model_tree_verify import accept_tree_kernel
from tests.reference.memory import ACCESS, JUNK, Rows, touched
from tests.reference.trees import Round, Shape, slow_walk

SMALL, USUAL, PAGED, LONG = Shape(2, 2, 3), Shape(4, 3, 8), Shape(4, 3, 8, 4), Shape(3, 4, 20, 16)
SHAPES = [SMALL, Shape(2, 1, 3), USUAL, PAGED, LONG, Shape(4, 2, 21, 4)]
faces_stay = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=["numpy", "torch"])
def xp(request: pytest.FixtureRequest) -> Arrays:
    return NumpyArrays() if request.param == "numpy" else TorchArrays(torch.device("cpu"))


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Shape, list[int], list[int], int]:
    """(shape, frontiers, accept lengths, seed) of up to three rows; frontiers around page edges too."""
    shape, rows = draw(st.sampled_from(SHAPES)), draw(st.integers(1, 3))
    frontier = [draw(st.integers(2 + row, 20)) for row in range(rows)]
    accept = [draw(st.integers(1, shape.steps + 1)) for _ in range(rows)]
    return shape, frontier, accept, draw(st.integers(0, 9))


# ----------------------------------------------------------------------------------------------------------- the tables


@pytest.mark.parametrize("shape", SHAPES)
def test_every_node_attends_to_itself_and_to_all_above_it(xp: Arrays, shape: Shape) -> None:
    tree = Tree(shape.topk, shape.steps, shape.nodes, shape.page_size, xp)
    for mask, parents, depths in zip(tree.ancestors.tolist(), tree.parents.tolist(), tree.depths.tolist(), strict=True):
        for node in range(shape.nodes):
            above = {node}
            while node:
                node = parents[node]
                above.add(node)
            start = max(above)
            assert [at for at, seen in enumerate(mask[start]) if seen] == sorted(above)
            assert depths[start] == len(above) - 1


@faces_stay
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 2**20)), min_size=1, max_size=8))
def test_the_device_chooses_the_branch_that_the_integers_choose(xp: Arrays, places: list[tuple[str, int]]) -> None:
    from specfuzz.core.draft_tree import branch_key

    found = right_branches(Weights(1, xp), [branch_key(rid) for rid, _ in places], xp.array([c for _, c in places]), 5)
    assert found.tolist() == [right_branch(rid, c, 5) for rid, c in places]


# ------------------------------------------------------------------------------------------------------------ the draft


@faces_stay
@given(rounds())
def test_a_draft_proposes_what_every_branch_follows_from(
    xp: Arrays, drawn: tuple[Shape, list[int], list[int], int]
) -> None:
    shape, frontier, accept, seed = drawn
    found = Round(shape, frontier, accept, xp, seed=seed)
    found.copy_tails()
    assert found.draft() == [found.slow_draft(row) for row in range(len(frontier))]


@faces_stay
@given(rounds())
def test_only_the_right_path_is_the_text_and_only_up_to_the_flip(
    xp: Arrays, drawn: tuple[Shape, list[int], list[int], int]
) -> None:
    shape, frontier, accept, seed = drawn
    found = Round(shape, frontier, accept, xp, seed=seed)
    found.copy_tails()
    for row, tokens in enumerate(found.draft()):
        text, c, path = found.rows.texts[row], frontier[row], right_path(*_shape(found, row))
        right = {node for level, node in enumerate(path) if level < accept[row]}
        levels = [0, *(node.level for node in found.nodes(row))]
        equal = {node for node, token in enumerate(tokens) if token == text.token(c + levels[node])}
        assert equal == right
        if accept[row] <= shape.steps:
            assert tokens[path[accept[row]]] == text.token(c + accept[row]) ^ FLIP_BIT


def _shape(found: Round, row: int) -> tuple[int, int, int, int]:
    return found.shape.topk, found.shape.steps, found.shape.nodes, found.branches[row]


@pytest.mark.parametrize("frontier", [4, 5, 7, 8, 11])
def test_branches_write_into_pages_of_their_own_behind_the_frontier(xp: Arrays, frontier: int) -> None:
    found = Round(PAGED, [frontier], [4], xp)
    found.copy_tails()
    found.draft()
    base, stride = frontier - frontier % 4, branch_stride(frontier, 4, PAGED.steps)
    row = found.rows.row_slots[0]
    own = {row[base + t * stride + frontier % 4 + s] for t in range(4) for s in range(PAGED.steps - 1)}
    copies = {row[base + t * stride + o] for t in range(1, 4) for o in range(frontier % 4)}
    slots = touched(found.rows.draft_kv)
    assert slots <= own | copies | set(row[:frontier]) | {0} and own <= slots
    cells = found.rows.draft_kv.tolist()
    for t in range(1, 4):
        for offset in range(frontier % 4):
            assert cells[row[base + t * stride + offset]] == found.rows.texts[0].draft_cell(base + offset)


def test_a_missing_copy_of_the_partial_page_misleads_the_branch_behind_its_seed(xp: Arrays) -> None:
    frontier = next(c for c in range(9, 64) if c % 4 and right_branch("r0", c, 4))
    found = Round(PAGED, [frontier], [4], xp)
    tokens, path = found.draft()[0], right_path(*_shape(found, 0))
    right = [tokens[node] == found.rows.texts[0].token(frontier + level) for level, node in enumerate(path)]
    assert right == [True, True, False, False]


def test_one_wrong_draft_cell_misleads_every_branch(xp: Arrays) -> None:
    found = Round(USUAL, [9], [4], xp)
    found.rows.draft_kv[found.rows.slots(0, 2, 3)[0]] = JUNK
    tokens, path = found.draft()[0], right_path(*_shape(found, 0))
    right = [tokens[node] == found.rows.texts[0].token(9 + level) for level, node in enumerate(path)]
    assert right == [True, True, False, False]


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_draft_proposes_the_armed_stop_on_the_right_path_alone(xp: Arrays, level: int) -> None:
    found = Round(USUAL, [6], [4], xp)
    found.stops = [6 + level]
    found.rows.texts[0].arm_stop(6 + level)
    tokens, path = found.draft()[0], right_path(*_shape(found, 0))
    assert [tokens[node] for node in path] == [found.rows.texts[0].token(6 + at) for at in range(4)]
    siblings = [n for n, node in enumerate(found.nodes(0), 1) if node.level == level and n not in path]
    stopping = [n for n in siblings if tokens[n] == STOP_TOKEN]
    assert tokens[path[level]] == STOP_TOKEN and all(found.nodes(0)[n - 1].parent != path[level - 1] for n in stopping)


# ----------------------------------------------------------------------------------------------------------- the verify


@faces_stay
@given(rounds())
def test_a_verify_is_plain_decoding_of_every_path(xp: Arrays, drawn: tuple[Shape, list[int], list[int], int]) -> None:
    shape, frontier, accept, seed = drawn
    found = Round(shape, frontier, accept, xp, seed=seed)
    found.copy_tails()
    tokens = found.draft()
    found.verify()
    for row, c in enumerate(frontier):
        predicted, hidden, cells = found.slow_verify(row, tokens[row])
        assert found.predict.tolist()[row] == predicted and found.hidden.tolist()[row] == hidden
        assert found.rows.target_cells(row, c, c + shape.nodes) == cells
        path = slow_walk([-1, *(node.parent for node in found.nodes(row))], tokens[row], predicted)
        assert path == list(right_path(*_shape(found, row)))[: accept[row]]
        assert found.accept_index.tolist()[row] == path + [-1] * (shape.steps + 1 - len(path))
        assert found.accept_lens.tolist()[row] == accept[row] and found.new_seq_lens.tolist()[row] == c + accept[row]


@st.composite
def any_tree(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    """(parents, tokens, predictions) of any tree whose siblings differ; several nodes may be right at once."""
    parents, tokens = [0], [draw(st.integers(0, 3))]
    for node in range(1, draw(st.integers(2, 12))):
        parent = draw(st.integers(0, node - 1))
        taken = {tokens[n] for n in range(1, node) if parents[n] == parent}
        parents.append(parent)
        tokens.append(draw(st.sampled_from([token for token in range(16) if token not in taken])))
    return parents, tokens, [draw(st.integers(0, 4)) for _ in parents]


@faces_stay
@given(st.lists(any_tree(), min_size=1, max_size=1), st.integers(1, 30))
def test_the_walk_follows_predictions_through_any_tree(
    xp: Arrays, trees: list[tuple[list[int], list[int], list[int]]], c: int
) -> None:
    parents, tokens, predicted = trees[0]
    depths, mask = [0], [[1] + [0] * (len(parents) - 1)]
    for node, parent in enumerate(parents[1:], 1):
        depths.append(depths[parent] + 1)
        mask.append([seen or at == node for at, seen in enumerate(mask[parent])])
    width, rows = max(depths) + 1, Rows(1, xp, width=64)
    index, lens, new_lens = rows.zeros(1, width), rows.zeros(1), rows.zeros(1)
    accept_tree_kernel(
        ACCESS, rows.weights, xp.array([c]), xp.array([tokens]), xp.array([[c + depth for depth in depths]]),
        xp.array([parents]), xp.array([[list(map(int, line)) for line in mask]]), xp.array([predicted]), index, lens,
        new_lens,
    )  # fmt: skip
    path = slow_walk([-1, *parents[1:]], tokens, predicted)
    assert index.tolist() == [path + [-1] * (width - len(path))]
    assert (lens.tolist(), new_lens.tolist()) == ([len(path)], [c + len(path)])


# ------------------------------------------------------------------------------------------------- move and next round


@faces_stay
@given(rounds())
def test_the_accepted_path_ends_at_the_front_and_the_next_round_starts_right(
    xp: Arrays, drawn: tuple[Shape, list[int], list[int], int]
) -> None:
    shape, frontier, accept, seed = drawn
    found = Round(shape, frontier, accept, xp, seed=seed)
    found.copy_tails()
    found.draft()
    found.verify()
    bonus = found.bonus(shape.steps + 1)
    targets, sources = found.move()
    topk_index, hidden = found.extend()
    for row, (text, c, a) in enumerate(zip(found.rows.texts, frontier, accept, strict=True)):
        window, path = found.rows.slots(row, c, c + shape.nodes), right_path(*_shape(found, row))[:a]
        pad = [0] * (shape.steps + 1 - a)
        assert targets[row] == window[:a] + pad and sources[row] == [window[node] for node in path] + pad
        assert found.rows.target_cells(row, 0, c + a) == [text.target_cell(p) for p in range(c + a)]
        assert found.predict.tolist()[row][:a] == [text.token(c + 1 + d) for d in range(a)]
        assert bonus[row] == text.token(c + a)
        assert found.rows.draft_cells(row, c + a) == [text.draft_cell(p) for p in range(c + a)]
        assert hidden.tolist()[row] == text.hidden(c + a)
        branch = right_branch(found.rids[row], c + a, shape.topk)
        assert tuple(topk_index.tolist()[row]) == seeds(text.hidden(c + a), branch, shape.topk)


def test_a_bonus_looked_up_by_nodes_per_row_is_right_in_the_first_row_only(xp: Arrays) -> None:
    found = Round(USUAL, [6, 7, 8], [2, 3, 4], xp)
    found.draft()
    found.verify()
    right = [text.token(c + a) for text, c, a in zip(found.rows.texts, [6, 7, 8], [2, 3, 4], strict=True)]
    assert found.bonus(USUAL.steps + 1) == right
    wrong = found.bonus(USUAL.nodes)
    assert wrong[0] == right[0] and wrong[1] != right[1] and wrong[2] != right[2]


def test_a_move_writes_nothing_behind_the_accepted_path(xp: Arrays) -> None:
    found = Round(USUAL, [6], [2], xp)
    found.draft()
    found.verify()
    before = found.rows.target_cells(0, 0, 6 + USUAL.nodes)
    found.move()
    after = found.rows.target_cells(0, 0, 6 + USUAL.nodes)
    assert [p for p, (one, other) in enumerate(zip(before, after, strict=True)) if one != other] in ([], [7])
    assert int(found.rows.target_v1[0]) == int(found.rows.target_v2[0]) == JUNK
