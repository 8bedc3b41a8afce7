"""Tables of the oracles in `oracles/sampling.py`: what the penalties of two requests have counted in two prepares."""

from __future__ import annotations

from specfuzz.core.event import Event, Prepare, Verify
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import ReqView
from tests.oracles.build import batch, finished, out, req, step
from tests.oracles.forwards import asked, launch
from tests.oracles.rows import Rows, rows

A, B = req("a"), req("b")
COUNTED = (out("a", 3)[-2:], out("b", 3)[-2:])


def held(*counted: tuple[int, ...], name: str = "running", event: Event | None = None, a: ReqView = A) -> Step:
    """The scheduler holds a batch of both requests whose penalties have counted these tokens."""
    return step(event or Verify(), (A, B), (a, B), batches=(batch(A, B, name=name, penalized=counted),))


def prepared(*counted: tuple[int, ...], a: ReqView = A) -> Step:
    """The batch has just been prepared."""
    return held(*counted, name="prepared", event=Prepare(), a=a)


def launched(*counted: tuple[int, ...], a: ReqView = A) -> Step:
    """A forward of both requests is launched with these penalties."""
    return step(
        Verify(), (A, B), (a, B), launches=(launch(A, B, penalized=counted),), flying=(asked("a", "b"),),
        receipt=Receipt(launch=2, rows=("a", "b")),
    )  # fmt: skip


ROWS: dict[str, Rows] = {
    "penalties-count-once": rows(
        holds=(lambda: held(*COUNTED), lambda: prepared(*COUNTED), lambda: prepared((), COUNTED[1], a=finished("a"))),
        broken=(
            lambda: held(COUNTED[0], COUNTED[1][:1]),
            lambda: held((7, *COUNTED[0]), COUNTED[1]),
            lambda: held(*COUNTED, (7,)),
            lambda: held(COUNTED[0]),
            lambda: prepared(COUNTED[0], COUNTED[0]),
            lambda: prepared(COUNTED[0], COUNTED[1][::-1]),
            lambda: held(COUNTED[1], COUNTED[0]),  # the rows are another's
        ),
        silent=(lambda: step(Verify(), (A,), (A,)), lambda: step(Prepare(), (A,), (A,), batches=(batch(name="last"),))),
    ),
    "forward-sees-its-penalties": rows(
        holds=(lambda: launched(*COUNTED), lambda: launched((), COUNTED[1], a=finished("a"))),
        broken=(
            lambda: launched(COUNTED[0], ()),
            lambda: launched(COUNTED[0]),
            lambda: launched(*COUNTED, COUNTED[0]),
            lambda: launched(COUNTED[1], COUNTED[0]),
        ),
        silent=lambda: step(Prepare(), (A,), (A,)),
    ),
}
