"""What an observer sees after an event: plain host data in three views, one per clock, plus the launches.

A view that an engine can't show is None; a verdict that needs it is then NOT_APPLICABLE or UNKNOWN, never a pass.
Taking a snapshot never synchronises the device. Records are shared between snapshots while nothing changed, so `is` is
a valid and cheap test for "unchanged".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReqView:
    """Host clock, one request. Lengths in tokens.

    slots: KV slots that the row names on positions [0, kv_allocated_len) in the order of the schedule stream; empty
    when it holds no row. Slot s belongs to page s // page_size.
    finished_reason: "stop", "length", "abort" or None; finished_len: output ids through the stop, None if it has no
    position. to_finish: an abort waits for the next processed result.
    grammar_accepted: tokens that its grammar's FSM has accepted and not rolled back, None without a grammar;
    grammar_terminated: whether the FSM has come to its end.
    """

    rid: str
    prompt_len: int
    max_new: int
    output_ids: tuple[int, ...] = ()
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    cache_protected_len: int = 0
    req_pool_idx: int | None = None
    slots: tuple[int, ...] = ()
    finished_reason: str | None = None
    finished_len: int | None = None
    to_finish: bool = False
    is_retracted: bool = False
    retraction_count: int = 0
    decode_batch_idx: int = 0
    extend_batch_idx: int = 0
    inflight_middle_chunks: int = 0
    spec_verify_ct: int = 0
    spec_num_correct_drafts: int = 0
    spec_correct_drafts_histogram: tuple[int, ...] = ()
    holds_lock: bool = False
    grammar_accepted: tuple[int, ...] | None = None
    grammar_terminated: bool = False

    @property
    def seqlen(self) -> int:
        """Settled logical length: prompt plus output."""
        return self.prompt_len + len(self.output_ids)

    @property
    def finished(self) -> bool:
        """Whether the engine has given it a finish reason."""
        return self.finished_reason is not None

    @property
    def holds_kv(self) -> bool:
        """Whether it holds a req_to_token row."""
        return self.req_pool_idx is not None

    @property
    def emitted(self) -> tuple[int, ...]:
        """What the client sees: output ids through the stop."""
        return self.output_ids if self.finished_len is None else self.output_ids[: self.finished_len]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedPath:
    """One root-to-leaf path of the prefix tree: the token ids that its slots stand for, position by position.

    tokens has one id more than slots where the tree's keys are bigrams (the last id is only looked at).
    """

    tokens: tuple[int, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolView:
    """Host clock: who owns which page and row.

    free_pages: ids in the free list, in its order (page 0 is padding). free_rows: likewise (row 0 is padding).
    available/evictable/protected: the engine's own sizes, in tokens. row_width: cells of a row, 0 if it can't be seen.
    cached: the tree's content, None if it can't be walked.
    """

    page_size: int
    num_pages: int
    max_reqs: int
    free_pages: tuple[int, ...]
    free_rows: tuple[int, ...]
    available: int
    evictable: int
    protected: int
    row_width: int = 0
    cached: tuple[CachedPath, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchView:
    """Present: one batch object that the scheduler holds now.

    name: "running", "prepared" or "last". seq_lens: device values by peek (None when the batch has no such tensor or it
    can't be read). seq_lens_cpu: host mirror or None. future_indices: relay rows bound to its spec_info, None if unset.
    forward_mode: as the scheduler sees it. penalized: by row, the output tokens that its penalties have counted, None
    where that can't be seen.
    """

    name: str
    rids: tuple[str, ...]
    forward_mode: str
    req_pool_indices: tuple[int, ...] | None = None
    seq_lens: tuple[int, ...] | None = None
    seq_lens_cpu: tuple[int, ...] | None = None
    future_indices: tuple[int, ...] | None = None
    penalized: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayRow:
    """Relay clock: one row of the FutureMap by peek; None means poisoned, consumed or never written.

    topk_index: the first draft seed. topk_seeds: all of them where the draft is a tree, one per branch.
    """

    row: int
    new_seq_len: int | None
    output_token: int | None
    topk_index: int | None = None
    hidden: int | None = None
    topk_seeds: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayView:
    """Relay clock: the rows of requests that hold one, by rid. quiet: no device work is pending anywhere."""

    rows: Mapping[str, RelayRow]
    quiet: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """Device clock by peek: memory as it is now.

    target_v1, target_v2, draft_v1: cells by slot (see core.language); draft_v1 is None without a draft pool.
    rows: cells [0, kv_allocated_len) of the device's req_to_token, by rid. pending: queued operations.
    """

    target_v1: tuple[int, ...]
    target_v2: tuple[int, ...]
    draft_v1: tuple[int, ...] | None
    rows: Mapping[str, tuple[int, ...]]
    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEntry:
    """What the worker's first operation read when it ran, row by row in batch order.

    seq_lens: device lengths. input_tokens: by row, the input ids (extend: the window; decode: one). window: by row, the
    slots that the launch writes. bonus: relayed pending token by row (decode under speculation), else empty.
    topk_index, hidden: relayed draft state by row, empty without it; topk_index is the first seed. topk_seeds: by row,
    all seeds of a tree. prefix_lens: start of the window by row.
    """

    seq_lens: tuple[int, ...]
    input_tokens: tuple[tuple[int, ...], ...]
    window: tuple[tuple[int, ...], ...]
    prefix_lens: tuple[int, ...]
    bonus: tuple[int, ...] = ()
    topk_index: tuple[int, ...] = ()
    hidden: tuple[int, ...] = ()
    topk_seeds: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerExit:
    """What the launch decided, once the operation that decides has run; by row in batch order.

    accept_lens: tokens incl. the bonus (1 for extend). new_seq_lens: the result's frontier. next_tokens: the run
    by row. published: what the publish wrote by row, None if nothing was published (sync).
    Of a tree, by row, else empty: accept_index, nodes of the accepted path, then -1; moved, (target, source) slots of
    its KV, lane by lane, those behind the path included; bonus, the pending token that is handed to the next round.
    """

    accept_lens: tuple[int, ...]
    new_seq_lens: tuple[int, ...]
    next_tokens: tuple[tuple[int, ...], ...]
    published: tuple[int, ...] | None = None
    accept_index: tuple[tuple[int, ...], ...] = ()
    moved: tuple[tuple[tuple[int, int], ...], ...] = ()
    bonus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchView:
    """One forward from its launch to the event that settles it, inclusive.

    number: counted from 1. rids, req_pool_indices: batch order. committed, allocated: host ledger at launch, by row.
    dead: rids that were finished or retracted at launch. unsettled_before: results in the queue before this launch.
    rebound: names of batch fields whose binding after isolation and re-commit differs from the one before entry.
    sampling_copied: whether the worker saw a sampling_info of its own. mode_after: forward_mode seen outside.
    held_changed: names of tensors bound before entry whose values changed between worker entry and now (in-place
    writes through the isolation); None where that can't be known.
    entry, exit: None until the operation ran. publishes: how often the worker published. settled: now or earlier.
    entry_now, exit_now: whether entry or exit were recorded by this very event, so that an oracle judges them once.
    grammar_advanced: the FSMs of its rows have accepted its result, although it is unsettled. penalized: what the
    penalties of its rows had counted in the sampling_info that the worker got, None where that can't be seen.
    """

    number: int
    mode: str
    rids: tuple[str, ...]
    req_pool_indices: tuple[int, ...]
    committed: tuple[int, ...]
    allocated: tuple[int, ...]
    dead: tuple[str, ...] = ()
    unsettled_before: int = 0
    rebound: tuple[str, ...] | None = None
    sampling_copied: bool | None = None
    mode_after: str | None = None
    held_changed: tuple[str, ...] | None = None
    entry: WorkerEntry | None = None
    exit: WorkerExit | None = None
    publishes: int = 0
    published: bool = False
    settled: bool = False
    entry_now: bool = False
    exit_now: bool = False
    grammar_advanced: bool = False
    penalized: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRecord:
    """One write to an owned field, seen from outside. writer: name of the function that wrote it."""

    field: str
    rid: str
    writer: str
    old: int
    new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceView:
    """Two accesses to the same memory that no happens-before edge orders. kind: as in gpu.races; row: None = whole."""

    kind: str
    buffer: str
    row: int | None
    first: str
    first_stream: str
    second: str
    second_stream: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsView:
    """Host clock: the engine's global acceptance counts since its start; rows, tokens with and drafts without bonus."""

    spec_num_forward_ct: int
    spec_num_accept_tokens: int
    spec_num_correct_drafts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state after one event. reqs: every request ever submitted, by rid in order of submission.

    waiting, running: rids as the scheduler holds them (running excludes an extend that is not merged yet).
    chunked: likewise the one whose prompt it goes on with, if any; None where that can't be seen.
    queue: numbers of launched, unsettled forwards, oldest first. writes: None where writers are not recorded.
    races: found during this event; None where nothing watches. on_idle: the idle checks ran in this event.
    """

    reqs: Mapping[str, ReqView]
    pool: PoolView
    waiting: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    chunked: tuple[str, ...] | None = None
    prepared: tuple[str, ...] | None = None
    queue: tuple[int, ...] = ()
    batches: tuple[BatchView, ...] = ()
    launches: tuple[LaunchView, ...] = ()
    relay: RelayView | None = None
    device: DeviceView | None = None
    writes: tuple[WriteRecord, ...] | None = None
    races: tuple[RaceView, ...] | None = None
    on_idle: bool = False
    metrics: MetricsView | None = None
