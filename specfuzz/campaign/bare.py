"""A system that only makes plausible receipts: the floor under every throughput figure, and a stand-in for tests.

It keeps a queue, a running set and the launches, and nothing else: no pool, no text, no device, and one snapshot.
"""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Abort, Event, Finish, Idle, Mix, Prefill, Prepare, Retract, Settle, Submit, Verify
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.snapshot import PoolView, Snapshot

_Launch = tuple[int, tuple[tuple[str, int, int], ...]]  # number, rows as (rid, life, tokens)


class _Request:
    __slots__ = ("aborted", "life", "max_new", "output_len", "prompt_len", "stop_at")

    def __init__(self, prompt_len: int, max_new: int) -> None:
        self.prompt_len, self.max_new = prompt_len, max_new
        self.output_len = self.life = 0
        self.stop_at: int | None = None
        self.aborted = False


class BareSystem:
    """Accounts for requests as a scheduler would, with dummy tokens."""

    name = "bare"
    version = "0"

    def capabilities(self, config: EngineConfig) -> Capability:
        """What a front end may ask of it; nothing can be observed."""
        found = Capability.NONE
        for wanted, flag in (
            (config.speculative, Capability.SPECULATIVE), (config.overlap, Capability.OVERLAP),
            (config.mixed_chunk, Capability.MIXED_CHUNK), (config.radix, Capability.RADIX),
            (config.page_size > 1, Capability.PAGED),
        ):  # fmt: skip
            if wanted:
                found |= flag
        return found

    def reset(self, config: EngineConfig) -> None:
        """Forget everything."""
        self._config = config
        self._requests: dict[str, _Request] = {}
        self._running: list[str] = []
        self._fresh: list[str] = []  # admitted, not merged into the running set yet
        self._prepared: tuple[str, ...] = ()
        self._queue: list[_Launch] = []
        self._launches = 0
        num_pages, max_reqs = config.num_pages, config.max_reqs
        pool = PoolView(
            page_size=config.page_size, num_pages=num_pages, max_reqs=max_reqs, free_pages=(), free_rows=(),
            available=0, evictable=0, protected=0, row_width=config.row_width,
        )  # fmt: skip
        self._snapshot = Snapshot(reqs={}, pool=pool)

    def snapshot(self) -> Snapshot:
        """Always the same."""
        return self._snapshot

    def close(self) -> None:
        """Nothing to free."""

    def apply(self, event: Event) -> Receipt:
        """The receipt that a scheduler with an endless pool would give."""
        match event:
            case Prepare():
                return self._prepare()
            case Verify():
                return self._verify(event)
            case Settle():
                return self._settle(1)
            case Prefill(rid=rid) | Mix(rid=rid):
                return self._prefill(rid, mixed=isinstance(event, Mix))
            case Submit():
                self._requests[event.rid] = _Request(event.prompt_len, event.max_new)
            case Finish():
                self._requests[event.rid].stop_at = event.at
            case Abort():
                return self._abort(event.rid)
            case Retract():
                self._release(event.rid)
                return Receipt(retracted=(event.rid,))
            case Idle():
                return self._settle(len(self._queue)) if self._queue else NOTHING
        return NOTHING

    def _launch(self, mode: str, rows: tuple[str, ...], tokens: dict[str, int], admitted: str | None) -> Receipt:
        self._launches += 1
        requests = self._requests
        self._queue.append((self._launches, tuple((rid, requests[rid].life, tokens.get(rid, 1)) for rid in rows)))
        extend = () if admitted is None else ((admitted, 0, requests[admitted].prompt_len),)
        return Receipt(launch=self._launches, mode=mode, rows=rows, admitted=extend)

    def _prefill(self, rid: str, *, mixed: bool) -> Receipt:
        if len(self._running) + len(self._fresh) >= self._config.max_reqs:
            return Receipt(refused="no free row")
        rows: tuple[str, ...] = (rid,)
        if mixed:
            self._merge()
            rows += tuple(self._running)
        self._fresh.append(rid)
        return self._launch("MIXED" if mixed else "EXTEND", rows, {}, rid)

    def _merge(self) -> None:
        self._running += self._fresh
        self._fresh = []

    def _prepare(self) -> Receipt:
        self._merge()
        self._prepared = tuple(self._running)
        return Receipt(rows=self._prepared)

    def _verify(self, event: Verify) -> Receipt:
        most = self._config.max_accept
        tokens = {rid: min(run, most) for rid, run in event.accept}
        rows, self._prepared = self._prepared, ()
        return self._launch("DECODE", rows, tokens, None)

    def _settle(self, count: int) -> Receipt:
        settled, emitted, finished = 0, [], []
        for _ in range(count):
            settled, rows = self._queue.pop(0)
            for rid, life, tokens in rows:
                request = self._requests[rid]
                if request.life != life:
                    continue  # it died since the launch
                request.output_len += tokens
                emitted.append((rid, (0,) * tokens))
                end = self._end_of(request)
                if end is not None:
                    finished.append((rid, *end))
                    self._release(rid)
        return Receipt(settled=settled, emitted=tuple(emitted), finished=tuple(finished))

    def _end_of(self, request: _Request) -> tuple[str, int | None] | None:
        if request.aborted:
            return "abort", None
        stop_at = request.stop_at
        if stop_at is not None and stop_at < min(request.output_len, request.max_new):
            return "stop", stop_at + 1
        return ("length", request.max_new) if request.output_len >= request.max_new else None

    def _release(self, rid: str) -> None:
        self._requests[rid].life += 1
        for rows in (self._running, self._fresh):
            if rid in rows:
                rows.remove(rid)

    def _abort(self, rid: str) -> Receipt:
        if rid in self._running or rid in self._fresh:
            self._requests[rid].aborted = True
            return NOTHING
        return Receipt(finished=((rid, "abort", None),))
