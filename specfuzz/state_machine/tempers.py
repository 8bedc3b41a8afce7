"""Swarm: each example has a temper, decoded from one draw, that favours some families of rules and mutes others."""

from __future__ import annotations

from dataclasses import dataclass

#: Weight of each kind of event before tempers and steering; only ratios between kinds that are legal together matter.
BASE_WEIGHTS: dict[str, int] = {
    "verify": 96,
    "prefill": 32,
    "mix": 24,
    "prepare": 64,
    "settle": 32,
    "submit": 2,
    "publish": 7,
    "advance": 7,
    "finish": 5,
    "abort": 2,
    "retract": 3,
    "evict": 3,
    "idle": 2,
}

#: Families that are favoured or muted together. The loop (submit, prefill, prepare, verify, settle) is never muted:
#: without it nothing else has anything to meet.
FAMILIES: tuple[tuple[str, ...], ...] = (
    ("publish", "advance"),
    ("finish",),
    ("abort",),
    ("retract",),
    ("evict",),
    ("idle",),
)

#: Factors of a family by two bits of the draw, for each strength of the swarm.
GENTLE = (1, 1, 2, 0)
STRONG = (1, 0, 4, 0)

#: How the result queue is drained: weight of settle where a launch is possible as well, by two bits.
SETTLE_FACTORS = (4, 4, 1, 8)  # in quarters


#: Where an example that closes does so: most of its 40 events are over, enough are left to drain.
CLOSING = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Temper:
    """One example's bent. weights: by kind, 0 = muted. rows: how many live requests it aims at.

    brief: short outputs, so that requests end and start often. lengthy: the longest prompts and one request at a time,
    so that a scarce pool can't hold it to its end. closing: from this event on no new work is taken until
    everything has left, as when a server drains; None = never.
    """

    weights: dict[str, int]
    rows: int
    brief: bool
    lengthy: bool = False
    closing: int | None = None


def temper_of(bits: int, most_rows: int, factors: tuple[int, ...] = GENTLE, *, scarce: bool = False) -> Temper:
    """The temper that an integer of at least 23 bits stands for; 0 is the plain one.

    most_rows: rows that the engine has. factors: of a family, by two bits of the draw. scarce: the pool can't hold a
    long request to its end, so that some examples ask for such.
    """
    weights = dict(BASE_WEIGHTS)
    for family in FAMILIES:
        factor = factors[bits & 3]
        bits >>= 2
        for kind in family:
            weights[kind] *= factor
    weights["settle"] = weights["settle"] * SETTLE_FACTORS[bits & 3] // 4
    bits >>= 2
    rows = min((3, 2, 4, 3)[bits & 3], most_rows)
    bits >>= 2
    closing = (None, None, CLOSING, None)[bits >> 3 & 3]
    lengthy = scarce and bits >> 5 & 3 == 3
    if lengthy:
        rows = 1
    return Temper(weights=weights, rows=rows, brief=bits & 7 == 7, lengthy=lengthy, closing=closing)
