"""The relay between rounds: one row per req_to_token row, written and read on the device.

publish (forward stream): the next frontier is decided.  stash (forward stream): draft state and pending token.
resolve_seq_lens_cpu (schedule stream, behind publish_ready): the next round's lengths.
resolve_forward_inputs (forward stream): the next round's tokens and draft state, ordered by the stream itself.
The gathers that feed a speculative round write CONSUMED back into lengths and tokens, so that each write is used once;
a MIXED step consumes its tails' tokens and only looks at their lengths, as upstream does.
Source: sglang 0.5.23 managers/overlap_utils.py (behaviour).
"""

from __future__ import annotations

from specfuzz.core.config import EngineConfig
from specfuzz.gpu.arrays import Array, Arrays
from specfuzz.gpu.device import Buffer, Event
from specfuzz.gpu.races import Access
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.spec_info import EagleDraftInput, concat_kernel
from specfuzz.reference.streams import Streams

#: What a row holds that was never written or has been consumed; no token, no length.
CONSUMED = -1


def scatter_kernel(access: Access, buf: Array, rows: list[int], row_ids: Array, values: Array, step: int) -> None:
    """buf[rows] = values + step. row_ids: the same rows as a device tensor (bs,)."""
    buf[row_ids] = values + step
    access.read(values, None)
    access.write(buf, rows)


def stash_kernel(
    access: Access,
    output_tokens_buf: Array,
    topk_index_buf: Array,
    hidden_states_buf: Array,
    rows: list[int],
    row_ids: Array,
    bonus_tokens: Array,
    topk_index: Array,
    hidden_states: Array,
) -> None:
    """Pending token and draft state of every row of the batch."""
    output_tokens_buf[row_ids] = bonus_tokens
    topk_index_buf[row_ids] = topk_index
    hidden_states_buf[row_ids] = hidden_states
    for buf in (output_tokens_buf, topk_index_buf, hidden_states_buf):
        access.write(buf, rows)


def consume_kernel(access: Access, buf: Array, rows: list[int], out: Array) -> None:
    """out = buf[rows]; buf[rows] = CONSUMED."""
    out[...] = buf[rows]
    buf[rows] = CONSUMED
    access.read(buf, rows)
    access.write(buf, rows)
    access.write(out, None)


def mirror_kernel(access: Access, buf: Array, rows: list[int], out: Array) -> None:
    """Copy rows into pinned host memory."""
    out[...] = buf[rows]
    access.read(buf, rows)
    access.write(out, None)


def gather_tokens_kernel(access: Access, buf: Array, rows: list[int], row_ids: Array, out: Array) -> None:
    """out = buf[rows] without consuming: plain decoding's last sampled token."""
    out[...] = buf[row_ids]
    access.read(buf, rows)


def gather_extras_kernel(
    access: Access,
    output_tokens_buf: Array,
    topk_index_buf: Array,
    hidden_states_buf: Array,
    rows: list[int],
    row_ids: Array,
    bonus_tokens: Array,
    topk_index: Array,
    hidden_states: Array,
) -> None:
    """Pending token (consumed) and draft state of every row of the batch."""
    bonus_tokens[...] = output_tokens_buf[row_ids]
    topk_index[...] = topk_index_buf[row_ids]
    hidden_states[...] = hidden_states_buf[row_ids]
    output_tokens_buf[row_ids] = CONSUMED
    for buf in (output_tokens_buf, topk_index_buf, hidden_states_buf):
        access.read(buf, rows)
    access.write(output_tokens_buf, rows)


def bind_tails_kernel(
    access: Access,
    arrays: Arrays,
    new_seq_lens_buf: Array,
    req_to_token: Array,
    rows: list[int],
    row_ids: Array,
    old_lens: Array,
    old_loc: Array,
    seq_lens: Array,
    out_cache_loc: Array,
) -> None:
    """The tails are the last len(rows) rows: length fresh + 1, slot row[fresh]; all else is copied.

    old_lens, seq_lens: (bs,). old_loc, out_cache_loc: flat, one slot per tail at the end.
    """
    tails = len(rows)
    fresh = new_seq_lens_buf[row_ids]
    seq_lens[...] = old_lens
    seq_lens[-tails:] = fresh + 1
    out_cache_loc[...] = old_loc
    out_cache_loc[-tails:] = arrays.gather(arrays.rows(req_to_token, row_ids), fresh[:, None])[:, 0]
    for buf in (new_seq_lens_buf, req_to_token):
        access.read(buf, rows)
    for whole in (old_lens, old_loc):
        access.read(whole, None)
    access.write(seq_lens, None)


