"""Tables of the oracles in `oracles/kv_pool.py`, `isolation.py`, `races.py` and those on cached content."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.event import Evict, Settle, Verify
from specfuzz.core.oracle import ORACLES, Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import CachedPath, LaunchView, RaceView
from tests.oracles.build import (
    EAGLE,
    PLAIN,
    SYNC,
    EngineConfig,
    device,
    extending,
    finished,
    path,
    pool,
    req,
    spoiled,
    step,
)
from tests.oracles.forwards import asked, executed, exit_, launch
from tests.oracles.rows import Rows, rows

A = req("a")
PATH = path("c", 6)


def memory(name: str, slot: int, **more: object) -> Step:
    """One cell of the memory that `a` uses is wrong."""
    return step(Evict(1), (A,), (A,), device=spoiled(device((A,)), name, slot), **more)  # type: ignore[arg-type]


def cached(name: str, place: int, config: EngineConfig = EAGLE, known: CachedPath = PATH, pending: int = 0) -> Step:
    """The cell of a cached slot is wrong."""
    wrong = replace(spoiled(device((A,), (known,)), name, known.slots[place]), pending=pending)
    seen = pool((A,), config, (known,))
    return step(Settle(), (A,), (A,), config=config, pool=seen, device=wrong)


def running(**changes: object) -> Step:
    """A verify of `a` ran; its exit differs so."""
    return step(
        Evict(1),
        (A,),
        (A,),
        launches=(executed(A, exit=exit_(A, **changes)),),
        flying=(asked("a"),),  # type: ignore[arg-type]
    )


def emits(tokens: tuple[int, ...]) -> Step:
    """A settle appends these tokens."""
    return step(Settle(), (A,), (replace(A, output_ids=(*A.output_ids, *tokens)),))


def launching(config: EngineConfig = EAGLE, **changes: object) -> Step:
    """A verify of `a` is launched; its record differs so."""
    fields = {
        "rebound": ("spec_info", "input_ids") if config.overlap else ("spec_info", "input_ids", "seq_lens")
    } | changes
    view: LaunchView = launch(A, **fields)
    receipt = Receipt(launch=2, mode="DECODE", rows=("a",))
    return step(Verify(), (A,), (A,), config=config, launches=(view,), flying=(asked("a"),), receipt=receipt)


def race(kind: str = "read-after-write", buffer: str = "kv_cache", executed_ops: int = 3, races: bool = True) -> Step:
    """An event in which a race was found, or none."""
    found = RaceView(
        kind=kind,
        buffer=buffer,
        row=3,
        first="verify",
        first_stream="forward",
        second="write",
        second_stream="schedule",
    )
    return step(Evict(1), (A,), (A,), races=(found,) if races else (), receipt=Receipt(executed=executed_ops))


def quiet() -> Step:
    """Work was done and no race was found."""
    return race(races=False)


def still() -> Step:
    """Nothing touched the device."""
    return race(races=False, executed_ops=0)


def unchanged() -> Step:
    """Device and requests are those from before, and were judged then."""
    seen = device((A,))
    found = step(Settle(), (A,), (A,), device=seen, old={"device": seen})
    ORACLES.get("target-kv-is-true").check(found, A)
    return found


NEXT = req("a", done=6).output_ids[3:]
ROWS: dict[str, Rows] = {
    "target-kv-is-true": rows(
        holds=(lambda: memory("target_v1", A.slots[6]), lambda: memory("target_v1", 139)),
        broken=(
            lambda: memory("target_v1", A.slots[5]),
            lambda: memory("target_v2", A.slots[0]),
            lambda: memory("target_v2", A.slots[7], launches=(executed(A),), flying=(asked("a"),)),
        ),
        silent=(
            unchanged,
            lambda: step(Evict(1), (finished(),), (finished(),)),
            lambda: memory("target_v1", A.slots[0], ask=extending("a")),
        ),
    ),
    "decided-tokens-are-the-text": rows(
        holds=lambda: running(),
        broken=(
            lambda: running(next_tokens=((1, 2),)),
            lambda: running(next_tokens=((NEXT[1], NEXT[0]),)),
            lambda: running(new_seq_lens=(9,)),
        ),
        silent=(
            lambda: step(Evict(1), (finished(),), (finished(),), launches=(executed(A),), flying=(asked("a"),)),
            lambda: step(Evict(1), (A,), (A,), launches=(launch(A),), flying=(asked("a"),)),
        ),
    ),
    "output-is-plain-decoding": rows(
        holds=(lambda: emits(NEXT[:1]), lambda: emits(NEXT)),
        broken=(lambda: emits(NEXT[1:]), lambda: emits((*NEXT[:1], 5))),
        silent=lambda: emits(()),
    ),
    "cached-kv-is-true": rows(
        holds=(
            lambda: cached("draft_v1", 0),
            lambda: cached("target_v1", 5, PLAIN, pending=1),
        ),
        broken=(
            lambda: cached("target_v1", 0),
            lambda: cached("target_v2", 5),
            lambda: cached("target_v1", 5, PLAIN),
            lambda: cached("target_v1", 4, PLAIN, pending=1),
        ),
        silent=unchanged,
    ),
    "cached-draft-kv-is-true": rows(
        holds=(
            lambda: cached("target_v1", 0),
            lambda: cached("draft_v1", 5, known=CachedPath(tokens=PATH.tokens[:6], slots=PATH.slots)),
        ),
        broken=(lambda: cached("draft_v1", 0), lambda: cached("draft_v1", 5)),
        silent=(unchanged, lambda: cached("target_v1", 0, PLAIN)),
    ),
    "bindings-are-restored": rows(
        holds=(
            lambda: launching(),
            lambda: launching(SYNC, rebound=("spec_info", "input_ids", "seq_lens", "seq_lens_cpu")),
            lambda: launching(PLAIN, rebound=("input_ids",)),
        ),
        broken=(
            lambda: launching(rebound=("spec_info", "forward_mode")),
            lambda: launching(rebound=("spec_info", "seq_lens")),
            lambda: launching(PLAIN, rebound=("sampling_info",)),
        ),
        silent=unchanged,
    ),
    "draft-input-is-committed": rows(
        holds=(lambda: launching(), lambda: launching(SYNC)),
        broken=(lambda: launching(rebound=("input_ids",)), lambda: launching(SYNC, rebound=("spec_info",))),
        silent=(unchanged, lambda: launching(PLAIN)),
    ),
    "sampling-info-is-copied": rows(
        holds=lambda: launching(),
        broken=lambda: launching(sampling_copied=False),
        silent=(unchanged, lambda: launching(PLAIN.with_(overlap=False), sampling_copied=False)),
    ),
    "mode-is-restored": rows(
        holds=lambda: launching(),
        broken=(lambda: launching(mode_after="TARGET_VERIFY"), lambda: launching(mode_after="EXTEND")),
        silent=unchanged,
    ),
    "no-write-through-the-isolation": rows(
        holds=lambda: launching(),
        broken=lambda: launching(held_changed=("seq_lens",)),
        silent=lambda: launching(held_changed=None),
    ),
    "tensors-outlive-their-forward": rows(
        holds=(quiet, race), broken=lambda: race("use-after-free", "seq_lens"), silent=still
    ),
    "relay-reads-are-fenced": rows(holds=(quiet, race), broken=lambda: race(buffer="new_seq_lens_buf"), silent=still),
    "row-writes-wait-for-readers": rows(
        holds=(quiet, race), broken=lambda: race("write-after-read", "req_to_token"), silent=still
    ),
    "results-are-waited-for": rows(
        holds=(quiet, race), broken=lambda: race("host-read-unsynchronised", "next_token_ids_cpu"), silent=still
    ),
    "device-memory-is-ordered": rows(holds=(quiet, lambda: race(buffer="req_to_token")), broken=race, silent=still),
}
