"""What the engine decided by itself while it applied one event.

A receipt is recorded beside its event, judged by oracles and never an input of replay: a replay whose receipt differs
is a divergence.
"""

from __future__ import annotations

from dataclasses import dataclass

from specfuzz.core.records import unguarded


@unguarded
@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One event's outcome in host data. All lengths are tokens; rids are in batch order where a batch exists.

    refused: why the engine declined (nothing changed), or None.
    launch: number of the forward that was launched (counted from 1), or None. mode: EXTEND, DECODE, MIXED or "".
    rows: rids of the batch that was launched or prepared. admitted: (rid, prefix_len, extend_len).
    dropped: rows that left the running batch without retraction. skipped: decode skipped instead of retracting.
    settled: number of the forward whose result was processed, or None; for `idle` the last one.
    emitted: (rid, token ids appended to output_ids). finished: (rid, reason, finished_len) with reason one of
    "stop", "length", "abort"; finished_len is None where the stop has no position.
    evicted: tokens that left the prefix tree because of this event.
    executed: device operations that ran during the event (0 where the engine can't tell).
    """

    refused: str | None = None
    launch: int | None = None
    mode: str = ""
    rows: tuple[str, ...] = ()
    admitted: tuple[tuple[str, int, int], ...] = ()
    retracted: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    skipped: bool = False
    settled: int | None = None
    emitted: tuple[tuple[str, tuple[int, ...]], ...] = ()
    finished: tuple[tuple[str, str, int | None], ...] = ()
    evicted: int = 0
    executed: int = 0


#: The receipt of an event that decided nothing.
NOTHING = Receipt()
