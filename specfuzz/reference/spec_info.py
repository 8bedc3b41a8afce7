"""What a batch carries from one speculative round to the next, and what one forward returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from specfuzz.gpu.arrays import Array
from specfuzz.gpu.device import Buffer, Event
from specfuzz.gpu.races import Access


def gather_rows_kernel(access: Access, source: Array, keep: list[int], out: Array) -> None:
    """out[i] = source[keep[i]]; along dimension 0."""
    out[...] = source[keep]
    access.read(source, None)
    access.write(out, None)


def concat_kernel(access: Access, first: Array, second: Array, out: Array) -> None:
    """out = first followed by second, along dimension 0."""
    out[: len(first)] = first
    out[len(first) :] = second
    access.read(first, None)
    access.read(second, None)
    access.write(out, None)


@dataclass(slots=True)
class EagleDraftInput:
    """Relay content of one batch, row-parallel.

    Overlap: future_indices names the FutureMap rows where the content lies, the tensors are None outside of a forward.
    Sync: the tensors themselves cross the rounds. bonus_tokens, hidden_states: (bs,) int64, device. topk_index: (bs,),
    of a tree (bs, topk).
    """

    bonus_tokens: Buffer | None = None
    topk_index: Buffer | None = None
    hidden_states: Buffer | None = None
    future_indices: tuple[int, ...] | None = None


@dataclass(slots=True)
class EagleVerifyInput:
    """What the worker binds to spec_info while it verifies; never seen outside of a forward. draft_tokens: (bs, K).

    Of a tree by node: positions, parents (bs, K), tree_mask (bs, K, K). None for a chain, whose shape is known.
    """

    draft_tokens: Buffer
    positions: Buffer | None = None
    parents: Buffer | None = None
    tree_mask: Buffer | None = None


@dataclass(slots=True)
class GenerationBatchResult:
    """Result of one forward; device tensors, then their host copies once `copy_done` has fired.

    next_token_ids: (bs * stride,) int64, row i valid for accept_lens[i]. accept_lens: (bs,) incl. the bonus.
    new_seq_lens: (bs,) next KV-ready frontier. extra_keep_alive_refs: internal tensors that must outlive the launch.
    grammar_advanced: whether the FSMs of the rows have accepted it, which a later forward may ask for before it is
    processed; grammar_retained_tokens: by row, what they kept of an accepted run. delay_sample_func: samples what the
    forward has left, once the vocab masks are known; None when that is done.
    Of a tree: accept_index (bs, S + 1) accepted nodes by level, then -1; tgt_cache_loc, accept_out_cache_loc
    (bs, S + 1) slots that the accepted path was moved to and from. None for a chain, whose path is the window's front.
    """

    next_token_ids: Buffer
    accept_lens: Buffer | None = None
    new_seq_lens: Buffer | None = None
    next_draft_input: EagleDraftInput | None = None
    stride: int = 1
    copy_done: Event | None = None
    next_token_ids_cpu: Buffer | None = None
    accept_lens_cpu: Buffer | None = None
    extra_keep_alive_refs: list[object] = field(default_factory=list)
    grammar_advanced: bool = False
    grammar_retained_tokens: list[list[int] | None] | None = None
    delay_sample_func: Callable[[], None] | None = None
    accept_index: Buffer | None = None
    tgt_cache_loc: Buffer | None = None
    accept_out_cache_loc: Buffer | None = None
