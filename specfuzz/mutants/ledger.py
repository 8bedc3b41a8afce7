"""Planted bugs of the host ledger: reserve, claims, clocks."""

from __future__ import annotations

from typing import Any

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.mutants import mutant
from specfuzz.reference.req import Req
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.scheduler import Scheduler


class _OneWindow(EngineConfig):
    @property
    def reserve_per_decode(self) -> int:
        return self.alloc_len_per_decode


@mutant(
    "reserve-1x",
    source="TensorRT-LLM #16280",
    killed_by=("reserve-covers-two-rounds", "window-inside-the-reserve"),
    needs=Capability.SPECULATIVE,
)
def reserve_1x(engine: Scheduler) -> None:
    """Prepare reserves one window instead of two, so a verify behind an unsettled one writes past the allocation."""
    engine.pools.config = _OneWindow(**engine.config.as_dict())


@mutant(
    "unaligned-reserve",
    source="sglang #31616, #35265",
    killed_by=("reserve-ends-on-a-page",),
    needs=Capability.SPECULATIVE | Capability.PAGED,
)
def unaligned_reserve(engine: Scheduler) -> None:
    """The ledger records the reserve's unaligned end although whole pages were taken."""
    reserve = engine.config.reserve_per_decode
    engine.pools._reserve_target = lambda req: max(  # type: ignore[method-assign]
        req.kv.kv_allocated_len, req.kv.kv_committed_len + reserve
    )


@mutant(
    "reserve-accumulates",
    source="sglang #32459",
    killed_by=("reserve-is-not-hoarded",),
    needs=Capability.SPECULATIVE,
)
def reserve_accumulates(engine: Scheduler) -> None:
    """Every prepare adds the whole reserve on top of what is already allocated."""
    engine.pools._reserve_target = lambda req: (  # type: ignore[method-assign]
        req.kv.kv_allocated_len + engine.config.reserve_per_decode * engine.config.page_size
    )


@mutant(
    "worker-commits",
    source="sglang 0.5.23 ownership rule: a draft worker never advances kv_committed_len",
    killed_by=("worker-keeps-off-the-ledger", "extend-commits-its-window"),
    needs=Capability.SPECULATIVE,
)
def worker_commits(engine: Scheduler) -> None:
    """The draft worker advances kv_committed_len by the token that it is about to feed."""
    work = engine.model_worker.forward_batch_generation

    def draft(batch: ScheduleBatch, on_publish: Any) -> Any:
        for req in batch.reqs:
            req.kv.kv_committed_len += 1
        return work(batch, on_publish)

    engine.model_worker.forward_batch_generation = draft  # type: ignore[method-assign]


@mutant(
    "prepare-commits",
    source="sglang #24590, #24745",
    killed_by=("prepare-never-commits",),
    needs=Capability.SPECULATIVE,
)
def prepare_commits(engine: Scheduler) -> None:
    """The speculative prepare claims the bonus slot ahead of time, as plain decoding does."""
    reserve = engine.pools.alloc_for_spec_decode

    def alloc_for_spec_decode(reqs: list[Req]) -> None:
        reserve(reqs)
        for req in reqs:
            req.kv.kv_committed_len += 1

    engine.pools.alloc_for_spec_decode = alloc_for_spec_decode  # type: ignore[method-assign]


@mutant(
    "allocated-not-recorded",
    source="sglang-jax #1147",
    killed_by=("pages-are-conserved", "reserve-covers-two-rounds", "ledger-in-order", "window-inside-the-reserve"),
    needs=Capability.SPECULATIVE,
)
def allocated_not_recorded(engine: Scheduler) -> None:
    """Prepare takes pages but never moves the allocated watermark."""
    reserve = engine.pools.alloc_for_spec_decode

    def alloc_for_spec_decode(reqs: list[Req]) -> None:
        before = [req.kv.kv_allocated_len for req in reqs]
        reserve(reqs)
        for req, length in zip(reqs, before, strict=True):
            req.kv.kv_allocated_len = length

    engine.pools.alloc_for_spec_decode = alloc_for_spec_decode  # type: ignore[method-assign]


@mutant("clock-ticks-twice", source="sglang 0.5.23 decode_batch_idx ownership rule", killed_by=("clocks-tick-once",))
def clock_ticks_twice(engine: Scheduler) -> None:
    """The worker repeats the tick of the decode clock that prepare has made."""
    work = engine.model_worker.forward_batch_generation

    def forward(batch: ScheduleBatch, on_publish: Any) -> Any:
        for req in batch.reqs:
            req.decode_batch_idx += 1
        return work(batch, on_publish)

    engine.model_worker.forward_batch_generation = forward  # type: ignore[method-assign]
