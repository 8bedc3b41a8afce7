"""Tables of the oracles in `oracles/result_processor.py`, `statistics.py` and `recorder.py`."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.asked import Launched
from specfuzz.core.event import Evict, Idle, Prepare, Retract, Settle, Submit, Verify
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import ReqView
from tests.oracles.build import PLAIN, PROMPT, aborted, arm, extending, finished, gone, out, req, retracted, step
from tests.oracles.forwards import asked, executed, exit_, launch
from tests.oracles.rows import Rows, rows

A = req(spec_verify_ct=2, spec_num_correct_drafts=1, spec_correct_drafts_histogram=(1, 1))
TAIL = asked("a", number=1, mode="MIXED", accept=1)
EXTEND = asked("a", number=1, mode="EXTEND", accept=1, extended=("a",))


def counted(view: ReqView, rounds: int, drafts: int, histogram: tuple[int, ...]) -> ReqView:
    """The view with these acceptance statistics."""
    return replace(view, spec_verify_ct=rounds, spec_num_correct_drafts=drafts, spec_correct_drafts_histogram=histogram)


#: `a` after a verify of two tokens: two more outputs, two more committed, one more draft counted.
GROWN = counted(req(done=5, kv_allocated_len=14), 3, 2, (1, 2))


def settle(after: ReqView, before: ReqView = A, *, known: Launched | None = None, **more: object) -> Step:
    """The result of one verify of two tokens is processed; it emitted whatever the views show."""
    grown = after.output_ids[len(before.output_ids) :]
    done = (
        ((after.rid, after.finished_reason or "", after.finished_len),)
        if after.finished and not before.finished
        else ()
    )
    receipt = Receipt(settled=2, emitted=((after.rid, grown),) if grown else (), finished=done)
    view = executed(before) if before.req_pool_idx is not None else launch(before)
    fields: dict[str, object] = {
        "receipt": receipt, "settled": (known or asked("a"),), "launches": (replace(view, settled=True),),
    } | more  # fmt: skip
    return step(Settle(), (before,), (after,), **fields)  # type: ignore[arg-type]


def settle_all(after: ReqView, **more: object) -> Step:
    """A verify of two tokens and, behind it, a mixed tail are processed by one `idle`."""
    views = (executed(A), executed(A, number=3, mode="MIXED", exit=exit_(A, lead=2, accept=1)))
    known = (asked("a"), asked("a", number=3, mode="MIXED", accept=1))
    fields: dict[str, object] = {
        "settled": known, "receipt": Receipt(settled=3), "launches": tuple(replace(v, settled=True) for v in views),
    } | more  # fmt: skip
    return step(Idle(), (A,), (after,), **fields)  # type: ignore[arg-type]


def ending(reason: str, length: int | None, done: int, **more: object) -> Step:
    """A verify takes `a` from 3 to `done` outputs and gives it that end; its cap is 8."""
    stop = more.pop("stop_at", None)
    view = finished(reason=reason, done=done, finished_len=length, output_ids=out("a", done, stop))  # type: ignore[arg-type]
    if reason == "none":
        view = req(done=done)
    ask = arm("a", stop) if isinstance(stop, int) else more.pop("ask", None)
    return settle(view, ask=ask)


def nothing() -> Step:
    """An event that settles nothing and changes nothing."""
    return step(Idle(), (A,), (A,))


ROWS: dict[str, Rows] = {
    "steady-bonus": rows(
        holds=(
            lambda: settle(GROWN),
            lambda: settle(req(done=1), req(done=0, kv_committed_len=4), known=EXTEND),
            lambda: step(Evict(1), (A,), (req(done=0, kv_committed_len=PROMPT),), ask=extending("a")),
        ),
        broken=(
            lambda: settle(replace(GROWN, kv_committed_len=9)),
            lambda: settle(req(done=5, kv_committed_len=6)),
            lambda: step(Evict(1), (A,), (req(done=3, kv_committed_len=6),), ask=extending("a")),
        ),
        silent=(nothing, lambda: settle(finished()), lambda: settle(retracted(), retracted())),
    ),
    "commit-equals-emitted": rows(
        holds=(
            lambda: settle(GROWN),
            lambda: settle(req(done=1), req(done=0, kv_committed_len=4), known=EXTEND),
            lambda: settle(req(done=4, kv_committed_len=6), config=PLAIN),
            lambda: settle(finished(done=4, kv_committed_len=6), known=TAIL),
            lambda: settle_all(finished(done=6, kv_committed_len=8)),  # ended by the tail
            lambda: settle_all(finished(done=5, kv_committed_len=8)),  # ended before it
            lambda: settle_all(req(done=6)),
        ),
        broken=(
            lambda: settle_all(finished(done=6, kv_committed_len=9)),
            lambda: settle_all(finished(done=5, kv_committed_len=7)),
            lambda: settle_all(req(done=6, kv_committed_len=8)),
            lambda: settle(replace(GROWN, kv_committed_len=9)),
            lambda: settle(replace(GROWN, kv_committed_len=6)),
            lambda: settle(req(done=4, kv_committed_len=7), config=PLAIN),
            lambda: settle(finished(done=4, kv_committed_len=7), known=TAIL),
        ),
        silent=(nothing, lambda: settle(finished(), finished())),
    ),
    "settle-appends-the-run": rows(
        holds=lambda: settle(GROWN),
        broken=(
            lambda: settle(req(done=4)),
            lambda: settle(req(done=6)),
            lambda: settle(replace(GROWN, output_ids=(*A.output_ids, 1, 2))),
            lambda: settle(finished(reason="stop", done=4, output_ids=out("a", 4))),
        ),
        silent=(nothing, lambda: settle(finished(), finished())),
    ),
    "dead-rows-are-inert": rows(
        holds=(
            lambda: settle(finished(done=4), finished(done=4)),
            lambda: settle(retracted(), retracted()),
        ),
        broken=(
            lambda: settle(finished(done=4, kv_committed_len=9), finished(done=4)),
            lambda: settle(retracted(done=5), retracted()),
            lambda: settle(retracted(spec_verify_ct=1), retracted()),
        ),
        silent=(nothing, lambda: settle(GROWN)),
    ),
    "finish-reason-is-first": rows(
        holds=(
            lambda: ending("none", None, 5),
            lambda: ending("stop", 4, 6, stop_at=3),
            lambda: ending("stop", 8, 9, stop_at=7),
            lambda: ending("length", 8, 9),
            lambda: ending("length", 8, 10, stop_at=8),
            lambda: ending("abort", None, 5, ask=aborted("a")),
        ),
        broken=(
            lambda: ending("length", 8, 9, stop_at=6),
            lambda: ending("stop", 5, 6, stop_at=3),
            lambda: ending("stop", 9, 10, stop_at=8),
            lambda: ending("none", None, 8),
            lambda: ending("length", 8, 5),
            lambda: ending("none", None, 5, ask=aborted("a")),
            lambda: ending("length", 9, 9),
        ),
        silent=(nothing, lambda: settle(finished(), finished())),
    ),
    "nothing-emitted-past-the-end": rows(
        holds=(lambda: ending("stop", 4, 6, stop_at=3), lambda: ending("length", 8, 9)),
        broken=(
            lambda: ending("stop", 6, 6, stop_at=3),
            lambda: ending("length", 9, 9),
            lambda: ending("stop", 3, 6, stop_at=3),
            lambda: ending("length", 8, 9, stop_at=5),
        ),
        silent=(nothing, lambda: ending("abort", None, 6, ask=aborted("a"))),
    ),
    "finish-releases": rows(
        holds=lambda: settle(finished()),
        broken=(
            lambda: settle(finished(req_pool_idx=1)),
            lambda: settle(finished(kv_allocated_len=4)),
            lambda: settle(finished(holds_lock=True)),
        ),
        silent=(nothing, lambda: settle(GROWN)),
    ),
    "verify-count-is-settled-rounds": rows(
        holds=(
            lambda: settle(GROWN),
            lambda: settle(req(done=1), req(done=0, kv_committed_len=4), known=EXTEND),
        ),
        broken=(
            lambda: settle(replace(GROWN, spec_verify_ct=2)),
            lambda: settle(replace(GROWN, spec_verify_ct=4)),
            lambda: settle(replace(GROWN, spec_num_correct_drafts=3)),
        ),
        silent=(nothing, lambda: settle(retracted(), retracted())),
    ),
    "counts-move-where-they-are-earned": rows(
        holds=(
            lambda: step(Retract("a"), (A,), (counted(retracted(), 2, 1, (1, 1)),), receipt=Receipt(retracted=("a",))),
            lambda: step(Settle(), (A,), (counted(A, 3, 1, (2, 1)),)),
        ),
        broken=(
            lambda: step(Retract("a"), (A,), (retracted(),), receipt=Receipt(retracted=("a",))),
            lambda: step(Verify(), (A,), (counted(A, 3, 1, (2, 1)),)),
            lambda: step(Settle(), (replace(A, retraction_count=1),), (A,)),
        ),
        silent=lambda: step(Prepare(), (A,), (finished("a", "abort"),)),
    ),
    "histogram-adds-up": rows(
        holds=lambda: settle(GROWN),
        broken=(
            lambda: settle(counted(GROWN, 3, 2, (1, 1))),
            lambda: settle(counted(GROWN, 3, 3, (1, 2))),
            lambda: settle(counted(GROWN, 1, 4, (0, 0, 0, 0, 1))),
        ),
        silent=(nothing, lambda: settle(req(done=1), req(done=0), known=EXTEND)),
    ),
    "receipt-tells-the-truth": rows(
        holds=(lambda: settle(GROWN), lambda: settle(finished())),
        broken=(
            lambda: settle(GROWN, receipt=Receipt(settled=2, emitted=(("a", out("a", 5)[3:4]),))),
            lambda: settle(GROWN, receipt=Receipt(settled=2)),
            lambda: settle(finished(), receipt=Receipt(settled=2, emitted=(("a", out("a", 8)[3:]),))),
            lambda: settle(A, receipt=Receipt(settled=2, finished=(("a", "stop", 3),))),
        ),
        silent=(nothing, lambda: step(Submit("b", 4, 8), (A,), (A, gone("b", done=0)))),
    ),
}
