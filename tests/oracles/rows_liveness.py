"""Tables of the rules by which nobody waits for ever, and of the global acceptance counts."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Idle, Mix, Prefill, Prepare, Settle
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import MetricsView
from tests.oracles.build import CHUNKED, EAGLE, PAGED, batch, finished, gone, path, pool, req, step
from tests.oracles.forwards import asked, executed
from tests.oracles.rows import Row, Rows, rows

WAITING, RUNNING = gone("b", done=0), req("a", done=2)
REFUSED = Receipt(refused="no room in the KV pool")


def refused(
    free: int,
    *,
    event: Event | None = None,
    config: EngineConfig = EAGLE,
    rows_left: bool = True,
    cached: int = 0,
    receipt: Receipt = REFUSED,
) -> Step:
    """The prefill of `b`, which extends by 4 tokens, is refused while `free` pages are free."""
    tree = (path("a", cached),) if cached else ()
    view = pool((RUNNING, WAITING), config, tree)
    view = replace(view, free_pages=view.free_pages[:free], free_rows=view.free_rows if rows_left else ())
    return step(
        event or Prefill("b"), (RUNNING, WAITING), (RUNNING, WAITING), config=config, receipt=receipt, pool=view
    )


def placed(*, waiting: tuple[str, ...] = ("b",), running: bool = True, flying: bool = False) -> Step:
    """`a` runs and `b` has just begun to wait, if they stand where they should."""
    return step(
        Prepare(), (RUNNING, req("b", done=0)), (RUNNING, WAITING), waiting=waiting,
        batches=(batch(RUNNING),) if running else (), running=("a",) if running else (),
        flying=(asked("a"),) if flying else (),
    )  # fmt: skip


def counted(
    rounds: int, tokens: int, drafts: int, *, own: int = 1, dead: bool = False, mode: str = "DECODE", seen: bool = True
) -> Step:
    """A verify of `a` that accepted 2 tokens is settled; the global counts grow so, those of `a` by `own` drafts."""
    then = replace(RUNNING, spec_num_correct_drafts=4) if not dead else finished("a")
    now = replace(then, spec_num_correct_drafts=then.spec_num_correct_drafts + own)
    old = MetricsView(spec_num_forward_ct=5, spec_num_accept_tokens=9, spec_num_correct_drafts=4)
    new = MetricsView(
        spec_num_forward_ct=5 + rounds, spec_num_accept_tokens=9 + tokens, spec_num_correct_drafts=4 + drafts
    )
    return step(
        Settle(), (then,), (now,), receipt=Receipt(settled=2), settled=(asked("a", mode=mode),),
        launches=(executed(RUNNING, settled=True),), old={"metrics": old}, metrics=new if seen else None,
    )  # fmt: skip


ROWS: dict[str, Rows] = {
    "refusal-needs-pressure": rows(
        holds=(
            lambda: refused(5),
            lambda: refused(50, rows_left=False),
            lambda: refused(2, config=PAGED),
            lambda: refused(3, cached=2),
            lambda: refused(6, event=Mix("b"), config=CHUNKED),
            lambda: refused(50, event=Prefill("b", 3), config=PAGED.with_(chunked_prefill=True)),
        ),
        broken=(
            lambda: refused(6),
            lambda: refused(3, config=PAGED),
            lambda: refused(4, cached=2),
            lambda: refused(7, event=Mix("b"), config=CHUNKED),
        ),
        silent=lambda: refused(50, receipt=Receipt()),
    ),
    "nobody-is-lost": rows(
        holds=(placed, lambda: placed(running=False, flying=True)),
        broken=(
            lambda: placed(waiting=()),
            lambda: placed(waiting=("b", "b")),
            lambda: placed(running=False),
        ),
        silent=lambda: step(Idle(), (finished(),), (finished(),)),
    ),
    "global-acceptance-adds-up": rows(
        holds=(lambda: counted(1, 2, 1), lambda: counted(1, 2, 1, own=0, dead=True)),
        broken=(
            lambda: counted(1, 2, 2),
            lambda: counted(0, 2, 1),
            lambda: counted(1, 2, 1, own=0),
            lambda: counted(1, 2, 1, own=2, dead=True),
        ),
        silent=lambda: counted(0, 0, 0, mode="EXTEND"),
    ),
}

GOALS: dict[str, tuple[Row, Row]] = {"refusal": (lambda: refused(5), lambda: refused(5, receipt=Receipt()))}
