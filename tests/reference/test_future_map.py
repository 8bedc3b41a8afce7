"""The relay: what is published and stashed is read exactly once, by the rows that the scheduler bound."""

from __future__ import annotations

import pytest

from specfuzz.core.language import prompt_tokens
from specfuzz.gpu.device import Buffer
from specfuzz.reference.future_map import CONSUMED
from specfuzz.reference.req import Req
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.scheduler import Scheduler
from specfuzz.reference.spec_info import EagleDraftInput
from tests.reference.memory import open_engine


def batch_of(engine: Scheduler, *rids: str, algorithm: str = "EAGLE") -> ScheduleBatch:
    """A decode batch whose rows are bound to the relay."""
    reqs = []
    for rid in rids:
        req = Req(rid, prompt_tokens(rid, 4), 9)
        engine.req_to_token_pool.alloc(req)
        reqs.append(req)
    batch = ScheduleBatch(engine.streams, algorithm, reqs, ForwardMode.DECODE)
    batch.bind_rows()
    batch.bind_seq_lens([4] * len(reqs))
    if algorithm == "EAGLE":
        batch.spec_info = EagleDraftInput(future_indices=tuple(batch.req_pool_indices_cpu))
    return batch


def on_forward(engine: Scheduler, values: list[int], name: str = "values") -> Buffer:
    """A device array that is home on the forward stream."""
    return engine.device.buffer(engine.device.arrays.array(values), name, home="forward")


def stash(engine: Scheduler, batch: ScheduleBatch, bonus: list[int]) -> None:
    parts = [on_forward(engine, [value + offset for value in bonus]) for offset in (0, 100, 200)]
    engine.future_map.stash(batch, EagleDraftInput(*parts))


def test_a_row_that_was_never_written_is_poison() -> None:
    relay = open_engine().future_map
    for buffer in (relay.new_seq_lens_buf, relay.output_tokens_buf, relay.topk_index_buf, relay.hidden_states_buf):
        assert set(buffer.peek().tolist()) == {CONSUMED}


def test_resolve_binds_what_was_published_to_the_device_and_to_the_mirror() -> None:
    engine = open_engine()
    batch = batch_of(engine, "a", "b")
    engine.future_map.publish(batch, on_forward(engine, [7, 9]))
    engine.future_map.resolve_seq_lens_cpu(batch)
    assert batch.seq_lens_cpu == [7, 9]
    engine.device.drain()
    assert batch.seq_lens is not None and batch.seq_lens.peek().tolist() == [7, 9]


def test_resolve_reads_the_rows_in_the_order_of_the_batch() -> None:
    engine = open_engine()
    batch = batch_of(engine, "a", "b", "c")
    published = on_forward(engine, [5, 6, 7])
    rows = batch.req_pool_indices  # as the ring does, until the publish has run
    engine.future_map.publish(batch, published)
    batch.keep_rows([2, 0])
    engine.future_map.resolve_seq_lens_cpu(batch)
    assert batch.seq_lens_cpu == [7, 5] and rows is not batch.req_pool_indices


def test_resolve_waits_for_the_publish_and_not_for_the_rest_of_the_forward() -> None:
    engine = open_engine()
    batch = batch_of(engine, "a")
    engine.future_map.publish(batch, on_forward(engine, [7]))
    stash(engine, batch, [1])
    engine.future_map.resolve_seq_lens_cpu(batch)
    assert engine.device.pending("forward") == 1  # the stash


def test_a_published_frontier_is_consumed_once() -> None:
    engine = open_engine()
    batch = batch_of(engine, "a")
    engine.future_map.publish(batch, on_forward(engine, [7]))
    for expected in ([7], [CONSUMED]):
        engine.future_map.resolve_seq_lens_cpu(batch)
        engine.device.drain()
        assert batch.seq_lens_cpu == expected


@pytest.mark.parametrize("info", [None, EagleDraftInput()])
def test_a_batch_that_is_not_bound_to_the_relay_resolves_nothing(info: EagleDraftInput | None) -> None:
    engine = open_engine()
    batch = batch_of(engine, "a")
    batch.spec_info, before = info, batch.seq_lens
    engine.future_map.resolve_seq_lens_cpu(batch)
    assert batch.seq_lens is before and batch.seq_lens_cpu == [4]


def test_the_forward_gathers_the_pending_token_and_the_draft_state() -> None:
    engine = open_engine()
    batch = batch_of(engine, "a", "b")
    stash(engine, batch, [1, 2])
    engine.future_map.resolve_forward_inputs(batch)
    engine.device.drain()
    info = batch.spec_info
    assert isinstance(info, EagleDraftInput) and info.bonus_tokens and info.topk_index and info.hidden_states
    gathered = [part.peek().tolist() for part in (info.bonus_tokens, info.topk_index, info.hidden_states)]
    assert gathered == [[1, 2], [101, 102], [201, 202]]


def test_the_gather_consumes_the_pending_token() -> None:
    engine = open_engine()
    batch = batch_of(engine, "a")
    stash(engine, batch, [1])
    engine.future_map.resolve_forward_inputs(batch)
    engine.device.drain()
    assert engine.future_map.output_tokens_buf.peek()[batch.req_pool_indices_cpu].tolist() == [CONSUMED]


def test_the_gather_keeps_to_the_rows_that_the_scheduler_bound() -> None:
    engine = open_engine()
    batch = batch_of(engine, "a", "b")
    stash(engine, batch, [1, 2])
    info = batch.spec_info
    assert isinstance(info, EagleDraftInput) and info.future_indices is not None
    batch.spec_info = EagleDraftInput(future_indices=info.future_indices[::-1])
    engine.future_map.resolve_forward_inputs(batch)
    engine.device.drain()
    assert isinstance(batch.spec_info, EagleDraftInput) and batch.spec_info.bonus_tokens
    assert batch.spec_info.bonus_tokens.peek().tolist() == [2, 1]


def test_plain_decoding_reads_its_last_token_without_consuming_it() -> None:
    engine = open_engine(algorithm="NONE")
    batch = batch_of(engine, "a", algorithm="NONE")
    engine.future_map.stash_tokens(batch, on_forward(engine, [55]))
    for _ in range(2):
        engine.future_map.resolve_forward_inputs(batch)
        engine.device.drain()
        assert batch.input_ids is not None and batch.input_ids.peek().tolist() == [55]


def test_plain_decoding_publishes_its_length_plus_one() -> None:
    engine = open_engine(algorithm="NONE")
    batch = batch_of(engine, "a", algorithm="NONE")
    engine.future_map.publish_plain(batch)
    engine.device.drain()
    assert engine.future_map.new_seq_lens_buf.peek()[batch.req_pool_indices_cpu].tolist() == [5]


def test_staged_prompt_ids_are_used_once() -> None:
    engine = open_engine()
    batch = batch_of(engine, "a")
    batch.prefill_input_ids_cpu = [3, 4]
    engine.future_map.resolve_forward_inputs(batch)
    assert batch.input_ids is not None and batch.input_ids.peek().tolist() == [3, 4]
    assert batch.prefill_input_ids_cpu is None
