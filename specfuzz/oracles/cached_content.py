"""Rules on cached content: every slot of the prefix tree holds what its key promises, for target and draft."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.clock import Clock, Owner, Scope
from specfuzz.core.event import Evict, Idle, Mix, Prefill, Settle
from specfuzz.core.language import Continuation
from specfuzz.core.oracle import Step, oracle
from specfuzz.core.snapshot import CachedPath, DeviceView
from specfuzz.core.verdict import Clash, Finding, Verdict
from specfuzz.oracles.facts import limits, reader

HOLDS = Verdict.HOLDS
TREE = Capability.RADIX | Capability.TREE_VIEW


class _Expected:
    """One cached path with the cells that its tokens ask for.

    shifted: the draft's cells, one position further; due_draft: how many of them the key can vouch for.
    """

    __slots__ = ("due_draft", "first", "path", "second", "shifted")

    def __init__(self, step: Step, path: CachedPath) -> None:
        count, text = len(path.slots), _text_of(step, path.tokens)
        text.target_cell(count)
        self.path = path
        self.first, self.second = text.cells1[:count], text.cells2[:count]
        self.shifted = text.cells1[1 : count + 1]
        self.due_draft = min(count, len(path.tokens) - 1)  # no further than the key names the following token


def _text_of(step: Step, tokens: tuple[int, ...]) -> Continuation:
    """A text that starts with the tokens: a request's own where there is one, because its cells are known already."""
    last, count = tokens[-1], len(tokens)
    for asked in step.ledger.requests.values():
        known = asked.text.tokens
        if len(known) >= count and known[count - 1] == last and tuple(known[:count]) == tokens:
            return asked.text
    return Continuation(tokens)


class _Tree:
    """All cached paths end to end, so that one read and one comparison judge the whole tree.

    seen, seen_draft: the memories in which this very tree was found true; nothing is new while they stay.
    """

    __slots__ = (
        "cached", "draft", "first", "paths", "read", "read_draft", "second", "seen", "seen_draft",
    )  # fmt: skip

    def __init__(self, step: Step, cached: tuple[CachedPath, ...]) -> None:
        memo: dict[CachedPath, _Expected] = step.memo.setdefault("expected-path", {})
        self.cached = cached
        self.paths: list[_Expected] = []
        slots: list[int] = []
        shifted: list[int] = []
        self.first: list[int] = []
        self.second: list[int] = []
        self.draft: list[int] = []
        for path in cached:
            if not path.slots:
                continue
            expected = memo.get(path)
            if expected is None:
                expected = memo[path] = _Expected(step, path)
            self.paths.append(expected)
            slots += path.slots
            self.first += expected.first
            self.second += expected.second
            shifted += path.slots[: expected.due_draft]
            self.draft += expected.shifted[: expected.due_draft]
        self.read = reader(tuple(slots))
        self.read_draft = self.read if len(shifted) == len(slots) else reader(tuple(shifted))
        self.seen: tuple[object, object] = (None, None)
        self.seen_draft: object = None

    def is_target_true(self, device: DeviceView) -> bool:
        """Whether every cached slot holds its target cells."""
        try:
            return list(self.read(device.target_v2)) == self.second and list(self.read(device.target_v1)) == self.first
        except IndexError:
            return False

    def is_draft_true(self, cells: tuple[int, ...]) -> bool:
        """Whether every cached slot whose key names the following token holds its draft cell."""
        try:
            return list(self.read_draft(cells)) == self.draft
        except IndexError:
            return False


def _tree(step: Step, cached: tuple[CachedPath, ...]) -> _Tree:
    known: _Tree | None = step.memo.get("expected-tree")
    if known is None or known.cached is not cached:
        known = step.memo["expected-tree"] = _Tree(step, cached)
    return known


def _read(cells: tuple[int, ...], slots: tuple[int, ...]) -> list[int]:
    """The cells of the slots; empty if one lies outside of the memory."""
    try:
        return [cells[slot] for slot in slots]
    except IndexError:
        return []


def _last_may_be_pending(step: Step) -> bool:
    """Plain decoding under overlap caches one position whose KV its last, dead launch still has to write."""
    device = step.after.device
    if limits(step).speculative or not step.config.overlap or device is None:
        return False
    return bool(device.pending or step.ledger.prepared or step.ledger.in_flight or step.after.queue)


def _note_chunk(step: Step) -> None:
    """Remember the window of a middle chunk at its launch: an abort may take the row away before the chunk has run."""
    if step.receipt.launch is None or not step.ledger.in_flight:
        return
    newest = step.ledger.in_flight[-1]
    for rid, start, length in newest.admitted:
        if rid in newest.middle:
            windows: dict[int, set[int]] = step.memo.setdefault("chunk-windows", {})
            windows[newest.number] = set(step.after.reqs[rid].slots[start : start + length])


