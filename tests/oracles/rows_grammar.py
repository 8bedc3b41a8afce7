"""Tables of the oracles in `oracles/grammar.py`, and of the goals about constrained decoding.

`a` has three settled tokens; its grammar ends with the sixth, or with the fifth in what a verify accepts.
"""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.event import Abort, Event, Prefill, Publish, Settle, Verify
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import LaunchView, ReqView
from tests.oracles.build import EAGLE, arm, constrain, finished, gone, out, req, retracted, step
from tests.oracles.forwards import asked, executed, exit_
from tests.oracles.rows import Row, Rows, rows

GRAMMAR = EAGLE.with_(grammar=True)
LENGTH = 6
FREE = req("a")
A = req("a", grammar_accepted=out("a", 3))


def plain(after: ReqView, *views: LaunchView, event: Event | None = None, length: int = LENGTH) -> Step:
    """An event that changes nothing on `a` but its FSM."""
    flying = tuple(asked("a", number=view.number) for view in views if not view.settled)
    return step(
        event or Verify(), (A,), (after,), config=GRAMMAR, launches=views, flying=flying, ask=constrain("a", length)
    )


def accepted(count: int, *views: LaunchView, **changes: object) -> Step:
    """An event after which the FSM of `a` has accepted so many of its tokens."""
    return plain(replace(A, grammar_accepted=out("a", count), **changes), *views)  # type: ignore[arg-type]


def early(advanced: bool = True, **changes: object) -> LaunchView:
    """An unsettled verify of two tokens, accepted early by the FSM or not."""
    return replace(executed(A), grammar_advanced=advanced, **changes)  # type: ignore[arg-type]


def ends(terminated: bool, *tokens: int) -> Step:
    """An event after which the FSM has accepted these tokens and says that."""
    return plain(replace(A, grammar_accepted=tokens, grammar_terminated=terminated))


def decided(*run: int, length: int = LENGTH, view: ReqView = A, stop_at: int | None = None, **changes: object) -> Step:
    """A verify of `a`, whose next output token is its fourth, has decided that run. stop_at: an armed stop."""
    at = A.kv_committed_len
    leaving = exit_(A, accept=len(run), next_tokens=(run,), new_seq_lens=(at + len(run),))
    launch = executed(A, exit=leaving, **changes)  # type: ignore[arg-type]
    found = plain(view, launch, event=Publish(), length=length)
    if stop_at is not None:
        arm("a", stop_at)(found.ledger)
    return found


def ended(*run: int, done: int = 6, reason: str = "length", ahead: bool = False) -> Step:
    """The event that shows what a verify of `a` has decided also processes it, which finishes `a`.

    ahead: likewise one of two tokens before it.
    """
    at = A.kv_committed_len + 2 * ahead
    leaving = exit_(A, accept=len(run), next_tokens=(run,), new_seq_lens=(at + len(run),))
    views = [replace(executed(A, exit=leaving, number=3), settled=True)]
    if ahead:
        views.insert(0, replace(executed(A, exit_now=False), settled=True))
    known = tuple(asked("a", number=view.number) for view in views)
    after = finished("a", reason, done=done, grammar_accepted=out("a", done))
    return step(
        Settle(), (A,), (after,), config=GRAMMAR, launches=tuple(views), settled=known, ask=constrain("a", LENGTH)
    )


def settled(after: ReqView, *, run: tuple[int, ...] = (), known: bool = True) -> Step:
    """The result of a verify of `a` is processed."""
    reason = after.finished_reason
    receipt = Receipt(settled=2, finished=((after.rid, reason, after.finished_len),) if reason else ())
    exit_now = exit_(A, accept=len(run), next_tokens=(run,)) if run else exit_(A)
    return step(
        Settle(), (A,), (after,), config=GRAMMAR, receipt=receipt, settled=(asked("a"),),
        launches=(replace(executed(A, exit=exit_now), settled=True),), ask=constrain("a", LENGTH if known else 0),
    )  # fmt: skip


def emitted(*tokens: int, **changes: object) -> Step:
    """A verify leaves `a` with these output tokens."""
    view = finished("a", "stop", done=5, output_ids=tokens, grammar_accepted=tokens, grammar_terminated=True)
    return settled(replace(view, **changes))  # type: ignore[arg-type]


