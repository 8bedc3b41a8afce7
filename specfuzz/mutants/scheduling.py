"""Planted bugs of the scheduling step: who is served, who gives way, what is launched and what is told."""

from __future__ import annotations

from collections.abc import Sequence

from specfuzz.core.capability import Capability
from specfuzz.mutants import mutant
from specfuzz.reference.metrics_reporter import SchedulerMetricsReporter
from specfuzz.reference.req import Req
from specfuzz.reference.result_processor import Settled
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler


@mutant("row-kept-at-finish", source="mini-sglang #111", killed_by=("finish-releases",))
def row_kept_at_finish(engine: Scheduler) -> None:
    """A finished request keeps its row and its KV."""
    processor = engine.result_processor
    processor.release_finished = lambda req, settled: settled.finished.append(req)  # type: ignore[method-assign]


@mutant(
    "result-queued-first",
    source="sglang 0.5.23 Scheduler.event_loop_overlap",
    killed_by=("queue-depth",),
    needs=Capability.OVERLAP,
)
def result_queued_first(engine: Scheduler) -> None:
    """A new result is put before the one that waits."""
    launch = engine.launch

    def launch_first(batch: ScheduleBatch) -> None:
        launch(batch)
        engine.result_queue.rotate(1)

    engine.launch = launch_first  # type: ignore[method-assign]


@mutant("row-dropped-at-launch", source="sglang #18984", killed_by=("no-dead-row-launched",))
def row_dropped_at_launch(engine: Scheduler) -> None:
    """A decode is launched without the last of the rows that were prepared."""
    launch = engine.launch

    def launch_fewer(batch: ScheduleBatch) -> None:
        if not batch.forward_mode.is_extend() and batch.batch_size() > 1:
            loc, rows = batch.out_cache_loc, batch.batch_size() - 1
            batch.keep_rows(list(range(rows)))
            batch.out_cache_loc = batch._gather(loc, list(range(rows)), "out_cache_loc")
        launch(batch)

    engine.launch = launch_fewer  # type: ignore[method-assign]


@mutant(
    "last-row-left-behind",
    source="vLLM #27922",
    killed_by=("no-request-is-left-behind", "nobody-is-lost"),
)
def last_row_left_behind(engine: Scheduler) -> None:
    """A step takes the last of three rows for certain to finish, and drops it from the running batch."""
    drop = engine._drop_reqs_finishing_inflight

    def drop_too_many() -> list[Req]:
        dropped, reqs = drop(), engine.running_batch.reqs
        if len(reqs) > 2:
            dropped.append(reqs[-1])
            engine.running_batch.filter_batch((reqs[-1],))
        return dropped

    engine._drop_reqs_finishing_inflight = drop_too_many  # type: ignore[method-assign]


@mutant("retracted-without-need", source="sglang #14942", killed_by=("retraction-needs-pressure",))
def retracted_without_need(engine: Scheduler) -> None:
    """The memory check of three rows and more always fails."""
    check = engine.pools.check_decode_mem

    def check_decode_mem(reqs: Sequence[Req]) -> bool:
        return check(list(reqs)) and len(reqs) < 3

    engine.pools.check_decode_mem = check_decode_mem  # type: ignore[method-assign]


@mutant(
    "retracted-before-evicting",
    source="sglang 0.5.23 ScheduleBatch.check_decode_mem",
    killed_by=("retraction-needs-pressure",),
    needs=Capability.RADIX | Capability.TREE_VIEW,
)
def retracted_before_evicting(engine: Scheduler) -> None:
    """The memory check doesn't evict, so that rows give way to what nobody uses."""
    pools = engine.pools
    pools.check_decode_mem = (  # type: ignore[method-assign]
        lambda reqs: engine.allocator.available_size() >= pools.tokens_required_next_decode(reqs)
    )


@mutant(
    "retracted-never-readmitted",
    source="sglang 0.5.23 PrefillAdder.add_one_req",
    killed_by=("refusal-needs-pressure",),
)
def retracted_never_readmitted(engine: Scheduler) -> None:
    """A request that was retracted once is refused from then on."""
    adder = engine.prefill_adder
    refusal = adder.refusal

    def refuse(req: Req, chunk: int, num_mixed_decode_tokens: int = 0) -> str | None:
        return refusal(req, chunk, num_mixed_decode_tokens) or ("no room" if req.retraction_count else None)

    adder.refusal = refuse  # type: ignore[method-assign]


@mutant("retracted-request-lost", source="vLLM #27922", killed_by=("nobody-is-lost",))
def retracted_request_lost(engine: Scheduler) -> None:
    """A request that is retracted doesn't get back into the waiting queue."""
    retract = engine.retract

    def retract_and_lose(req: Req) -> bool:
        done = retract(req)
        if done:
            engine.waiting_queue.pop()
        return done

    engine.retract = retract_and_lose  # type: ignore[method-assign]


@mutant(
    "retracted-flag-cleared-early",
    source="sglang 0.5.23 ScheduleBatch.prepare_for_extend: is_retracted",
    killed_by=("retracted-until-admitted", "dead-rows-are-inert"),
)
def retracted_flag_cleared_early(engine: Scheduler) -> None:
    """The next scheduling step takes a retracted request for a new one, while its old forward may be unsettled."""
    merge = engine.merge_last_batch

    def merge_last_batch() -> None:
        for req in engine.waiting_queue:
            req.is_retracted = False
        merge()

    engine.merge_last_batch = merge_last_batch  # type: ignore[method-assign]


@mutant(
    "reserve-trimmed-at-settle",
    source="sglang-jax #1147",
    killed_by=("allocated-never-shrinks",),
    needs=Capability.SPECULATIVE,
)
def reserve_trimmed_at_settle(engine: Scheduler) -> None:
    """A settled verify takes its unused reserve out of the ledger, and frees nothing."""
    settle = engine.settle

    def settle_and_trim() -> Settled:
        settled = settle()
        for req, _run in settled.emitted:
            if not req.finished():
                req.kv.kv_allocated_len = max(req.kv.kv_committed_len, req.kv.kv_allocated_len - 1)
        return settled

    engine.settle = settle_and_trim  # type: ignore[method-assign]


@mutant("last-token-not-told", source="vLLM #42117", killed_by=("receipt-tells-the-truth",))
def last_token_not_told(engine: Scheduler) -> None:
    """What is streamed to the client of a result lacks its last token."""
    settle = engine.settle

    def settle_and_cut() -> Settled:
        settled = settle()
        settled.emitted = [(req, run[:-1]) for req, run in settled.emitted]
        return settled

    engine.settle = settle_and_cut  # type: ignore[method-assign]


class _Generous(SchedulerMetricsReporter):
    def update_spec_metrics(self, bs: int, num_correct_drafts: int, num_accept_tokens: int) -> None:
        super().update_spec_metrics(bs, num_accept_tokens, num_accept_tokens)


@mutant(
    "dashboard-counts-the-bonus",
    source="sglang 0.5.23 update_spec_metrics",
    killed_by=("global-acceptance-adds-up",),
    needs=Capability.SPECULATIVE,
)
def dashboard_counts_the_bonus(engine: Scheduler) -> None:
    """The global acceptance rate takes the bonus of every row for an accepted draft."""
    engine.result_processor.metrics_reporter = _Generous()