class FutureMap:
    """Relay rows by req_pool_idx; buffers (rows + 1,) int64 on the device, topk_index_buf of trees (rows + 1, topk)."""

    def __init__(self, config: EngineConfig, streams: Streams, req_to_token: Buffer) -> None:
        """req_to_token: the shared row table, for the slots of late-bound tails."""
        self._streams, self._device = streams, streams.device
        self._req_to_token, self._overlap = req_to_token, config.overlap
        self.needs_cpu_seq_lens = config.needs_cpu_seq_lens
        rows, topk = config.max_reqs + 1, config.topk
        self._schedule, self._forward, self._d2h = streams.schedule, streams.forward, streams.d2h
        self.new_seq_lens_buf = self._relay_buffer("new_seq_lens_buf", rows)
        self.output_tokens_buf = self._relay_buffer("output_tokens_buf", rows)
        self._seeds = None if topk == 1 else topk
        self.topk_index_buf = self._relay_buffer("topk_index_buf", rows, self._seeds)
        self.hidden_states_buf = self._relay_buffer("hidden_states_buf", rows)
        self.publish_ready: Event | None = None

    def _relay_buffer(self, name: str, rows: int, lanes: int | None = None) -> Buffer:
        shape = (rows,) if lanes is None else (rows, lanes)
        return self._device.buffer(self._device.arrays.full(shape, CONSUMED), name, home=self._forward.name)

    # ------------------------------------------------------------------ producers
    def publish(self, batch: ScheduleBatch, new_seq_lens: Buffer) -> None:
        """Scatter the next frontier of every row and record the fence. new_seq_lens: (bs,) int64."""
        self.scatter_frontier(batch, new_seq_lens, 0)
        self.publish_ready = self._forward.record("publish_ready")

    def publish_plain(self, batch: ScheduleBatch) -> None:
        """Plain decoding: the next length is this one plus one."""
        assert batch.seq_lens is not None
        self.scatter_frontier(batch, batch.seq_lens, 1)
        self.publish_ready = self._forward.record("publish_ready")

    def scatter_frontier(self, batch: ScheduleBatch, seq_lens: Buffer, step: int) -> None:
        """new_seq_lens_buf[rows of the batch] = seq_lens + step, on the forward stream."""
        self._forward.launch(
            "publish", scatter_kernel, self.new_seq_lens_buf, batch.req_pool_indices_cpu, batch.req_pool_indices,
            seq_lens, step,
        )  # fmt: skip

    def stash(self, batch: ScheduleBatch, payload: EagleDraftInput) -> None:
        """Scatter pending token and draft state of every row."""
        self._forward.launch(
            "stash", stash_kernel, self.output_tokens_buf, self.topk_index_buf, self.hidden_states_buf,
            batch.req_pool_indices_cpu, batch.req_pool_indices,
            payload.bonus_tokens, payload.topk_index, payload.hidden_states,
        )  # fmt: skip

    def stash_tokens(self, batch: ScheduleBatch, next_token_ids: Buffer) -> None:
        """Plain decoding and its prefill: the sampled token alone."""
        self._forward.launch(
            "stash",
            scatter_kernel,
            self.output_tokens_buf,
            batch.req_pool_indices_cpu,
            batch.req_pool_indices,
            next_token_ids,
            0,
        )

    def stash_bonus_tokens(self, batch: ScheduleBatch, tokens: list[int]) -> None:
        """The pending tokens of a MIXED batch's tails, known on the host: all that their relay rows carry then."""
        values = batch.to_device(tokens, "bonus_tokens")
        self._schedule.launch(
            "stash_bonus_tokens", scatter_kernel, self.output_tokens_buf, batch.mix_running_indices_cpu,
            batch.mix_running_indices, values, 0,
        )  # fmt: skip

    # ------------------------------------------------------------------ consumers
    def resolve_seq_lens_cpu(self, batch: ScheduleBatch) -> None:
        """Bind the published frontier of every row to batch.seq_lens, and its mirror to batch.seq_lens_cpu.

        The host waits for the mirror, so for the publish of the previous forward, but not for the rest of it. Where no
        backend needs a mirror, the host waits for nothing.
        """
        spec_info = batch.spec_info
        if not isinstance(spec_info, EagleDraftInput) or spec_info.future_indices is None:
            return
        rows = list(spec_info.future_indices)
        if self.publish_ready is not None:
            self._schedule.wait(self.publish_ready)
        batch.seq_lens_cpu = self._mirror(rows) if self.needs_cpu_seq_lens else None
        seq_lens = batch.new_tensor("seq_lens")
        self._schedule.launch("resolve_seq_lens", consume_kernel, self.new_seq_lens_buf, rows, seq_lens)
        batch.seq_lens = seq_lens

    def resolve_forward_inputs(self, batch: ScheduleBatch) -> None:
        """Fill what the worker reads: staged prefill ids, relayed tokens, relayed draft state."""
        if batch.prefill_input_ids_cpu is not None:
            batch.input_ids = batch.to_device(batch.prefill_input_ids_cpu, "input_ids")
            batch.prefill_input_ids_cpu = None
            if batch.mix_running_indices is not None:
                self._resolve_tails(batch)
            return
        rows = batch.req_pool_indices_cpu
        spec_info = batch.spec_info
        if batch.spec_algorithm == "NONE":
            batch.input_ids = batch.new_tensor("input_ids", on=self._forward)
            self._forward.launch(
                "gather_tokens",
                gather_tokens_kernel,
                self.output_tokens_buf,
                rows,
                batch.req_pool_indices,
                batch.input_ids,
            )
        elif isinstance(spec_info, EagleDraftInput) and spec_info.future_indices is not None:
            spec_info.bonus_tokens = batch.new_tensor("bonus_tokens", on=self._forward)
            spec_info.topk_index = batch.new_tensor("topk_index", on=self._forward, lanes=self._seeds)
            spec_info.hidden_states = batch.new_tensor("hidden_states", on=self._forward)
            # The relay rows are those that the scheduler bound, whatever the batch's own rows are by now.
            indices = list(spec_info.future_indices)
            index_ids = batch.to_device(indices, "future_indices")
            self._forward.launch(
                "gather_extras", gather_extras_kernel, self.output_tokens_buf, self.topk_index_buf,
                self.hidden_states_buf, indices, index_ids,
                spec_info.bonus_tokens, spec_info.topk_index, spec_info.hidden_states,
            )  # fmt: skip
            # Bound to the batch, so that the ring keeps it while the forward stream may read it.
            batch.relay_index_ids = index_ids

    def _resolve_tails(self, batch: ScheduleBatch) -> None:
        """Append the pending tokens of a MIXED batch's tails to its input ids; consumes the staging."""
        rows, row_ids, staged = batch.mix_running_indices_cpu, batch.mix_running_indices, batch.input_ids
        speculative = batch.spec_algorithm != "NONE"
        if self._overlap and speculative:
            self.resolve_mixed_spec_tails(batch)
        tokens = self._streams.empty((len(rows),), "tail_tokens", self._forward)
        if speculative:
            self._forward.launch("gather_tail_tokens", consume_kernel, self.output_tokens_buf, rows, tokens)
        else:
            self._forward.launch(
                "gather_tail_tokens", gather_tokens_kernel, self.output_tokens_buf, rows, row_ids, tokens
            )
        window = sum(batch.extend_lens or ())
        batch.input_ids = self._streams.empty((window,), "input_ids", self._forward)
        self._forward.launch("append_tail_tokens", concat_kernel, staged, tokens, batch.input_ids)
        batch.late_bound += (staged, tokens, row_ids)
        batch.mix_running_indices = None

    def resolve_mixed_spec_tails(self, batch: ScheduleBatch) -> None:
        """Bind the tails of a MIXED batch to the published frontier: lengths, slots, mirror and prefix lengths.

        What the scheduler has bound lags behind by the accept in flight. A tail is a one-token extend at the frontier:
        length fresh + 1, so that attention doesn't take it for an empty row, and slot row[fresh].
        """
        rows, row_ids = batch.mix_running_indices_cpu, batch.mix_running_indices
        old_lens, old_loc, tails = batch.seq_lens, batch.out_cache_loc, len(rows)
        assert batch.extend_lens is not None and batch.prefix_lens is not None and batch.seq_lens_cpu is not None
        batch.seq_lens = batch.new_tensor("seq_lens")  # the schedule stream's: the next merge reads it there
        batch.out_cache_loc = self._streams.empty((sum(batch.extend_lens),), "out_cache_loc", self._forward)
        self._forward.launch(
            "bind_mixed_tails", bind_tails_kernel, self._device.arrays, self.new_seq_lens_buf, self._req_to_token, rows,
            row_ids, old_lens, old_loc, batch.seq_lens, batch.out_cache_loc,
        )  # fmt: skip
        batch.late_bound = (old_lens, old_loc)
        fresh = self._mirror(rows)
        batch.seq_lens_cpu = batch.seq_lens_cpu[:-tails] + [length + 1 for length in fresh]
        batch.prefix_lens = batch.prefix_lens[:-tails] + fresh

    def _mirror(self, rows: list[int]) -> list[int]:
        """Host copy of published frontiers over the private stream; the host waits for the publish, not for more."""
        if self.publish_ready is not None:
            self._d2h.wait(self.publish_ready)
        pinned = self._streams.empty((len(rows),), "new_seq_lens_cpu_pinned", self._d2h, pinned=True)
        self._d2h.launch("mirror_seq_lens", mirror_kernel, self.new_seq_lens_buf, rows, pinned)
        self._d2h.record("seq_lens_mirrored").synchronize()
        lens: list[int] = self._device.host_read(pinned).tolist()
        return lens
