"""Tables of the oracles in `oracles/spec_tree.py`: verifies of trees with 4 branches, 3 levels and 8 nodes."""

from __future__ import annotations

from dataclasses import replace

from specfuzz.core.config import EngineConfig
from specfuzz.core.draft_tree import right_branch, right_path, seeds
from specfuzz.core.event import Prefill, Publish
from specfuzz.core.oracle import Step
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import LaunchView, ReqView, WorkerEntry, WorkerExit
from tests.oracles.build import device, finished, gone, req, spoiled, step, text
from tests.oracles.forwards import asked, entry, executed, exit_, launch
from tests.oracles.rows import Row, Rows, rows

TREE = EngineConfig(num_pages=100, topk=4, draft_token_num=8)
PAGES = EngineConfig(num_pages=64, topk=4, draft_token_num=8, page_size=4)
CHAIN = EngineConfig(num_pages=100)
A, B = req("a", reserve=24), req("b", reserve=24)


def path(one: ReqView, lead: int = 0) -> tuple[int, ...]:
    """Nodes of the right path of the round that starts `lead` past its committed length."""
    return right_path(4, 3, 8, right_branch(one.rid, one.kv_committed_len + lead, 4))


def tree_entry(*reqs: ReqView, lead: int = 0, **changes: object) -> WorkerEntry:
    """What a verify of trees reads."""
    found = entry(*reqs, lead=lead, width=8)
    relayed = tuple(
        seeds(state, right_branch(one.rid, at, 4), 4)
        for one, at, state in zip(reqs, found.seq_lens, found.hidden, strict=True)
    )
    fields = {"topk_seeds": relayed, "topk_index": tuple(first for first, *_ in relayed)} | changes
    return replace(found, **fields)  # type: ignore[arg-type]


def tree_exit(*reqs: ReqView, lead: int = 0, accept: int = 3, **changes: object) -> WorkerExit:
    """What it decides: `accept` nodes of every right path, moved to the front of the window."""
    found = exit_(*reqs, lead=lead, accept=accept)
    nodes = [path(one, lead)[:accept] for one in reqs]
    windows = tree_entry(*reqs, lead=lead).window
    fields = {
        "accept_index": tuple(line + (-1,) * (4 - accept) for line in nodes),
        "moved": tuple(
            tuple((window[lane], window[node]) for lane, node in enumerate(line)) + ((0, 0),) * (4 - accept)
            for window, line in zip(windows, nodes, strict=True)
        ),
        "bonus": tuple(run[-1] for run in found.next_tokens),
    } | changes
    return replace(found, **fields)  # type: ignore[arg-type]


def tree(*reqs: ReqView, lead: int = 0, accept: int = 3, **changes: object) -> LaunchView:
    """A verify of trees that ran to its end in this event."""
    fields = {
        "entry": tree_entry(*reqs, lead=lead), "exit": tree_exit(*reqs, lead=lead, accept=accept),
    } | changes  # fmt: skip
    return executed(*reqs, **fields)  # type: ignore[arg-type]


def run(*views: LaunchView, reqs: tuple[ReqView, ...] = (A, B), config: EngineConfig = TREE, **more: object) -> Step:
    """A publish event in which the last of the launches runs; all carry both requests."""
    known = tuple(asked("a", "b", number=view.number, mode=view.mode) for view in views)
    return step(Publish(), reqs, reqs, config=config, launches=views, flying=known, **more)  # type: ignore[arg-type]


def leaving(**changes: object) -> Step:
    """A verify whose exit differs so."""
    return run(tree(A, B, exit=tree_exit(A, B, **changes)))  # type: ignore[arg-type]


def dead(**changes: object) -> Step:
    """A verify whose rows have died since."""
    gone = (finished("a"), finished("b"))
    return run(tree(A, B, **changes), reqs=gone)


def extend() -> Step:
    """An extend of both requests."""
    return run(executed(A, B, mode="EXTEND", exit=exit_(A, B, accept=1)))


def chain() -> Step:
    """A chain has no tree."""
    return run(executed(A, B), config=CHAIN)


def paged(committed: int, allocated: int) -> Step:
    """A verify of trees on pages of four, whose row is backed that far."""
    one = req("a", kv_committed_len=committed, kv_allocated_len=allocated)
    return run(tree(one, allocated=(allocated,)), reqs=(one,), config=PAGES)


def spoiled_window(row: ReqView, lane: int, memory: str = "target_v2") -> Step:
    """One cell at the front of a window is wrong after a verify that accepted three nodes."""
    slot = row.slots[row.kv_committed_len + lane]
    return run(tree(A, B), device=spoiled(device((A, B)), memory, slot))