def resumed(**changes: object) -> Step:
    """A request whose FSM has moved on is admitted."""
    waiting = retracted("a", grammar_accepted=out("a", 3))
    view = replace(A, retraction_count=1, **changes)  # type: ignore[arg-type]
    return step(
        Prefill("a"), (waiting,), (view,), config=GRAMMAR, receipt=Receipt(launch=1, admitted=(("a", 0, 7),)),
        ask=constrain("a", LENGTH),
    )  # fmt: skip


ROWS: dict[str, Rows] = {
    "grammar-accepts-what-is-emitted": rows(
        holds=(
            lambda: accepted(3),
            lambda: accepted(5, early()),
            lambda: accepted(3, early(advanced=False)),
            lambda: plain(retracted("a", grammar_accepted=out("a", 3)), early()),
        ),
        broken=(
            lambda: accepted(2),
            lambda: accepted(4),
            lambda: accepted(3, early()),
            lambda: accepted(5, early(advanced=False)),
            lambda: plain(retracted("a", grammar_accepted=out("a", 5)), early()),
            lambda: plain(retracted("a", grammar_accepted=())),
        ),
        silent=(
            lambda: plain(FREE),
            lambda: plain(gone("a", done=0, grammar_accepted=())),
            lambda: step(Verify(), (A,), (A,)),
        ),
    ),
    "grammar-ends-with-the-stop": rows(
        holds=(lambda: ends(False, 1, 2), lambda: ends(True, 1, STOP_TOKEN)),
        broken=(lambda: ends(True, 1, 2), lambda: ends(False, 1, STOP_TOKEN)),
        silent=(lambda: ends(True), lambda: plain(FREE), lambda: step(Verify(), (A,), (A,))),
    ),
    "decided-tokens-are-allowed": rows(
        holds=(
            lambda: decided(1, 2),
            lambda: decided(1, 2, STOP_TOKEN),
            lambda: decided(1, STOP_TOKEN, 2, 3, stop_at=4),  # it ends before, and nothing is constrained behind that
            lambda: decided(1, 2, STOP_TOKEN, 3),
            lambda: ended(1, 2, STOP_TOKEN),
        ),
        broken=(
            lambda: decided(1, 2, 3),
            lambda: decided(1, 2, 3, STOP_TOKEN),
            lambda: decided(1, length=4),
            lambda: decided(1, STOP_TOKEN),
            lambda: decided(1, STOP_TOKEN, length=0),
            lambda: ended(1, 2, 3),
            lambda: ended(3, ahead=True),
            lambda: ended(3, done=5, reason="abort", ahead=True),  # its FSM has refused that token
        ),
        silent=(
            lambda: decided(1, length=3),  # ended before this round, and nobody knows yet
            lambda: decided(1, 2, 3, length=0),
            lambda: decided(1, 2, 3, view=finished("a", grammar_accepted=out("a", 8))),
            lambda: decided(1, 2, 3, exit_now=False),
            lambda: ended(3, done=5, ahead=True),  # the one ahead has finished it
        ),
    ),
    "grammar-cuts-the-run": rows(
        holds=lambda: emitted(1, 2, 3, 4, STOP_TOKEN),
        broken=(lambda: emitted(1, 2, 3, STOP_TOKEN, 5), lambda: emitted(STOP_TOKEN, 2, 3, 4, STOP_TOKEN)),
        silent=(
            lambda: emitted(1, 2, 3),
            lambda: emitted(1, 2, 3, STOP_TOKEN, 5, grammar_accepted=None),
            lambda: plain(A, event=Abort("a")),
        ),
    ),
}

GOALS: dict[str, tuple[Row, Row]] = {
    "grammar-terminates": (
        lambda: emitted(1, 2, 3, 4, STOP_TOKEN), lambda: emitted(1, 2, 3, grammar_terminated=False),
    ),
    "grammar-ends-inside-a-run": (
        lambda: settled(A, run=(STOP_TOKEN, 1)), lambda: settled(A, run=(1, STOP_TOKEN)),
    ),
    "grammar-accepts-early": (lambda: accepted(5, early()), lambda: accepted(3, early(advanced=False))),
    "constrained-request-resumes": (resumed, lambda: resumed(grammar_accepted=None)),
}  # fmt: skip
