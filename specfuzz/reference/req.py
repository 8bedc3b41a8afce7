"""The request and its KV record: host objects, shared by every batch that carries the request.

Order that always holds while a row is held:
    0 <= cache_protected_len <= kv_committed_len <= kv_allocated_len <= row width
    [0, cache_protected_len)                   owned by the radix tree
    [cache_protected_len, kv_committed_len)    this request's real KV
    [kv_committed_len, kv_allocated_len)       reserve; written ahead of the host by forwards in flight
"""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.lemmas import finished_len as first_end
from specfuzz.core.lemmas import owned_len
from specfuzz.reference.grammar import Grammar
from specfuzz.reference.tree_node import TreeNode


@dataclass(slots=True)
class ReqKvInfo:
    """One row's ledger, in tokens. Written by allocation, by result processing and by reset only; never by a worker."""

    req_pool_idx: int | None = None
    cache_protected_len: int = 0
    kv_committed_len: int = 0
    kv_allocated_len: int = 0

    @property
    def holds_kv(self) -> bool:
        """Whether a row is held."""
        return self.req_pool_idx is not None


class Req:
    """One request. `seqlen` and everything on it is host-settled, except what `kv` says about plans."""

    __slots__ = (
        "decode_batch_idx",
        "extend_batch_idx",
        "extend_end",
        "finished_len",
        "finished_reason",
        "full_untruncated_fill_ids",
        "grammar",
        "inflight_middle_chunks",
        "is_retracted",
        "kv",
        "last_node",
        "lock",
        "max_new_tokens",
        "origin_input_ids",
        "output_ids",
        "prefix_len",
        "retraction_count",
        "rid",
        "spec_correct_drafts_histogram",
        "spec_num_correct_drafts",
        "spec_verify_ct",
        "stop_at",
        "to_finish",
    )

    def __init__(
        self, rid: str, origin_input_ids: tuple[int, ...], max_new_tokens: int, grammar: Grammar | None = None
    ) -> None:
        """origin_input_ids: prompt token ids."""
        self.rid = rid
        self.origin_input_ids = origin_input_ids
        self.max_new_tokens = max_new_tokens
        self.output_ids: list[int] = []
        self.full_untruncated_fill_ids = origin_input_ids  # prompt and output as of the last refresh: keys of the tree
        self.stop_at: int | None = None  # output index at which the target's text stops
        self.grammar = grammar
        self.kv = ReqKvInfo()
        self.prefix_len = 0
        self.extend_end = 0
        self.last_node: TreeNode | None = None
        self.lock: TreeNode | None = None
        self.finished_reason: str | None = None
        self.finished_len: int | None = None
        self.to_finish: str | None = None
        self.is_retracted = False
        self.retraction_count = 0
        self.inflight_middle_chunks = 0
        self.extend_batch_idx = 0
        self.decode_batch_idx = 0
        self.spec_verify_ct = 0
        self.spec_num_correct_drafts = 0
        self.spec_correct_drafts_histogram: list[int] = []

    @property
    def seqlen(self) -> int:
        """Prompt plus output, in tokens; host-settled."""
        return len(self.origin_input_ids) + len(self.output_ids)

    def refresh_fill_ids(self) -> None:
        """Let the fill ids catch up with the output: at admission, when the row is mixed in, and at release.

        Between those they lag, so that a checkpoint never reaches beyond the tokens that its extend was launched with.
        """
        self.full_untruncated_fill_ids = self.origin_input_ids + tuple(self.output_ids)

    @property
    def stop_position(self) -> int:
        """Absolute position of the stop token that the target will emit, -1 if none is due."""
        return -1 if self.stop_at is None else len(self.origin_input_ids) + self.stop_at

    @property
    def draft_stop_position(self) -> int:
        """Absolute position at which the draft expects the stop token: it has learnt where such texts end. -1: none."""
        ends = [] if self.stop_at is None else [self.stop_at]
        if self.grammar is not None:
            ends.append(self.grammar.length - 1)
        return len(self.origin_input_ids) + min(ends) if ends else -1

    def finished(self) -> bool:
        """Whether a finish reason is set."""
        return self.finished_reason is not None

    def owned_kv_len(self) -> int:
        """Tokens that the tree may take over at release: committed, cut at the stop."""
        return owned_len(self.kv.kv_committed_len, len(self.origin_input_ids), self.finished_len)

    def update_finish_state(self, new_tokens: int) -> None:
        """Decide whether the request ends within its last `new_tokens` output ids; the first condition met wins."""
        if self.finished():
            return
        if self.to_finish is not None:
            self.finished_reason, self.to_finish = self.to_finish, None
            return
        start = len(self.output_ids) - new_tokens
        stop_index = self.output_ids.index(STOP_TOKEN, start) if STOP_TOKEN in self.output_ids[start:] else None
        length = first_end(len(self.output_ids), self.max_new_tokens, stop_index)
        if length is not None:
            # A stop beyond the cap is demoted: the client never sees it.
            within_cap = stop_index is not None and stop_index + 1 <= self.max_new_tokens
            self.finished_reason = "stop" if within_cap else "length"
            self.finished_len = length

    def update_spec_correct_drafts_histogram(self, correct_drafts: int) -> None:
        """Count one verify with that many correct drafts (without the bonus)."""
        histogram = self.spec_correct_drafts_histogram
        histogram.extend([0] * (correct_drafts + 1 - len(histogram)))
        histogram[correct_drafts] += 1

    def reset_for_retract(self) -> None:
        """Forget the row and all progress that lived on it; output_ids stay."""
        self.retraction_count += 1
        self.prefix_len = 0
        self.extend_end = 0
        self.kv.cache_protected_len = 0
        self.kv.kv_committed_len = 0
        self.last_node = None
        self.is_retracted = True
        self.inflight_middle_chunks = 0
        self.extend_batch_idx = 0
        self.decode_batch_idx = 0
