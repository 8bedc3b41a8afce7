"""The row table: rows are lent to one request at a time, and writes land in the order of the schedule stream."""

from __future__ import annotations

from specfuzz.gpu import open_device
from specfuzz.reference.req import Req
from specfuzz.reference.req_to_token_pool import ReqToTokenPool


def open_pool(size: int = 2, width: int = 6) -> ReqToTokenPool:
    return ReqToTokenPool(size, width, open_device("cpu"))


def request(rid: str = "a") -> Req:
    return Req(rid, (1, 2), 4)


def test_row_0_is_padding_and_is_never_lent() -> None:
    pool = open_pool(size=2)
    reqs = [request("a"), request("b")]
    for req in reqs:
        pool.alloc(req)
    assert sorted(req.kv.req_pool_idx or 0 for req in reqs) == [1, 2]
    assert pool.available_size() == 0


def test_a_request_that_holds_a_row_keeps_it() -> None:
    pool, req = open_pool(), request()
    pool.alloc(req)
    row = req.kv.req_pool_idx
    pool.alloc(req)
    assert req.kv.req_pool_idx == row and pool.available_size() == 1


def test_a_freed_row_can_be_lent_again_with_the_next_generation() -> None:
    pool, first, second = open_pool(size=1), request("a"), request("b")
    pool.alloc(first)
    pool.free(first)
    assert first.kv.req_pool_idx is None
    pool.alloc(second)
    assert second.kv.req_pool_idx == 1 and pool.req_generation[1] == 2


def test_the_host_mirror_reads_what_was_written_before_the_device_has_run() -> None:
    pool = open_pool()
    pool.write([(1, 0, [7, 8, 9]), (2, 1, [5])])
    assert pool.read(1, 0, 3) == [7, 8, 9] and pool.read(2, 0, 2) == [0, 5]
    assert pool.req_to_token.peek()[1].tolist() == [0] * 6


def test_the_device_table_catches_up_when_the_schedule_stream_runs() -> None:
    device = open_device("cpu")
    pool = ReqToTokenPool(2, 6, device)
    pool.write([(1, 0, [7, 8, 9])])
    pool.write([(1, 2, [4, 3])])
    device.advance("schedule", 2)
    assert pool.req_to_token.peek()[1].tolist() == [7, 8, 4, 3, 0, 0]


def test_cells_beyond_the_table_are_dropped() -> None:
    device = open_device("cpu")
    pool = ReqToTokenPool(1, 4, device)
    pool.write([(1, 3, [7, 8, 9])])
    device.drain()
    assert pool.req_to_token.peek().tolist() == [[0] * 4, [0, 0, 0, 7]]


def test_writing_nothing_enqueues_nothing() -> None:
    device = open_device("cpu")
    ReqToTokenPool(1, 4, device).write([(1, 0, [])])
    assert device.pending() == 0
