"""Which violation implies which: a report names the root first and the consequences after it.

An edge says that the left rule, once broken, tends to break the right ones in the same step, and that the left one says
more about who must be fixed. Edges follow a round: order -> batch -> relay -> worker -> content -> text -> ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from specfuzz.core.verdict import Violation

_TEXT = ("decided-tokens-are-the-text", "output-is-plain-decoding")
_CONTENT = (
    "accepted-path-leads-the-window", "target-kv-is-true", "draft-kv-is-true", "cached-kv-is-true",
    "cached-draft-kv-is-true",
)  # fmt: skip
_RELAYED = ("relay-holds-the-frontier", "relay-holds-the-pending-token", "relay-holds-the-draft-state")
_LEDGER = ("steady-bonus", "plain-claims-are-counted", "commit-equals-emitted", "ledger-in-order")
_POOL = (
    "owned-pages-are-not-free", "page-has-one-owner", "padding-is-never-owned", "tree-and-rows-are-disjoint",
    "pages-are-conserved", "sizes-add-up", "idle-pool-is-whole",
)  # fmt: skip
_PRESSURE = (
    "retraction-needs-pressure", "refusal-needs-pressure", "admission-leaves-room", "skip-waits-for-a-finish",
    "eviction-is-needed",
)  # fmt: skip
_FINISH = ("finish-reason-is-first", "nothing-emitted-past-the-end", "finish-releases")

IMPLICATIONS: dict[str, tuple[str, ...]] = {
    # order: a race explains every wrong value
    "tensors-outlive-their-forward": ("device-memory-is-ordered", "worker-starts-at-the-frontier", *_TEXT),
    "relay-reads-are-fenced": ("worker-starts-at-the-frontier", "worker-feeds-the-pending-token", *_TEXT),
    "row-writes-wait-for-readers": (
        "window-follows-the-row", "move-stays-in-the-window", "device-memory-is-ordered", *_CONTENT,
    ),
    "results-are-waited-for": (
        "tensors-outlive-their-forward", "settle-appends-the-run", "commit-equals-emitted", *_RELAYED, *_CONTENT,
        *_TEXT,
    ),
    "device-memory-is-ordered": (*_CONTENT, *_TEXT),
    # isolation and batches
    "bindings-are-restored": ("rows-are-unique", "batch-arrays-agree", "mirror-equals-device"),
    "mode-is-restored": ("bindings-are-restored", "rows-are-unique", "batch-arrays-agree"),
    "no-write-through-the-isolation": ("worker-starts-at-the-frontier", "mirror-equals-device", *_TEXT),
    "clocks-tick-once": ("penalties-count-once", "forward-sees-its-penalties"),
    "sampling-info-is-copied": ("forward-sees-its-penalties",),
    "rows-are-unique": (
        "penalties-count-once", "forward-sees-its-penalties", "rows-belong-to-their-requests", "batch-arrays-agree",
    ),
    "penalties-count-once": ("forward-sees-its-penalties",),
    "draft-input-is-committed": ("worker-starts-at-the-frontier", "draft-state-is-right", "future-indices-are-rows"),
    "no-dead-row-launched": ("rows-belong-to-their-requests", "dead-rows-are-inert"),
    "batch-arrays-agree": ("rows-belong-to-their-requests", "future-indices-are-rows"),
    "future-indices-are-rows": ("worker-starts-at-the-frontier", "worker-feeds-the-pending-token"),
    "queue-depth": ("device-lead-is-one-round", "window-inside-the-reserve"),
    # reserve
    "reserve-covers-two-rounds": (
        "branches-inside-the-reserve", "window-inside-the-reserve", "window-follows-the-row",
    ),
    "branches-inside-the-reserve": ("draft-kv-is-true", "right-draft-is-accepted"),
    "window-inside-the-reserve": ("window-follows-the-row", "writes-start-past-the-tree", *_CONTENT, *_TEXT),
    "reserve-is-not-hoarded": ("reserve-ends-on-a-page", "retraction-needs-pressure", "ledger-in-order"),
    "reserve-ends-on-a-page": ("pages-are-conserved", "sizes-add-up"),
    "allocated-never-shrinks": ("ledger-in-order", *_POOL),
    # relay
    "publishes-once": ("publish-equals-result", "worker-starts-at-the-frontier", *_RELAYED),
    "publish-equals-result": ("frontier-only-advances", "worker-starts-at-the-frontier", "relay-holds-the-frontier"),
    "relay-holds-the-frontier": ("worker-starts-at-the-frontier",),
    "relay-holds-the-pending-token": ("worker-feeds-the-pending-token",),
    "relay-holds-the-draft-state": ("draft-extras-pair-with-rows", "draft-state-is-right"),
    "worker-starts-at-the-frontier": (
        "device-lead-is-one-round", "window-follows-the-row", "frontier-only-advances", "draft-extras-pair-with-rows",
        "draft-state-is-right", "right-draft-is-accepted", *_CONTENT, *_TEXT,
    ),
    "worker-feeds-the-pending-token": ("draft-state-is-right", "right-draft-is-accepted", *_CONTENT, *_TEXT),
    "draft-extras-pair-with-rows": ("draft-state-is-right",),
    # worker
    "draft-kv-is-true": ("draft-state-is-right", "relay-holds-the-draft-state", "cached-draft-kv-is-true"),
    "draft-state-is-right": ("right-draft-is-accepted",),
    "frontier-steps-by-accept": ("publish-equals-result", "frontier-only-advances", *_RELAYED, *_CONTENT),
    "accept-index-is-a-path": (
        "accept-in-range", "move-stays-in-the-window", "accepted-path-leads-the-window", "bonus-ends-the-run", *_TEXT,
    ),
    "move-stays-in-the-window": ("accepted-path-leads-the-window",),
    "accepted-path-leads-the-window": ("target-kv-is-true", *_TEXT),
    "bonus-ends-the-run": ("relay-holds-the-pending-token", "worker-feeds-the-pending-token"),
    "accept-in-range": ("frontier-steps-by-accept", "settle-appends-the-run", "histogram-adds-up"),
    "worker-keeps-off-the-ledger": (
        "extend-commits-its-window", "clocks-tick-once", "verify-count-is-settled-rounds", *_LEDGER,
    ),
    # content
    "device-rows-are-host-rows": ("window-follows-the-row", *_CONTENT, *_TEXT),
    "window-follows-the-row": (*_CONTENT, *_TEXT),
    "writes-start-past-the-tree": ("cached-kv-is-true", "target-kv-is-true", *_TEXT),
    "cached-kv-is-true": ("target-kv-is-true", *_TEXT),
    "cached-draft-kv-is-true": ("right-draft-is-accepted",),
    "cached-within-owned": ("cached-kv-is-true", "cached-draft-kv-is-true"),
    "target-kv-is-true": _TEXT,
    "decided-tokens-are-the-text": ("output-is-plain-decoding", "right-draft-is-accepted"),
    # host
    "retraction-resets": ("worker-keeps-off-the-ledger", "ledger-in-order", "rows-are-conserved", *_POOL),
    "dead-rows-are-inert": ("commit-equals-emitted", "settle-appends-the-run", *_LEDGER),
    "settle-takes-the-oldest": ("settle-appends-the-run", "output-is-plain-decoding"),
    "settle-appends-the-run": ("commit-equals-emitted", "output-is-plain-decoding", *_FINISH),
    "prepare-never-commits": ("reserve-covers-two-rounds", "worker-keeps-off-the-ledger", *_LEDGER),
    "extend-commits-its-window": _LEDGER,
    "commit-equals-emitted": ("steady-bonus", "plain-claims-are-counted", "ledger-in-order"),
    "finish-reason-is-first": ("nothing-emitted-past-the-end", "cached-within-owned"),
    "finish-releases": ("settled-text-is-cached", "rows-are-conserved", "protected-size-is-the-locked-paths", *_POOL),
    "abort-waits-for-a-result": ("finish-releases", "no-request-is-left-behind", *_POOL),
    # grammar
    "decided-tokens-are-allowed": (
        *_TEXT, "right-draft-is-accepted", "settle-appends-the-run", "verify-count-is-settled-rounds", *_FINISH,
    ),
    "grammar-accepts-what-is-emitted": (
        "grammar-ends-with-the-stop", "decided-tokens-are-allowed", "settle-appends-the-run",
    ),
    "grammar-ends-with-the-stop": ("decided-tokens-are-allowed", "settle-appends-the-run"),
    "grammar-cuts-the-run": (
        "grammar-accepts-what-is-emitted", "settle-appends-the-run", "verify-count-is-settled-rounds",
    ),
    # chunks and mixed steps
    "chunked-request-is-remembered": (
        "chunked-request-stays-outside", "chunked-request-keeps-its-row", "nobody-is-lost",
    ),
    "chunks-in-flight-are-counted": ("settle-appends-the-run", "output-is-plain-decoding", *_FINISH),
    "chunked-request-stays-outside": ("clocks-tick-once", "reserve-covers-two-rounds", *_LEDGER, *_CONTENT, *_TEXT),
    "chunked-request-keeps-its-row": ("rows-are-conserved", "window-follows-the-row", *_CONTENT, *_TEXT),
    "aborted-chunk-is-dropped": ("finish-releases", "rows-are-conserved", *_POOL),
    # pools
    "free-list-is-distinct": _POOL,
    "owned-pages-are-not-free": ("pages-are-conserved", "idle-pool-is-whole"),
    "page-has-one-owner": ("pages-are-conserved", *_CONTENT, *_TEXT),
    "tree-and-rows-are-disjoint": ("pages-are-conserved", "idle-pool-is-whole"),
    "protected-prefix-is-cached": ("pages-are-conserved", "protected-size-is-the-locked-paths"),
    "pages-are-conserved": ("idle-pool-is-whole",),
    "sizes-add-up": (*_PRESSURE, "idle-pool-is-whole"),
    "retracted-until-admitted": ("dead-rows-are-inert",),
    "settled-text-is-cached": ("prefill-hits-what-is-cached",),
    "counts-move-where-they-are-earned": ("histogram-adds-up", "verify-count-is-settled-rounds"),
    "retraction-needs-pressure": ("retraction-takes-the-youngest", "retraction-leaves-a-row"),
    "protected-size-is-the-locked-paths": ("idle-pool-is-whole",),
}  # fmt: skip


@cache
def implied_by(name: str) -> frozenset[str]:
    """Every rule that the named one implies, directly or through others; never itself."""
    found: set[str] = set()
    open_names = [name]
    while open_names:
        for implied in IMPLICATIONS.get(open_names.pop(), ()):
            if implied not in found:
                found.add(implied)
                open_names.append(implied)
    return frozenset(found - {name})


def roots_first(violations: Sequence[Violation]) -> list[Violation]:
    """The same violations, those that no other one implies in front; otherwise in the given order.

    Two rules that imply each other keep their order.
    """
    names = {violation.oracle for violation in violations}

    def is_consequence(violation: Violation) -> bool:
        return any(
            violation.oracle in implied_by(other) and other not in implied_by(violation.oracle)
            for other in names
            if other != violation.oracle
        )

    return sorted(violations, key=is_consequence)
