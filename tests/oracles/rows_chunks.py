"""Tables of the oracles in `oracles/scheduler_chunks.py`, and of the goals about chunks and MIXED launches."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.asked import Launched
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Abort, Event, Idle, Mix, Prefill, Prepare, Settle, Verify
from specfuzz.core.legality import Ledger
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import ReqView
from tests.oracles.build import CHUNKED, PLAIN, Change, chunked, finished, gone, out, req, step
from tests.oracles.forwards import asked
from tests.oracles.rows import Row, Rows, rows

MIXED_PLAIN = PLAIN.with_(mixed_chunk=True)
HALF = req("a", done=0, kv_committed_len=2, kv_allocated_len=2)
MORE = req("a", done=0, kv_committed_len=3, kv_allocated_len=3)
DROPPED = finished("a", "abort", done=0, kv_committed_len=2)
ABORTED = Receipt(finished=(("a", "abort", None),))


def middle(number: int = 1, *, start: int = 0) -> Launched:
    """A launched chunk of two tokens of `a` whose prompt goes on."""
    known = asked("a", number=number, mode="EXTEND")
    return replace(known, extended=("a",), middle=("a",), admitted=(("a", start, 2),))


def counted(
    count: int, *flying: Launched, event: Event | None = None, settled: tuple[Launched, ...] = (), **changes: object
) -> Step:
    """A step after which `a` counts so many middle chunks in flight."""
    view = replace(HALF, inflight_middle_chunks=count, **changes)  # type: ignore[arg-type]
    return step(event or Settle(), (HALF,), (view,), config=CHUNKED, flying=flying, settled=settled, ask=chunked("a"))


def between(
    event: Event,
    after: ReqView = HALF,
    *,
    receipt: Receipt | None = None,
    ask: Change | None = None,
    **changes: object,
) -> Step:
    """An event while half of the prompt of `a` is in."""
    return step(
        event, (HALF,), (after,), config=CHUNKED, receipt=receipt or Receipt(), ask=ask or chunked("a"),
        running=(), **changes,  # type: ignore[arg-type]
    )  # fmt: skip


def both(*changes: Change) -> Change:
    """Several ledger changes."""

    def ask(ledger: Ledger) -> None:
        for change in changes:
            change(ledger)

    return ask


def aborted(rid: str) -> Change:
    """Ledger change: an abort was asked for while the prompt was in by half."""

    def ask(ledger: Ledger) -> None:
        ledger.requests[rid].aborted = ledger.requests[rid].dropping = True

    return ask


def mixed(
    *rids: str,
    mode: str = "MIXED",
    tail: ReqView | None = None,
    config: EngineConfig = CHUNKED,
    flying: tuple[Launched, ...] = (),
    free: int = 50,
) -> Step:
    """`b` is prefilled beside the running `a`; rids: the rows that were launched."""
    view = req("a") if tail is None else tail
    receipt = Receipt(launch=1, mode=mode, rows=rids, admitted=(("b", 0, 4),))
    made = step(
        Mix("b"), (view, gone("b", done=0)), (view, req("b", done=0)), config=config, receipt=receipt, flying=flying
    )
    pool = replace(made.after.pool, free_pages=made.after.pool.free_pages[:free])
    return step(
        Mix("b"), (view, gone("b", done=0)), (view, req("b", done=0)), config=config, receipt=receipt, flying=flying,
        pool=pool,
    )  # fmt: skip


TIGHT = req("a", reserve=2)
ENDING = req("a", done=7)

ROWS: dict[str, Rows] = {
    "chunks-in-flight-are-counted": rows(
        holds=(
            lambda: counted(1, middle()),
            lambda: counted(0, settled=(middle(),)),
            lambda: counted(1, middle(2), settled=(middle(1),)),
        ),
        broken=(
            lambda: counted(0, middle()),
            lambda: counted(1, settled=(middle(),)),
            lambda: counted(1, event=Prefill("a")),
        ),
        silent=lambda: counted(0),
    ),
    "chunked-request-is-remembered": rows(
        holds=lambda: between(Prepare(), chunked=("a",)),
        broken=(
            lambda: between(Prepare(), chunked=()),
            lambda: step(Prepare(), (req(),), (req(),), config=CHUNKED, chunked=("a",)),
        ),
        silent=lambda: step(Prepare(), (req(),), (req(),), config=CHUNKED, chunked=()),
    ),
    "chunked-request-stays-outside": rows(
        holds=lambda: between(Prepare()),
        broken=(
            lambda: step(Prepare(), (HALF,), (HALF,), config=CHUNKED, ask=chunked("a"), running=("a",)),
            lambda: step(Prepare(), (HALF,), (HALF,), config=CHUNKED, ask=chunked("a"), running=(), prepared=("a",)),
        ),
        silent=lambda: step(Prepare(), (req(),), (req(),), config=CHUNKED),
    ),
    "chunked-request-keeps-its-row": rows(
        holds=lambda: between(Prefill("a", 1), MORE, receipt=Receipt(launch=2, admitted=(("a", 2, 1),))),
        broken=(
            lambda: between(Prepare(), replace(HALF, req_pool_idx=3)),
            lambda: between(Prepare(), replace(HALF, req_pool_idx=None)),
            lambda: between(Prefill("a", 1), replace(HALF, kv_committed_len=1)),
        ),
        silent=(
            lambda: step(
                Prefill("a", 2),
                (gone("a", done=0),),
                (HALF,),
                config=CHUNKED,
                ask=chunked("a"),
                receipt=Receipt(launch=1, admitted=(("a", 0, 2),)),
            ),
            lambda: step(Prepare(), (HALF,), (replace(HALF, req_pool_idx=3),), config=CHUNKED),
        ),
    ),
    "aborted-chunk-is-dropped": rows(
        holds=lambda: between(Prepare(), DROPPED, receipt=ABORTED, ask=aborted("a")),
        broken=(
            lambda: between(Idle(), ask=both(chunked("a"), aborted("a"))),
            lambda: between(Prepare(), replace(DROPPED, req_pool_idx=1), receipt=ABORTED, ask=aborted("a")),
            lambda: between(Prepare(), replace(DROPPED, holds_lock=True), receipt=ABORTED, ask=aborted("a")),
        ),
        silent=(
            lambda: between(Prepare()),
            lambda: between(Abort("a"), ask=both(chunked("a"), aborted("a"))),
        ),
    ),
    "mix-carries-the-running": rows(
        holds=(
            lambda: mixed("b", "a"),
            lambda: mixed("b", mode="EXTEND", tail=ENDING, flying=(asked("a"),)),
            lambda: mixed("b", mode="EXTEND", tail=TIGHT, free=5),
            lambda: mixed("b", mode="EXTEND", tail=req("a", reserve=0), config=MIXED_PLAIN, free=0),
        ),
        broken=(
            lambda: mixed("b", mode="EXTEND", tail=TIGHT, free=6),
            lambda: mixed("b", mode="MIXED", tail=TIGHT, free=5),
            lambda: mixed("b", mode="EXTEND", tail=ENDING),
            lambda: mixed("b", mode="EXTEND", tail=req("a", reserve=0), config=MIXED_PLAIN, free=1),
        ),
        silent=(
            lambda: step(Mix("b"), (req(),), (req(),), config=CHUNKED, receipt=Receipt(refused="no free row")),
            lambda: mixed("b", mode="EXTEND", tail=TIGHT, config=CHUNKED.with_(mixed_chunk=False)),
        ),
    ),
}


def tail_settles(mode: str) -> Step:
    """The result of a forward that prefills `b` beside `a` is processed."""
    known = replace(asked("b", "a", number=1, mode=mode), extended=("b",))
    receipt = Receipt(settled=1, emitted=(("b", out("b", 1)), ("a", out("a", 3)[2:])))
    before = (req("a", done=2), req("b", done=0))
    return step(Settle(), before, (req("a"), req("b", done=1)), config=CHUNKED, receipt=receipt, settled=(known,))


GOALS: dict[str, tuple[Row, Row]] = {
    "mixed-launch": (lambda: mixed("b", "a"), lambda: mixed("b", mode="EXTEND")),
    "mixed-tail-behind-a-verify": (
        lambda: mixed("b", "a", flying=(asked("a", number=1), asked("b", "a", number=2, mode="MIXED"))),
        lambda: mixed("b", "a", flying=(asked("c", number=1), asked("b", "a", number=2, mode="MIXED"))),
    ),
    "mixed-tail-settles": (lambda: tail_settles("MIXED"), lambda: tail_settles("EXTEND")),
    "chunk-goes-on": (
        lambda: between(Prefill("a", 1), MORE, receipt=Receipt(launch=2, admitted=(("a", 2, 1),))),
        lambda: mixed("b", "a"),
    ),
    "middle-chunk-settles": (lambda: counted(0, settled=(middle(),)), lambda: tail_settles("MIXED")),
    "decode-between-chunks": (
        lambda: between(Verify()), lambda: step(Verify(), (req(),), (req(),), config=CHUNKED)
    ),
    "abort-between-chunks": (
        lambda: between(Prepare(), DROPPED, receipt=ABORTED, ask=aborted("a")),
        lambda: step(Prepare(), (HALF,), (DROPPED,), config=CHUNKED, receipt=ABORTED),
    ),
}  # fmt: skip
