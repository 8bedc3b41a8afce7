"""Tables of the oracles in `oracles/future_map.py`, `spec_worker.py` and `req_to_token_pool.py`."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.asked import Launched
from specfuzz.core.event import Evict, Idle, Publish, Settle
from specfuzz.core.oracle import ORACLES, Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import BatchView, LaunchView, ReqView, WriteRecord
from tests.oracles.build import EAGLE, PLAIN, SYNC, batch, device, finished, pool, relay, req, spoiled, step, text
from tests.oracles.forwards import asked, entry, executed, exit_, launch
from tests.oracles.rows import Rows, rows

A, B = req("a"), req("b")


def run(
    *views: LaunchView, reqs: tuple[ReqView, ...] = (A, B), flying: tuple[Launched, ...] | None = None, **more: object
) -> Step:
    """A publish event in which the last of the launches runs; all carry both requests."""
    known = tuple(asked("a", "b", number=view.number, mode=view.mode) for view in views) if flying is None else flying
    return step(Publish(), reqs, reqs, launches=views, flying=known, **more)  # type: ignore[arg-type]


def entering(**changes: object) -> Step:
    """A verify whose entry differs so."""
    return run(executed(A, B, entry=entry(A, B, **changes)))  # type: ignore[arg-type]


def leaving(*, mode: str = "DECODE", **changes: object) -> Step:
    """A verify whose exit differs so."""
    return run(executed(A, B, mode=mode, exit=exit_(A, B, **changes)))  # type: ignore[arg-type]


def behind(lead: int, **changes: object) -> Step:
    """A verify that starts `lead` past the host, launched while a verify of two tokens was unsettled."""
    first = executed(A, B, number=1, entry_now=False, exit_now=False)
    second = executed(A, B, number=2, lead=lead, unsettled_before=1, **changes)  # type: ignore[arg-type]
    return run(first, second)


def holding(*views: BatchView) -> Step:
    """A step after which the scheduler holds these batches."""
    return step(Evict(1), (A, B), (A, B), batches=views)


def dead() -> Step:
    """A verify whose rows have died since."""
    gone = (finished("a"), finished("b"))
    return step(Publish(), gone, gone, launches=(executed(A, B, lead=3),), flying=(asked("a", "b"),))


def extend(**changes: object) -> Step:
    """An extend of both requests over positions 2 to 6 of their texts."""
    lines = (text("a"), text("b"))
    fields = {
        "seq_lens": (6, 6), "prefix_lens": (2, 2), "window": (A.slots[2:6], B.slots[2:6]), "bonus": (), "hidden": (),
        "topk_index": (), "input_tokens": tuple(tuple(line.tokens[2:6]) for line in lines),
    } | changes  # fmt: skip
    known = asked("a", "b", mode="EXTEND", accept=1, extended=("a", "b"))
    left = exit_(A, B, accept=1, new_seq_lens=(6, 6), next_tokens=((lines[0].token(6),), (lines[1].token(6),)))
    return run(executed(A, B, mode="EXTEND", entry=entry(A, B, **fields), exit=left), flying=(known,))  # type: ignore[arg-type]


def settled(**changes: object) -> Step:
    """Nothing is in flight any more; the relay rows differ so."""
    old = (req("a", done=1), req("b", done=1))
    return step(Settle(), old, (A, B), relay=relay(A, B, **changes), settled=(asked("a", "b"),))  # type: ignore[arg-type]


def flying() -> Step:
    """A forward of both requests is in flight, so their relay rows may be consumed."""
    return step(Settle(), (A, B), (A, B), relay=relay(A, B, new_seq_len=None), flying=(asked("a", "b"),))


def launching(config: object = EAGLE, **changes: object) -> Step:
    """A verify is launched."""
    receipt = Receipt(launch=2, mode="DECODE", rows=("a",))
    return step(
        Publish(),
        (A,),
        (A,),
        config=config,
        launches=(launch(A, **changes),),
        flying=(asked("a"),),
        receipt=receipt,  # type: ignore[arg-type]
    )


def written(field: str, writer: str, new: int = 8) -> Step:
    """Somebody writes a ledger field of `a`."""
    return step(Settle(), (A,), (A,), writes=(WriteRecord(field=field, rid="a", writer=writer, old=6, new=new),))


def memory(name: str, slot: int, pending: int = 0) -> Step:
    """One cell is wrong."""
    return step(Evict(1), (A,), (A,), device=replace(spoiled(device((A,)), name, slot), pending=pending))


def row_cells(cells: tuple[int, ...], pending: int = 0) -> Step:
    """The device's row of `a` names these slots."""
    return step(Evict(1), (A,), (A,), device=device((A,), rows={"a": cells}, pending=pending))


