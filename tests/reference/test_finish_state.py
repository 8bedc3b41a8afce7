"""When a request ends and with how many tokens: the first condition met wins, and nothing behind it is seen."""

from __future__ import annotations

import pytest

from specfuzz.core.language import STOP_TOKEN
from specfuzz.reference.req import Req

CAP = 8


def settled(before: int, run: int, stop_at: int | None = None, *, aborted: bool = False) -> Req:
    """A request with `before` tokens that has just settled a run of `run`, a stop token among all of them."""
    req = Req("a", (1, 2), CAP)
    req.output_ids = [index + 10 for index in range(before + run)]
    if stop_at is not None:
        req.output_ids[stop_at] = STOP_TOKEN
    if aborted:
        req.to_finish = "abort"
    req.update_finish_state(run)
    return req


@pytest.mark.parametrize(
    ("before", "run", "stop_at", "reason", "finished_len"),
    [
        (2, 3, None, None, None),
        (2, 3, 2, "stop", 3),  # first of the run
        (2, 3, 3, "stop", 4),  # middle
        (2, 3, 4, "stop", 5),  # last
        (7, 1, None, "length", 8),
        (6, 4, None, "length", 8),  # the run crosses the cap
        (6, 4, 6, "stop", 7),  # both in one run, the stop first
        (6, 4, 7, "stop", 8),  # the stop is the cap's last token
        (6, 4, 8, "length", 8),  # the stop lies beyond the cap: the client never sees it
        (6, 4, 9, "length", 8),
        (4, 2, 1, None, None),  # a stop before the run was judged when it settled
    ],
)
def test_the_first_condition_met_wins(
    before: int, run: int, stop_at: int | None, reason: str | None, finished_len: int | None
) -> None:
    req = settled(before, run, stop_at)
    assert (req.finished_reason, req.finished_len) == (reason, finished_len)


@pytest.mark.parametrize(("before", "stop_at"), [(2, None), (2, 3), (6, None)])
def test_an_abort_ends_at_the_next_result_whatever_it_holds(before: int, stop_at: int | None) -> None:
    req = settled(before, 3, stop_at, aborted=True)
    assert (req.finished_reason, req.finished_len, req.to_finish) == ("abort", None, None)


def test_a_finished_request_is_not_judged_again() -> None:
    req = settled(6, 2)
    req.output_ids.append(STOP_TOKEN)
    req.update_finish_state(1)
    assert (req.finished_reason, req.finished_len) == ("length", CAP)


@pytest.mark.parametrize(("finished_len", "owned"), [(None, 9), (3, 5), (20, 9)])
def test_the_tree_may_take_what_is_committed_cut_at_the_stop(finished_len: int | None, owned: int) -> None:
    req = Req("a", (1, 2), CAP)
    req.kv.kv_committed_len, req.finished_len = 9, finished_len
    assert req.owned_kv_len() == owned


def test_a_retraction_keeps_the_output_and_forgets_the_row() -> None:
    req = settled(2, 3)
    req.kv.kv_committed_len = req.kv.cache_protected_len = req.prefix_len = 6
    req.reset_for_retract()
    assert (req.kv.kv_committed_len, req.kv.cache_protected_len, req.prefix_len) == (0, 0, 0)
    assert len(req.output_ids) == 5 and req.is_retracted and req.retraction_count == 1


def test_the_histogram_counts_rounds_by_correct_drafts() -> None:
    req = Req("a", (1, 2), CAP)
    for correct in (2, 0, 2):
        req.update_spec_correct_drafts_histogram(correct)
    assert req.spec_correct_drafts_histogram == [1, 0, 2]
