"""The shape of draft trees: every verified node hangs on a verified one, and the right path is always among them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.core.config import PAGE_SIZES, EngineConfig
from specfuzz.core.draft_tree import (
    branch_stride,
    branches_end,
    most_nodes,
    nodes_of,
    right_branch,
    right_path,
    seeds,
    sibling_flip,
)
from specfuzz.core.language import FLIP_BIT, STOP_TOKEN, TOKEN_MASK, unembed


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """(topk, steps, nodes, right branch) of a configuration that is admitted."""
    topk, steps = draw(st.integers(2, 6)), draw(st.integers(1, 5))
    nodes = draw(st.integers(steps + 1, min(most_nodes(topk, steps), 40)))
    return topk, steps, nodes, draw(st.integers(0, topk - 1))


@given(shapes())
def test_a_tree_has_its_nodes_level_by_level_and_every_parent_is_one_of_them(shape: tuple[int, int, int, int]) -> None:
    topk, steps, count, _branch = shape
    nodes = nodes_of(*shape)
    assert len(nodes) == count - 1
    numbers = [node.number(topk) for node in nodes]
    assert numbers == sorted(set(numbers)) and numbers[-1] < most_nodes(topk, steps) - 1
    for node in nodes:
        assert 1 <= node.level <= steps and 0 <= node.branch < topk
        if node.level == 1:
            assert (node.parent, node.alternative) == (0, 0)
        else:
            parent = nodes[node.parent - 1]
            assert (parent.level, parent.branch, parent.alternative) == (node.level - 1, node.branch, 0)


@given(shapes())
def test_the_right_path_has_one_node_per_level_and_goes_from_child_to_child(shape: tuple[int, int, int, int]) -> None:
    _topk, steps, _count, branch = shape
    nodes, path = nodes_of(*shape), right_path(*shape)
    assert path[0] == 0 and len(path) == steps + 1
    for level, node in enumerate(path[1:], 1):
        assert (nodes[node - 1].level, nodes[node - 1].branch, nodes[node - 1].alternative) == (level, branch, 0)
        assert nodes[node - 1].parent == path[level - 1]


def test_a_whole_tree_holds_every_candidate() -> None:
    assert most_nodes(3, 1) == 4 and most_nodes(2, 3) == 1 + 2 + 4 + 4
    numbers = [node.number(2) for node in nodes_of(2, 3, most_nodes(2, 3), 1)]
    assert numbers == list(range(10))


def test_accepted_paths_lie_scattered_in_the_trees_of_a_campaign() -> None:
    assert [right_path(4, 3, 8, branch) for branch in range(4)] == [
        (0, 1, 4, 7),
        (0, 1, 4, 7),
        (0, 2, 4, 7),
        (0, 3, 5, 7),
    ]


# ------------------------------------------------------------------------------------------------------------ proposals


def test_the_right_branch_changes_with_request_and_round() -> None:
    found = Counter(right_branch(rid, frontier, 4) for rid in "abcdefgh" for frontier in range(64))
    assert set(found) == {0, 1, 2, 3} and min(found.values()) > 512 / 4 / 2
    assert {right_branch("a", frontier, 1) for frontier in range(9)} == {0}


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 64), st.data())
def test_one_seed_is_the_best_one_and_all_differ(hidden: int, topk: int, data: st.DataObject) -> None:
    branch = data.draw(st.integers(0, topk - 1))
    found = seeds(hidden, branch, topk)
    assert found[branch] == unembed(hidden) and len(set(found)) == topk
    assert all(0 <= seed <= TOKEN_MASK for seed in found)


def test_a_sibling_is_never_the_flipped_proposal_nor_a_stop() -> None:
    flips = {sibling_flip(number) for number in range(64)}
    assert len(flips) == 64 and 0 in flips and FLIP_BIT not in flips
    assert all((STOP_TOKEN ^ flip) > TOKEN_MASK for flip in flips)


# ------------------------------------------------------------------------------------------------- where branches write


@given(st.integers(1, 300), st.sampled_from(PAGE_SIZES), st.integers(1, 6), st.integers(2, 8))
def test_branches_take_whole_pages_and_fit_what_one_decode_may_write(
    frontier: int, page_size: int, steps: int, topk: int
) -> None:
    stride, tail = branch_stride(frontier, page_size, steps), frontier % page_size
    assert stride % page_size == 0 and tail + steps <= stride < tail + steps + page_size
    config = EngineConfig(topk=topk, spec_steps=steps, draft_token_num=steps + 1, page_size=page_size, num_pages=4096)
    end = branches_end(frontier, page_size, steps, topk)
    assert frontier - tail + topk * stride == end <= frontier + config.alloc_len_per_decode


@pytest.mark.parametrize(
    ("page_size", "topk", "steps", "nodes", "wanted"),
    [
        (1, 4, 3, 8, 12),
        (1, 2, 3, 11, 11),
        (4, 4, 3, 8, 4 * 8),
        (16, 4, 1, 5, 4 * 16),
        (16, 4, 2, 8, 4 * 32),
        (4, 1, 3, 4, 4),
    ],
)
def test_the_reserve_counts_branches_in_whole_pages(
    page_size: int, topk: int, steps: int, nodes: int, wanted: int
) -> None:
    config = EngineConfig(topk=topk, spec_steps=steps, draft_token_num=nodes, page_size=page_size, num_pages=1024)
    assert config.alloc_len_per_decode == wanted and config.reserve_per_decode == 2 * wanted
    assert config.max_accept == steps + 1