def _promised(step: Step) -> set[int]:
    """Slots of middle chunks that have not run: the tree takes a chunk over when the next step is scheduled."""
    windows: dict[int, set[int]] = step.memo.get("chunk-windows", {})
    found: set[int] = set()
    for launch in step.after.launches:
        if launch.exit is None:
            found |= windows.get(launch.number, set())
    return found


@oracle(
    "cached-kv-is-true",
    formula="every cached slot: (v1, v2) == cell of its key token after its key prefix",
    clock=Clock.DEVICE,
    owner=Owner.RADIX_CACHE,
    scope=Scope.RUN,
    needs=TREE | Capability.CONTENT_VIEW | Capability.DEVICE_VIEW,
    on=(Prefill, Mix, Settle, Idle, Evict),
    source="sglang 0.5.23 mem_cache/radix_cache RadixCache.insert; vLLM #41838, #54288",
    twin="tree-holds-output",
)
def cached_kv_is_true(step: Step) -> Finding:
    """A slot that others may hit holds what its key promises, and nobody writes it any more."""
    pool, device = step.after.pool, step.after.device
    if pool.cached is None or device is None:
        return Verdict.UNKNOWN
    _note_chunk(step)
    if not pool.cached:
        return None
    tree, memory = _tree(step, pool.cached), (device.target_v1, device.target_v2)
    if tree.seen[0] is memory[0] and tree.seen[1] is memory[1]:
        return None
    if tree.is_target_true(device):
        tree.seen = memory
        return HOLDS if tree.paths else None
    promised = _promised(step)
    finding: Finding = None
    for wanted in tree.paths:
        slots = wanted.path.slots
        first, second = _read(device.target_v1, slots), _read(device.target_v2, slots)
        if second != wanted.second or first != wanted.first:
            due = len(slots) - 1 if _last_may_be_pending(step) else len(slots)
            due = min(due, next((place for place, slot in enumerate(slots) if slot in promised), due))
            for name, found, cells in (("v1", first, wanted.first), ("v2", second, wanted.second)):
                if not found or found[:due] != cells[:due]:
                    return _wrong_path(wanted.path, name, found, cells)
        finding = HOLDS
    return finding


@oracle(
    "cached-draft-kv-is-true",
    formula="every cached slot: draft cell == v1(following key token)",
    clock=Clock.DEVICE,
    owner=Owner.RADIX_CACHE,
    scope=Scope.RUN,
    needs=TREE | Capability.CONTENT_VIEW | Capability.DEVICE_VIEW | Capability.DRAFT_KV,
    on=(Prefill, Mix, Settle, Idle, Evict),
    source="sglang 0.5.23 mem_cache/radix_cache RadixKey is_bigram; sglang #10846, #16964",
    twin="tree-holds-output",
)
def cached_draft_kv_is_true(step: Step) -> Finding:
    """A draft cell depends on the token after its own, so a hit needs keys that name both."""
    pool, device = step.after.pool, step.after.device
    if pool.cached is None or device is None or device.draft_v1 is None:
        return Verdict.UNKNOWN
    _note_chunk(step)
    if not pool.cached:
        return None
    tree, draft_v1 = _tree(step, pool.cached), device.draft_v1
    if tree.seen_draft is draft_v1:
        return None
    if tree.is_draft_true(draft_v1):
        tree.seen_draft = draft_v1
        return HOLDS if tree.draft else None
    promised = _promised(step)
    for wanted in tree.paths:
        found, due = _read(draft_v1, wanted.path.slots), wanted.due_draft
        due = min(due, next((place for place, slot in enumerate(wanted.path.slots) if slot in promised), due))
        if found[:due] != wanted.shifted[:due] or not found:
            return _wrong_path(wanted.path, "draft", found, wanted.shifted)
    return HOLDS


def _wrong_path(path: CachedPath, which: str, found: list[int], wanted: list[int]) -> Clash:
    if not found:
        return Clash(
            f"slots {path.slots} exist", f"the tree caches the slots {path.slots}", "the KV pool has no such slot"
        )
    place = next(p for p, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)
    return Clash(
        f"{which} of slot {path.slots[place]} = {found[place]} == {wanted[place]}",
        f"the tree caches slot {path.slots[place]} for token {path.tokens[place]} at position {place}",
        f"the slot holds {found[place]} where that token after its prefix gives {wanted[place]}",
    )
