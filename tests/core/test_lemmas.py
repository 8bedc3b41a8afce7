"""The integer lemmas against brute force: search for the value that the sentence describes."""

from __future__ import annotations

from itertools import product

from specfuzz.core import lemmas
from specfuzz.core.config import PAGE_SIZES

SMALL = range(40)


def test_alignment_finds_the_nearest_multiple() -> None:
    for length, page in product(range(150), (1, 3, *PAGE_SIZES)):
        assert lemmas.ceil_align(length, page) == min(m for m in range(0, 300, page) if m >= length)
        assert lemmas.floor_align(length, page) == max(m for m in range(0, 300, page) if m <= length)


def test_a_reserve_is_the_least_aligned_length_that_is_enough() -> None:
    for committed, extra, reserve, page in product(SMALL, range(0, 20, 3), (1, 2, 8, 13), PAGE_SIZES):
        allocated = committed + extra
        got = lemmas.reserved_len(committed, allocated, reserve, page)
        enough = [n for n in range(0, 300, page) if n >= committed + reserve]
        assert got == (allocated if allocated >= enough[0] else enough[0])


def test_two_windows_absorb_one_unsettled_verify_and_one_window_does_not() -> None:
    for committed, window, page in product(SMALL, (1, 2, 4, 7), PAGE_SIZES):
        assert all(lemmas.window_fits(committed, lead, window, page) for lead in range(window + 1))
    tight = [(c, w) for c, w in product(SMALL, (2, 4)) if c + w + w > lemmas.reserved_len(c, c, w, 1)]
    assert len(tight) == len(SMALL) * 2


def test_a_settled_run_moves_both_lengths() -> None:
    for committed, run in product(SMALL, range(1, 8)):
        assert lemmas.settled_lens(committed, committed + 1, run) == (committed + run, committed + run + 1)


def test_an_owner_caches_what_is_committed_and_not_past_the_stop() -> None:
    for committed, prompt in product(SMALL, (2, 5, 11)):
        assert lemmas.owned_len(committed, prompt, None) == len(range(committed))
        for finished in range(12):
            kept = [p for p in range(committed) if p < prompt + finished]
            assert lemmas.owned_len(committed, prompt, finished) == len(kept)


def test_a_mixed_tail_is_one_token_at_the_frontier() -> None:
    for fresh in SMALL:
        start, extend, end = lemmas.mixed_tail(fresh)
        assert list(range(start, end)) == [fresh] and extend == 1


def test_a_request_ends_at_its_first_end_condition() -> None:
    for outputs, cap in product(range(12), range(1, 12)):
        for stop in (None, *range(outputs)):
            ends = [n for n in range(1, outputs + 1) if n == cap or (stop is not None and n == stop + 1)]
            assert lemmas.finished_len(outputs, cap, stop) == (ends[0] if ends else None)


def test_every_lemma_is_listed_and_has_a_contract() -> None:
    public = {f for n, f in vars(lemmas).items() if callable(f) and getattr(f, "__module__", "") == lemmas.__name__}
    assert public == set(lemmas.LEMMAS)
    assert all("pre:" in (f.__doc__ or "") and "post:" in (f.__doc__ or "") for f in lemmas.LEMMAS)
