"""The relay between rounds: one row per req_to_token row, written and read on the device.

publish (forward stream): the next frontier is decided.  stash (forward stream): draft state and pending token.
resolve_seq_lens_cpu (schedule stream, behind publish_ready): the next round's lengths.
resolve_forward_inputs (forward stream): the next round's tokens and draft state, ordered by the stream itself.
The gathers that feed a speculative round write CONSUMED back into lengths and tokens, so that each write is used once.
Source: sglang 0.5.23 managers/overlap_utils.py (behaviour).
"""

from __future__ import annotations

from specfuzz.gpu.arrays import Array
from specfuzz.gpu.device import Buffer, Event
from specfuzz.gpu.races import Access
from specfuzz.reference.schedule_batch import ScheduleBatch
from specfuzz.reference.spec_info import EagleDraftInput
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


class FutureMap:
    """Relay rows by req_pool_idx; all buffers (rows + 1,) int64 on the device."""

    def __init__(self, rows: int, streams: Streams) -> None:
        """rows: including the padding row."""
        self._streams, self._device = streams, streams.device
        self._schedule, self._forward, self._d2h = streams.schedule, streams.forward, streams.d2h
        self.new_seq_lens_buf = self._relay_buffer("new_seq_lens_buf", rows)
        self.output_tokens_buf = self._relay_buffer("output_tokens_buf", rows)
        self.topk_index_buf = self._relay_buffer("topk_index_buf", rows)
        self.hidden_states_buf = self._relay_buffer("hidden_states_buf", rows)
        self.publish_ready: Event | None = None

    def _relay_buffer(self, name: str, rows: int) -> Buffer:
        return self._device.buffer(self._device.arrays.full((rows,), CONSUMED), name, home=self._forward.name)

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

    # ------------------------------------------------------------------ consumers
    def resolve_seq_lens_cpu(self, batch: ScheduleBatch) -> None:
        """Bind the published frontier of every row to batch.seq_lens, and its mirror to batch.seq_lens_cpu.

        The host waits for the mirror, so for the publish of the previous forward, but not for the rest of it.
        """
        spec_info = batch.spec_info
        if not isinstance(spec_info, EagleDraftInput) or spec_info.future_indices is None:
            return
        rows = list(spec_info.future_indices)
        if self.publish_ready is not None:
            self._d2h.wait(self.publish_ready)
            self._schedule.wait(self.publish_ready)
        pinned = self._streams.empty((len(rows),), "new_seq_lens_cpu_pinned", self._d2h, pinned=True)
        self._d2h.launch("mirror_seq_lens", mirror_kernel, self.new_seq_lens_buf, rows, pinned)
        mirrored = self._d2h.record("seq_lens_mirrored")
        mirrored.synchronize()
        batch.seq_lens_cpu = self._device.host_read(pinned).tolist()
        seq_lens = batch.new_tensor("seq_lens")
        self._schedule.launch("resolve_seq_lens", consume_kernel, self.new_seq_lens_buf, rows, seq_lens)
        batch.seq_lens = seq_lens

    def resolve_forward_inputs(self, batch: ScheduleBatch) -> None:
        """Fill what the worker reads: staged prefill ids, relayed tokens, relayed draft state."""
        if batch.prefill_input_ids_cpu is not None:
            batch.input_ids = batch.to_device(batch.prefill_input_ids_cpu, "input_ids")
            batch.prefill_input_ids_cpu = None
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
            spec_info.topk_index = batch.new_tensor("topk_index", on=self._forward)
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
