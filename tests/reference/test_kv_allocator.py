"""The page allocator: fills the last page first, hands out whole pages, refuses whole, frees in groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfuzz.reference.kv_allocator import TokenToKVPoolAllocator


def test_the_padding_page_is_never_handed_out() -> None:
    slots = TokenToKVPoolAllocator(3, 4).alloc_extend(0, 12, -1)
    assert slots is not None and sorted(slots) == list(range(4, 16))


def test_an_extend_fills_the_last_page_before_it_takes_a_new_one() -> None:
    allocator = TokenToKVPoolAllocator(4, 4)
    first = allocator.alloc_extend(0, 2, -1)
    assert first == [4, 5]
    assert allocator.alloc_extend(2, 4, first[-1]) == [6, 7]
    assert allocator.available_size() == 12


def test_an_extend_past_the_last_page_goes_on_in_the_next_free_one() -> None:
    allocator = TokenToKVPoolAllocator(4, 4)
    assert allocator.alloc_extend(3, 6, 4 * 2 + 2) == [11, 4, 5]


@pytest.mark.parametrize("position", [0, 4])
def test_on_a_page_boundary_the_last_slot_does_not_matter(position: int) -> None:
    answers = [TokenToKVPoolAllocator(4, 4).alloc_extend(position, position + 1, last) for last in (-1, 7, 99)]
    assert answers == [[4], [4], [4]]


def test_an_empty_extend_takes_nothing() -> None:
    allocator = TokenToKVPoolAllocator(2, 4)
    assert allocator.alloc_extend(3, 3, 6) == []
    assert allocator.available_size() == 8


def test_a_request_that_does_not_fit_takes_nothing() -> None:
    allocator = TokenToKVPoolAllocator(2, 4)
    assert allocator.alloc_extend(0, 9, -1) is None
    assert allocator.available_size() == 8


def test_a_freed_page_is_the_next_one_out() -> None:
    allocator = TokenToKVPoolAllocator(3, 4)
    allocator.alloc_extend(0, 8, -1)
    allocator.free([4])
    assert allocator.alloc_extend(0, 1, -1) == [4]


def test_freeing_any_slot_of_a_page_frees_the_page_once() -> None:
    allocator = TokenToKVPoolAllocator(2, 4)
    allocator.alloc_extend(0, 8, -1)
    allocator.free([5, 6, 4])
    assert allocator.free_pages == [1]


def test_a_group_hands_its_pages_back_when_it_ends() -> None:
    allocator = TokenToKVPoolAllocator(2, 1)
    slots = allocator.alloc_extend(0, 2, -1)
    assert slots is not None
    allocator.free_group_begin()
    allocator.free(slots[:1])
    allocator.free(slots[1:])
    assert allocator.available_size() == 0
    allocator.free_group_end()
    assert allocator.available_size() == 2


@given(
    st.sampled_from([1, 4, 16]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20)), max_size=30),
)
def test_rows_that_grow_and_go_never_share_a_page(page_size: int, steps: list[tuple[int, int]]) -> None:
    """Each step grows one of four rows; 0 frees it. Every page is free or held by exactly one row."""
    allocator = TokenToKVPoolAllocator(12, page_size)
    rows: list[list[int]] = [[] for _ in range(4)]
    for which, more in steps:
        row = rows[which]
        if more == 0:
            allocator.free(row)
            rows[which] = []
        else:
            free = allocator.available_size()
            slots = allocator.alloc_extend(len(row), len(row) + more, row[-1] if row else -1)
            room = free + -len(row) % page_size
            assert (slots is None) == (more > room)
            row += slots or []
        held = [page for row in rows for page in dict.fromkeys(slot // page_size for slot in row)]
        assert sorted(held + allocator.free_pages) == list(range(1, 13))
        assert all(slot % page_size == position % page_size for row in rows for position, slot in enumerate(row))