def pooled(**changes: object) -> Step:
    """A pool that differs so."""
    return step(Evict(1), (A,), (A,), pool=pool((A,), **changes))  # type: ignore[arg-type]


def unchanged() -> Step:
    """A step that shares its pool and device views with the one before, and was judged then."""
    seen, memory_seen = pool((A,)), device((A,))
    found = step(Idle(), (A,), (A,), old={"pool": seen, "device": memory_seen}, pool=seen, device=memory_seen)
    for name in ("draft-kv-is-true", "device-rows-are-host-rows"):
        ORACLES.get(name).check(found, A)
    return found


OTHER_STATE = tuple(text(rid).hidden(6) for rid in ("b", "a"))
OLD_STATE = tuple(text(rid).hidden(4) for rid in ("a", "b"))
ROWS: dict[str, Rows] = {
    "worker-starts-at-the-frontier": rows(
        holds=(lambda: entering(), lambda: behind(2), extend),
        broken=(
            lambda: entering(seq_lens=(6, 7)),
            lambda: behind(0),
            lambda: behind(3),
            lambda: extend(seq_lens=(6, 7)),
        ),
        silent=(dead, lambda: run(launch(A, B))),
    ),
    "device-lead-is-one-round": rows(
        holds=(lambda: entering(), lambda: behind(2), lambda: behind(4)),
        broken=(lambda: behind(5), lambda: entering(seq_lens=(6, 7)), lambda: entering(seq_lens=(5, 6))),
        silent=(dead, extend),
    ),
    "worker-feeds-the-pending-token": rows(
        holds=(lambda: entering(), lambda: behind(2)),
        broken=(
            lambda: entering(bonus=(1, 2)),
            lambda: behind(2, entry=entry(A, B, lead=2, bonus=(A.output_ids[-1], B.output_ids[-1]))),
            lambda: entering(bonus=(B.output_ids[-1], A.output_ids[-1])),
        ),
        silent=(dead, extend),
    ),
    "draft-extras-pair-with-rows": rows(
        holds=lambda: entering(),
        broken=(lambda: entering(hidden=OTHER_STATE), lambda: entering(hidden=OLD_STATE)),
        silent=(dead, extend),
    ),
    "future-indices-are-rows": rows(
        holds=lambda: holding(batch(A, B)),
        broken=(
            lambda: holding(batch(A, B, future_indices=(2, 1))),
            lambda: holding(batch(A, future_indices=(1, 2))),
        ),
        silent=(lambda: holding(), lambda: holding(batch(A, future_indices=None))),
    ),
    "publish-equals-result": rows(
        holds=lambda: leaving(),
        broken=(lambda: leaving(published=(6, 6)), lambda: leaving(published=(8, 9))),
        silent=(lambda: run(), lambda: run(executed(A, exit_now=False))),
    ),
    "frontier-only-advances": rows(
        holds=(lambda: leaving(), lambda: behind(2)),
        broken=(lambda: leaving(new_seq_lens=(6, 8)), lambda: behind(0)),
        silent=(dead, extend),
    ),
    "relay-holds-the-frontier": rows(
        holds=lambda: settled(),
        broken=(lambda: settled(new_seq_len=None), lambda: settled(new_seq_len=5)),
        silent=flying,
    ),
    "relay-holds-the-pending-token": rows(
        holds=lambda: settled(),
        broken=(lambda: settled(output_token=None), lambda: settled(output_token=7)),
        silent=flying,
    ),
    "relay-holds-the-draft-state": rows(
        holds=lambda: settled(),
        broken=(lambda: settled(hidden=None), lambda: settled(topk_index=7)),
        silent=flying,
    ),
    "accept-in-range": rows(
        holds=(lambda: leaving(), extend),
        broken=(
            lambda: leaving(accept_lens=(0, 2)),
            lambda: leaving(accept_lens=(5, 2)),
            lambda: leaving(accept_lens=(3, 2)),
            lambda: leaving(mode="EXTEND"),
        ),
        silent=lambda: run(),
    ),
    "frontier-steps-by-accept": rows(
        holds=(lambda: leaving(), extend),
        broken=(lambda: leaving(new_seq_lens=(7, 8)), lambda: leaving(mode="EXTEND")),
        silent=lambda: run(),
    ),
    "right-draft-is-accepted": rows(
        holds=lambda: leaving(),
        broken=lambda: leaving(accept_lens=(1, 2)),
        silent=(dead, extend),
    ),
    "draft-state-is-right": rows(
        holds=lambda: entering(),
        broken=(lambda: entering(hidden=(1, 2)), lambda: entering(topk_index=(1, 2))),
        silent=(dead, extend),
    ),
    "publishes-once": rows(
        holds=(lambda: launching(), lambda: launching(SYNC, publishes=0)),
        broken=(lambda: launching(publishes=0), lambda: launching(publishes=2), lambda: launching(SYNC, publishes=1)),
        silent=(lambda: launching(PLAIN), lambda: run()),
    ),
    "draft-kv-is-true": rows(
        holds=(lambda: settled(), lambda: memory("draft_v1", A.slots[6])),
        broken=(lambda: memory("draft_v1", A.slots[5]), lambda: memory("draft_v1", A.slots[0])),
        silent=(unchanged, lambda: step(Evict(1), (finished(),), (finished(),))),
    ),
    "worker-keeps-off-the-ledger": rows(
        holds=(
            lambda: written("kv_committed_len", "_resolve_spec_v2_tokens"),
            lambda: written("kv_allocated_len", "alloc_for_spec_decode"),
            lambda: written("kv_committed_len", "anybody", new=0),
        ),
        broken=(
            lambda: written("kv_committed_len", "forward_batch_generation"),
            lambda: written("decode_batch_idx", "verify"),
        ),
        silent=unchanged,
    ),
    "rows-are-conserved": rows(
        holds=lambda: pooled(),
        broken=(
            lambda: pooled(free_rows=(2, 3)),
            lambda: pooled(free_rows=(1, 2, 3, 4)),
            lambda: pooled(free_rows=(0, 2, 3)),
        ),
        silent=unchanged,
    ),
    "window-follows-the-row": rows(
        holds=(lambda: entering(), extend, lambda: behind(2)),
        broken=(
            lambda: entering(window=(B.slots[6:10], A.slots[6:10])),
            lambda: entering(prefix_lens=(7, 6)),
            lambda: entering(window=(A.slots[5:9], B.slots[6:10])),
            lambda: extend(window=(A.slots[1:5], B.slots[2:6])),
        ),
        silent=dead,
    ),
    "window-inside-the-reserve": rows(
        holds=(lambda: entering(), lambda: behind(4)),
        broken=(lambda: behind(5), lambda: run(executed(A, B, allocated=(9, 14)))),
        silent=(dead, extend),
    ),
    "writes-start-past-the-tree": rows(
        holds=(lambda: entering(), extend),
        broken=(
            lambda: run(executed(A, B), reqs=(replace(A, cache_protected_len=7), B)),
            lambda: entering(window=((0, 14, 15, 16), B.slots[6:10])),
        ),
        silent=dead,
    ),
    "device-rows-are-host-rows": rows(
        holds=lambda: row_cells(A.slots),
        broken=(lambda: row_cells(A.slots[:-1]), lambda: row_cells((0, *A.slots[1:]))),
        silent=(unchanged, lambda: row_cells((0, *A.slots[1:]), pending=2)),
    ),
}
