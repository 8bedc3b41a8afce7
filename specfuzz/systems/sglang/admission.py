"""One scheduling step up to its batch: the head of `get_next_batch_to_run`, then admission of one request.

The events name the request, so that function and `_get_new_batch_prefill_raw` are walked here, line by line and on the
real objects, instead of being called. What decides is the engine's own: `PrefillAdder`, the checkpoint of a chunk, the
deferred abort of a chunked request, the memory check, `prepare_for_decode`, `mix_with_running`, the relay.
"""

from __future__ import annotations

from typing import Any

import torch

from specfuzz.systems.sglang.harness import Rig

_NO_ROW = "no free row"
_NO_ROOM = "no room in the KV pool"
_TOO_SMALL = "the chunk is smaller than a page"


def begin(scheduler: Any) -> None:
    """Drop an aborted chunked request, hand a launched chunk to the tree, merge the last extend, drop finished rows."""
    scheduler.process_pending_chunked_abort()
    chunked = scheduler.chunked_req
    if chunked is not None and chunked.extend_end > chunked.prefix_len:
        scheduler.stash_chunked_request(chunked)
    last, scheduler.last_batch = scheduler.last_batch, None
    if last is not None and last.forward_mode.is_extend():
        last.filter_batch(reqs_to_exclude=[req for req in (chunked, last.chunked_req) if req is not None])
        if not last.is_empty() and last is not scheduler.running_batch:
            if scheduler.running_batch.is_empty():
                scheduler.running_batch = last
            else:
                scheduler.running_batch.merge_batch(last)
    scheduler.running_batch.filter_batch()


def admit(rig: Rig, req: Any, chunk: int) -> tuple[Any, str]:
    """The EXTEND batch of a waiting request, or of the next chunk of the chunked one; (None, why) if there is none.

    chunk: most prompt tokens that are launched, 0 for no bound. A chunk that goes on is never refused by the engine:
    where the pool is exhausted it takes its whole bound and fails in the allocation.
    """
    scheduler, engine, config = rig.scheduler, rig.engine, rig.config
    running, goes_on = scheduler.running_batch, req is scheduler.chunked_req
    if not goes_on and not rig.rows.available_size():
        return None, _NO_ROW
    # The engine's budgets pay for the tails first; a chunk's bound is about its prompt alone. No bound is none for a
    # first chunk, but `add_chunked_req` wants a number: no prompt is longer than the context.
    tails = len(running.reqs) if scheduler.is_mixed_chunk else 0
    bound = chunk or (config.context_len if goes_on else None)
    adder = engine.PrefillAdder(
        config.page_size, rig.tree, rig.allocator, running, scheduler.new_token_ratio_tracker.current,
        config.context_len + tails, None if bound is None else bound + tails, tails,
        max_running_requests=config.max_reqs,
    )  # fmt: skip
    if goes_on:
        req.init_next_round_input()
        scheduler.chunked_req = adder.add_chunked_req(req)
    else:
        req.init_next_round_input(rig.tree)
        verdict = adder.add_one_req(req, has_chunked_req=False, truncation_align_size=None)
        if not adder.can_run_list:
            return None, _NO_ROOM if verdict is engine.AddReqResult.NO_TOKEN else _TOO_SMALL
        scheduler.waiting_queue = [other for other in scheduler.waiting_queue if other is not req]
        scheduler.chunked_req = adder.new_chunked_req
    if scheduler.chunked_req is not None:
        scheduler.chunked_req.inflight_middle_chunks += 1
    batch = engine.ScheduleBatch.init_new(
        adder.can_run_list, rig.rows, rig.allocator, rig.tree, rig.model_config, scheduler.enable_overlap,
        scheduler.spec_algorithm, chunked_req=scheduler.chunked_req,
    )  # fmt: skip
    batch.prepare_for_extend()
    batch.decoding_reqs = None
    return batch, ""


def mix(rig: Rig, batch: Any) -> list[Any]:
    """Let the running rows ride along with an admitted extend; returns those certain to finish, which leave instead.

    Without memory for their next decode they sit this step out, and the batch stays a plain EXTEND.
    """
    scheduler, running = rig.scheduler, rig.scheduler.running_batch
    if running.is_empty():
        return []
    finishing: list[Any] = scheduler._reqs_finishing_inflight(running)
    running.filter_batch(reqs_to_exclude=finishing)
    if running.is_empty() or not running.check_decode_mem():
        return finishing
    running.prepare_for_decode()
    batch.mix_with_running(running)
    batch.decoding_reqs = running.reqs
    if not scheduler.enable_overlap and not scheduler.spec_algorithm.is_none():
        # Without overlap draft state crosses rounds as tensors, and nobody has written the relay.
        tokens = torch.tensor([tail.output_ids[-1] for tail in running.reqs], dtype=torch.int64)
        scheduler.future_map.stash_bonus_tokens(running.req_pool_indices, tokens)
    scheduler.running_batch = rig.engine.ScheduleBatch(reqs=[])
    return finishing