def shifted(lines: tuple[tuple[tuple[int, int], ...], ...], by: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The same moves with other targets."""
    return tuple(tuple((target + by, source) for target, source in line) for line in lines)


MOVED = tree_exit(A, B).moved
ROWS: dict[str, Rows] = {
    "branches-inside-the-reserve": rows(
        holds=(
            lambda: run(tree(A, B)),
            lambda: run(tree(A, B, lead=4)),
            lambda: run(tree(A, B, lead=4, allocated=(22, 22))),
            lambda: paged(6, 36),
            lambda: paged(8, 24),
        ),
        broken=(
            lambda: run(tree(A, B, lead=4, allocated=(22, 21))),
            lambda: run(tree(A, B, allocated=(17, 30))),
            lambda: paged(6, 35),
            lambda: paged(8, 23),
        ),
        silent=(dead, extend, chain),
    ),
    "accept-index-is-a-path": rows(
        holds=(lambda: leaving(), lambda: leaving(accept=1), lambda: leaving(accept=4), dead),
        broken=(
            lambda: leaving(accept_index=((0, 1, 2, -1), (*path(B)[:3], -1))),  # siblings
            lambda: leaving(accept_index=(path(A), (*path(B)[:3], -1))),  # longer than what is accepted
            lambda: leaving(accept_index=((1, *path(A)[1:3], -1), (*path(B)[:3], -1))),  # another root
            lambda: leaving(accept_index=((0, -1, -1, -1), (*path(B)[:3], -1))),
            lambda: leaving(accept_index=(path(A)[:3], path(B)[:3])),  # too narrow
        ),
        silent=(extend, chain),
    ),
    "move-stays-in-the-window": rows(
        holds=(lambda: leaving(), lambda: leaving(accept=1), lambda: leaving(accept=4), dead),
        broken=(
            lambda: leaving(moved=shifted(MOVED, 1)),
            lambda: leaving(moved=(MOVED[1], MOVED[0])),
            lambda: leaving(moved=(tuple((target, target) for target, _ in MOVED[0]), MOVED[1])),
            lambda: dead(exit=tree_exit(A, B, moved=shifted(MOVED, 40))),  # a dead row too
        ),
        silent=(extend, chain),
    ),
    "accepted-path-leads-the-window": rows(
        holds=(lambda: leaving(), lambda: leaving(accept=1), lambda: spoiled_window(A, 3)),
        broken=(
            lambda: spoiled_window(A, 0),
            lambda: spoiled_window(B, 2),
            lambda: spoiled_window(A, 1, "target_v1"),
        ),
        silent=(dead, extend, chain),
    ),
    "bonus-ends-the-run": rows(
        holds=(lambda: leaving(), lambda: leaving(accept=1), dead),
        broken=(
            lambda: leaving(bonus=(text("a").token(A.kv_committed_len + 3), 7)),
            lambda: leaving(bonus=tree_exit(A, B).bonus[::-1]),
        ),
        silent=(extend, chain),
    ),
}


def handed_on(row: int = 2, **changes: object) -> Step:
    """`b` is admitted into that row while a forward of `a` is in flight in row 2."""
    before, after = gone("b", done=0), replace(B, req_pool_idx=row)
    flying = launch(replace(A, req_pool_idx=2), **changes)  # type: ignore[arg-type]
    receipt = Receipt(admitted=(("b", 0, 4),), launch=3, mode="EXTEND", rows=("b",))
    return step(
        Prefill("b"), (finished("a"), before), (finished("a"), after), config=TREE, receipt=receipt, launches=(flying,),
        flying=(asked("a"),),
    )  # fmt: skip


def ahead(lead: int, config: EngineConfig = TREE, **changes: object) -> Step:
    """A verify of trees that starts `lead` past the host."""
    return run(tree(A, lead=lead, **changes), reqs=(A,), config=config)


def scattered(*nodes: int) -> Step:
    """A verify that accepts these nodes."""
    return leaving(accept_index=(nodes, (0, -1, -1, -1)))


GOALS: dict[str, tuple[Row, Row]] = {
    "tree-drafts-ahead-of-the-host": (lambda: ahead(2), lambda: ahead(0)),
    "scattered-path-is-accepted": (lambda: scattered(0, 2, -1, -1), lambda: scattered(0, 1, -1, -1)),
    "row-handed-on-in-flight": (handed_on, lambda: handed_on(3)),
}
