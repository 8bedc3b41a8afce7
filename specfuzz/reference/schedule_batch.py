"""The scheduler's batch: the present of one iteration. Row-parallel fields are rebuilt, never changed in place.

seq_lens: speculative DECODE = KV-ready base C (pending bonus not included); plain DECODE = C + 1 (with the token
that is being decoded); EXTEND = prefix + extend.
Source: sglang 0.5.23 managers/schedule_batch.py (behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from specfuzz.gpu.device import Buffer, Stream
from specfuzz.reference.req import Req
from specfuzz.reference.req_to_token_pool import ReqToTokenPool
from specfuzz.reference.sampling import SamplingBatchInfo
from specfuzz.reference.spec_info import EagleDraftInput, EagleVerifyInput, concat_kernel, gather_rows_kernel
from specfuzz.reference.streams import Streams


class ForwardMode(Enum):
    """EXTEND, MIXED, DECODE are the scheduler's; TARGET_VERIFY is the worker's own and must not be seen outside."""

    EXTEND = "EXTEND"
    MIXED = "MIXED"
    DECODE = "DECODE"
    TARGET_VERIFY = "TARGET_VERIFY"

    def is_extend(self) -> bool:
        """Whether the batch carries an extend (also while the worker verifies, which attends like one)."""
        return self is not ForwardMode.DECODE


@dataclass
class ScheduleBatch:
    """reqs and everything row-parallel to them; device tensors are (bs,) int64 unless said otherwise.

    req_pool_indices (+ _cpu): rows. seq_lens: device lengths; seq_lens_cpu: host mirror, None while it isn't known.
    input_ids: None between iterations. prefill_input_ids_cpu: staged ids of an extend, consumed by the forward.
    out_cache_loc: (sum of extend_lens,) slots that this forward writes. spec_info: relay binding.
    chunked_req: the request whose prompt goes on behind this extend, and its next prompt token. decoding_reqs: the
    one-token tails of a MIXED batch; mix_running_indices (+ _cpu): their rows, consumed by the forward.
    late_bound: what a late binding has replaced, kept until the forward has read it.
    """

    streams: Streams
    spec_algorithm: str
    reqs: list[Req] = field(default_factory=list)
    forward_mode: ForwardMode = ForwardMode.DECODE
    req_pool_indices: Buffer | None = None
    req_pool_indices_cpu: list[int] = field(default_factory=list)
    seq_lens: Buffer | None = None
    seq_lens_cpu: list[int] | None = None
    input_ids: Buffer | None = None
    prefill_input_ids_cpu: list[int] | None = None
    out_cache_loc: Buffer | None = None
    prefix_lens: list[int] | None = None
    extend_lens: list[int] | None = None
    spec_info: EagleDraftInput | EagleVerifyInput | None = None
    sampling_info: SamplingBatchInfo | None = None
    relay_index_ids: Buffer | None = None
    chunked_req: Req | None = None
    chunked_req_next_prompt_token: int | None = None
    decoding_reqs: list[Req] = field(default_factory=list)
    mix_running_indices: Buffer | None = None
    mix_running_indices_cpu: list[int] = field(default_factory=list)
    late_bound: tuple[Buffer | None, ...] = ()

    # ------------------------------------------------------------------ shape
    def batch_size(self) -> int:
        """Number of rows."""
        return len(self.reqs)

    def is_empty(self) -> bool:
        """Whether no request is left; tensors may be stale then."""
        return not self.reqs

    @property
    def has_grammar(self) -> bool:
        """Whether some row is constrained."""
        return any(req.grammar is not None for req in self.reqs)

    def new_tensor(self, name: str, *, on: Stream | None = None, lanes: int | None = None) -> Buffer:
        """Uninitialised (bs,) or (bs, lanes) int64 on the device, bound on the host by the returned object.

        on: the stream that allocates it (default: schedule), in whose order its memory may be handed out again.
        """
        shape = (len(self.reqs),) if lanes is None else (len(self.reqs), lanes)
        return self.streams.empty(shape, name, self.streams.schedule if on is None else on)

    def bind_rows(self) -> None:
        """Rebuild req_pool_indices from the requests."""
        self.req_pool_indices_cpu = [req.kv.req_pool_idx or 0 for req in self.reqs]
        self.req_pool_indices = self.to_device(self.req_pool_indices_cpu, "req_pool_indices")

    def bind_seq_lens(self, lens: list[int]) -> None:
        """Bind known lengths, with their mirror."""
        self.seq_lens_cpu = lens
        self.seq_lens = self.to_device(lens, "seq_lens")

    def to_device(self, values: list[int], name: str) -> Buffer:
        """Host integers as a new int64 tensor on the device."""
        device = self.streams.device
        return device.buffer(device.arrays.array(values), name)

    def cumulate_penalty_output_tokens(self) -> None:
        """Let the penalties count the last token that the host knows of every row, the prompt's before any output."""
        if self.sampling_info is not None and self.sampling_info.penalizer is not None:
            last = [req.output_ids[-1] if req.output_ids else req.origin_input_ids[-1] for req in self.reqs]
            self.sampling_info.penalizer.cumulate_output_tokens(last)

    # ------------------------------------------------------------------ filter and merge, always out of place
    def filter_batch(self, exclude: tuple[Req, ...] = ()) -> list[Req]:
        """Keep the rows that are neither finished, retracted nor excluded; returns those that left."""
        for req in self.reqs:
            if req.finished_reason is not None or req.is_retracted or req in exclude:
                break
        else:
            return []
        keep = [i for i, req in enumerate(self.reqs) if not (req.finished() or req.is_retracted or req in exclude)]
        dropped = [req for i, req in enumerate(self.reqs) if i not in keep]
        self.keep_rows(keep)
        return dropped

    def keep_rows(self, keep: list[int]) -> None:
        """Keep these rows, in this order."""
        if not keep:
            self.reqs = []  # the tensors stay as they are: is_empty looks at reqs only
            return
        old_rows = self.req_pool_indices_cpu
        self.reqs = [self.reqs[i] for i in keep]
        self.req_pool_indices_cpu = [old_rows[i] for i in keep]
        self.req_pool_indices = self.to_device(self.req_pool_indices_cpu, "req_pool_indices")
        self.out_cache_loc = None
        self.seq_lens = self._gather(self.seq_lens, keep, "seq_lens")
        self.seq_lens_cpu = None if self.seq_lens_cpu is None else [self.seq_lens_cpu[i] for i in keep]
        self.filter_spec_info(keep)
        if self.sampling_info is not None:
            self.sampling_info.filter_batch(keep)

    def filter_spec_info(self, keep: list[int]) -> None:
        """Forward the filter to the relay binding: indices under overlap, tensors otherwise."""
        info = self.spec_info
        if not isinstance(info, EagleDraftInput):
            return
        if info.future_indices is not None:
            self.spec_info = EagleDraftInput(future_indices=tuple(info.future_indices[i] for i in keep))
        else:
            self.spec_info = EagleDraftInput(
                bonus_tokens=self._gather(info.bonus_tokens, keep, "bonus_tokens"),
                topk_index=self._gather(info.topk_index, keep, "topk_index"),
                hidden_states=self._gather(info.hidden_states, keep, "hidden_states"),
            )

    def merge_batch(self, other: ScheduleBatch) -> None:
        """Append the rows of `other`."""
        both = [*self.reqs, *other.reqs]
        self.seq_lens = self._concat(self.seq_lens, other.seq_lens, len(both), "seq_lens")
        mirrors = (self.seq_lens_cpu, other.seq_lens_cpu)
        self.seq_lens_cpu = None if None in mirrors else [*(mirrors[0] or ()), *(mirrors[1] or ())]
        self.reqs = both
        self.req_pool_indices_cpu = [*self.req_pool_indices_cpu, *other.req_pool_indices_cpu]
        self.req_pool_indices = self.to_device(self.req_pool_indices_cpu, "req_pool_indices")
        self.out_cache_loc = None
        self._merge_spec_info(other.spec_info)
        if self.sampling_info is not None and other.sampling_info is not None:
            self.sampling_info.merge_batch(other.sampling_info)

    def _merge_spec_info(self, theirs: EagleDraftInput | EagleVerifyInput | None) -> None:
        mine = self.spec_info
        if not isinstance(mine, EagleDraftInput) or not isinstance(theirs, EagleDraftInput):
            return
        if mine.future_indices is not None:
            self.spec_info = EagleDraftInput(future_indices=mine.future_indices + (theirs.future_indices or ()))
        else:
            rows = len(self.reqs)
            self.spec_info = EagleDraftInput(
                bonus_tokens=self._concat(mine.bonus_tokens, theirs.bonus_tokens, rows, "bonus_tokens"),
                topk_index=self._concat(mine.topk_index, theirs.topk_index, rows, "topk_index"),
                hidden_states=self._concat(mine.hidden_states, theirs.hidden_states, rows, "hidden_states"),
            )

    def _gather(self, source: Buffer | None, keep: list[int], name: str) -> Buffer | None:
        if source is None:
            return None
        out = self.streams.empty((len(keep), *source.shape[1:]), name, self.streams.schedule)
        self.streams.schedule.launch(f"filter {name}", gather_rows_kernel, source, keep, out)
        return out

    def _concat(self, first: Buffer | None, second: Buffer | None, rows: int, name: str) -> Buffer | None:
        if first is None or second is None:
            return None
        out = self.streams.empty((rows, *first.shape[1:]), name, self.streams.schedule)
        self.streams.schedule.launch(f"merge {name}", concat_kernel, first, second, out)
        return out

    def mix_with_running(self, running: ScheduleBatch, table: ReqToTokenPool) -> None:
        """Turn this extend into a MIXED batch: the rows of a prepared decode ride along as one-token extends.

        A plain row was prepared with its token's slot and length. A speculative row stands at its settled base, where
        the pending bonus token goes: length base + 1, slot row[base]. Under overlap that base lags behind by the
        accept in flight, and the forward binds the tail anew from the relay.
        """
        assert self.seq_lens_cpu is not None and self.prefix_lens is not None and self.extend_lens is not None
        own_lens, own_mirror, own_loc = self.seq_lens, self.seq_lens_cpu, self.out_cache_loc
        tail_loc, tails = running.out_cache_loc, running.reqs
        if self.spec_algorithm == "NONE":
            assert running.seq_lens_cpu is not None
            prefix_lens = [length - 1 for length in running.seq_lens_cpu]
        else:
            prefix_lens = [req.seqlen - 1 for req in tails]
        self.forward_mode = ForwardMode.MIXED
        self.decoding_reqs = tails
        self.mix_running_indices = running.req_pool_indices
        self.mix_running_indices_cpu = running.req_pool_indices_cpu
        for req, prefix_len in zip(tails, prefix_lens, strict=True):
            req.refresh_fill_ids()
            req.extend_end = prefix_len + 1
        self.merge_batch(running)
        if self.spec_algorithm != "NONE":
            # The merge has no mirror for rows that the relay decides, and lengths without the pending token.
            lens = [prefix_len + 1 for prefix_len in prefix_lens]
            self.seq_lens = self._concat(own_lens, self.to_device(lens, "seq_lens"), len(self.reqs), "seq_lens")
            self.seq_lens_cpu = own_mirror + lens
            rows = running.req_pool_indices_cpu
            slots = [table.read(row, at, at + 1)[0] for row, at in zip(rows, prefix_lens, strict=True)]
            tail_loc = self.to_device(slots, "out_cache_loc")
        window = sum(self.extend_lens) + len(tails)
        self.out_cache_loc = self._concat(own_loc, tail_loc, window, "out_cache_loc")
        self.prefix_lens = self.prefix_lens + prefix_lens
        self.extend_lens = self.extend_lens + [1] * len(tails)

    # ------------------------------------------------------------------ queue copy
    def copy(self) -> ScheduleBatch:
        """The reduced snapshot that goes into the result queue: a list of its own, the same Req objects."""
        return ScheduleBatch(
            streams=self.streams,
            spec_algorithm=self.spec_algorithm,
            reqs=self.reqs[:],
            forward_mode=self.forward_mode,
            req_pool_indices_cpu=self.req_pool_indices_cpu,
            extend_lens=self.extend_lens,
            prefix_lens=self.prefix_lens,
            decoding_reqs=self.decoding_reqs,
        )
