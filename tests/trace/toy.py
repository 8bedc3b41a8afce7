"""A toy scheduler behind the port, small enough to read, with bugs that can be switched on; and its oracles.

It counts pages and tokens and has no device: what it decides is a function of the events alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Point, Scope
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Abort, Event, Finish, Idle, Prefill, Prepare, Retract, Settle, Submit, Verify
from specfuzz.core.oracle import Oracle, Step
from specfuzz.core.receipt import NOTHING, Receipt
from specfuzz.core.snapshot import PoolView, ReqView, Snapshot
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.errors import EngineFault


@dataclass
class ToyReq:
    submit: Submit
    state: str = "waiting"
    output: list[int] = field(default_factory=list)
    stop_at: int | None = None
    aborted: bool = False
    allocated: int = 0
    reason: str | None = None
    life: int = 0


class ToySystem:
    """bugs: any of "leak" (retract keeps one token), "late" (a retracted row takes a late result), "crash" (abort while
    two results are unsettled raises), "long" (an accepted run of 3 or more commits one token too many)."""

    version = "1"

    def __init__(self, *bugs: str, name: str = "toy") -> None:
        self.bugs, self.name = set(bugs), name
        self.closed = False
        self.opened = 0

    def capabilities(self, config: EngineConfig) -> Capability:
        return Capability.SPECULATIVE

    def reset(self, config: EngineConfig) -> None:
        self.config = config
        self.opened += 1
        self.reqs: dict[str, ToyReq] = {}
        self.queue: list[tuple[int, tuple[tuple[str, int, int], ...]]] = []
        self.prepared: tuple[str, ...] | None = None
        self.launches = self.used = 0

    def close(self) -> None:
        self.closed = True

    def snapshot(self) -> Snapshot:
        free = self.config.num_pages - self.used
        return Snapshot(
            reqs={
                rid: ReqView(
                    rid=rid, prompt_len=req.submit.prompt_len, max_new=req.submit.max_new,
                    output_ids=tuple(req.output), kv_allocated_len=req.allocated, finished_reason=req.reason,
                    is_retracted=req.state == "retracted",
                )
                for rid, req in self.reqs.items()
            },
            pool=PoolView(
                page_size=1, num_pages=self.config.num_pages, max_reqs=self.config.max_reqs,
                free_pages=tuple(range(free)), free_rows=(), available=free, evictable=0, protected=0,
            ),
            prepared=self.prepared,
            queue=tuple(number for number, _rows in self.queue),
        )  # fmt: skip

    def apply(self, event: Event) -> Receipt:
        match event:
            case Submit():
                self.reqs[event.rid] = ToyReq(event)
            case Prefill():
                req = self.reqs[event.rid]
                req.state, req.life = "running", req.life + 1
                self._hold(req, req.submit.prompt_len + len(req.output))
                self._launch([(event.rid, 1)])
                return Receipt(
                    launch=self.launches, mode="EXTEND", rows=(event.rid,),
                    admitted=((event.rid, 0, req.submit.prompt_len + len(req.output)),),
                )  # fmt: skip
            case Prepare():
                rows = tuple(rid for rid, req in self.reqs.items() if req.state == "running")
                self.prepared = rows or None
                return Receipt(rows=rows)
            case Verify():
                wanted, rows = dict(event.accept), self.prepared or ()
                self._launch([(rid, max(1, min(wanted.get(rid, 1), self.config.max_accept))) for rid in rows])
                self.prepared = None
                return Receipt(launch=self.launches, mode="DECODE", rows=rows)
            case Settle():
                return self._settle()
            case Idle():
                return self._idle()
            case Finish():
                self.reqs[event.rid].stop_at = event.at
            case Abort():
                return self._abort(event)
            case Retract():
                req = self.reqs[event.rid]
                self._release(req, leak="leak" in self.bugs)
                req.state = "retracted"
                return Receipt(retracted=(event.rid,))
            case _:
                pass
        return NOTHING

    def _abort(self, event: Abort) -> Receipt:
        req = self.reqs[event.rid]
        if "crash" in self.bugs and len(self.queue) == 2:
            raise EngineFault("IndexError: pop from an empty list")
        if req.state == "running":
            req.aborted = True
            return NOTHING
        req.state, req.reason = "finished", "abort"
        return Receipt(finished=((event.rid, "abort", None),))

    def _hold(self, req: ToyReq, length: int) -> None:
        self.used += length - req.allocated
        req.allocated = length

    def _release(self, req: ToyReq, leak: bool = False) -> None:
        self.used -= req.allocated - (1 if leak else 0)
        req.allocated = 0

    def _launch(self, rows: list[tuple[str, int]]) -> None:
        self.launches += 1
        self.queue.append((self.launches, tuple((rid, run, self.reqs[rid].life) for rid, run in rows)))

    def _settle(self) -> Receipt:
        number, rows = self.queue.pop(0)
        emitted, finished = [], []
        for rid, run, life in rows:
            req = self.reqs[rid]
            if req.state != "running" or req.life != life:
                if "late" in self.bugs and req.state == "retracted":
                    req.output.append(0)
                continue
            tokens = tuple(len(req.output) + index for index in range(run))
            req.output += tokens
            if "long" in self.bugs and run >= 3:
                req.output.append(-1)
            emitted.append((rid, tokens))
            self._hold(req, req.submit.prompt_len + len(req.output))
            ends = self._ending(req)
            if ends is not None:
                req.state, req.reason = "finished", ends[0]
                self._release(req)
                finished.append((rid, *ends))
        return Receipt(settled=number, emitted=tuple(emitted), finished=tuple(finished))

    def _ending(self, req: ToyReq) -> tuple[str, int | None] | None:
        if req.aborted:
            return "abort", None
        if req.stop_at is not None and req.stop_at < len(req.output):
            return "stop", req.stop_at + 1
        return ("length", req.submit.max_new) if len(req.output) >= req.submit.max_new else None

    def _idle(self) -> Receipt:
        settled = None
        emitted: list[tuple[str, tuple[int, ...]]] = []
        finished: list[tuple[str, str, int | None]] = []
        while self.queue:
            receipt = self._settle()
            settled = receipt.settled
            emitted += receipt.emitted
            finished += receipt.finished
        return Receipt(settled=settled, emitted=tuple(emitted), finished=tuple(finished))


def _declare(name: str, owner: Owner, scope: Scope, check) -> Oracle:
    return Oracle(
        name=name, formula="see the code", clock=Clock.HOST, owner=owner, point=Point.AFTER_EVENT, scope=scope,
        source="toy", twin="", check=check,
    )  # fmt: skip


def _pages_conserved(step: Step, pool: PoolView) -> Finding:
    held = sum(req.kv_allocated_len for req in step.after.reqs.values())
    if len(pool.free_pages) + held == pool.num_pages:
        return Verdict.HOLDS
    return Clash(f"{len(pool.free_pages)} + {held} != {pool.num_pages}", "the free list", "what is held")


def _output_is_emitted(step: Step, req: ReqView) -> Finding:
    said = step.memo.setdefault("emitted", {})
    if said.get("at") != step.index:
        said["at"] = step.index
        for rid, tokens in step.receipt.emitted:
            said[rid] = said.get(rid, 0) + len(tokens)
    if said.get(req.rid, 0) == len(req.output_ids):
        return Verdict.HOLDS
    return Clash(f"{len(req.output_ids)} != {said.get(req.rid, 0)}", "the output", "what was emitted")


ORACLES = (
    _declare("pages-conserved", Owner.KV_ALLOCATOR, Scope.POOL, _pages_conserved),
    _declare("output-is-emitted", Owner.RESULT_PROCESSOR, Scope.REQUEST, _output_is_emitted),
)
