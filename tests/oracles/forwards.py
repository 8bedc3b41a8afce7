"""Tiny forwards for the oracle tables: launched, entered and executed, innocent unless a row makes them guilty."""

from __future__ import annotations

from typing import Any

from specfuzz.core.asked import Launched
from specfuzz.core.language import unembed
from specfuzz.core.snapshot import LaunchView, ReqView, WorkerEntry, WorkerExit
from tests.oracles.build import text


def launch(*reqs: ReqView, number: int = 2, mode: str = "DECODE", **changes: Any) -> LaunchView:
    """A forward of the requests, enqueued and not executed; innocent in every respect."""
    fields: dict[str, Any] = {
        "number": number, "mode": mode, "rids": tuple(one.rid for one in reqs),
        "req_pool_indices": tuple(one.req_pool_idx or 0 for one in reqs),
        "committed": tuple(one.kv_committed_len for one in reqs),
        "allocated": tuple(one.kv_allocated_len for one in reqs),
        "rebound": ("spec_info", "input_ids"), "sampling_copied": True, "mode_after": mode, "held_changed": (),
        "publishes": 1,
    }  # fmt: skip
    return LaunchView(**(fields | changes))


def entry(*reqs: ReqView, lead: int = 0, width: int = 4, **changes: Any) -> WorkerEntry:
    """What a verify reads that starts `lead` tokens past the host's committed length."""
    starts = [one.kv_committed_len + lead for one in reqs]
    lines = [text(one.rid) for one in reqs]
    hidden = tuple(line.hidden(start) for line, start in zip(lines, starts, strict=True))
    bonus = tuple(line.token(start) for line, start in zip(lines, starts, strict=True))
    fields: dict[str, Any] = {
        "seq_lens": tuple(starts), "input_tokens": tuple((token,) for token in bonus), "prefix_lens": tuple(starts),
        "window": tuple(one.slots[start : start + width] for one, start in zip(reqs, starts, strict=True)),
        "bonus": bonus,
        "hidden": hidden, "topk_index": tuple(map(unembed, hidden)),
    }  # fmt: skip
    return WorkerEntry(**(fields | changes))


def exit_(*reqs: ReqView, lead: int = 0, accept: int = 2, **changes: Any) -> WorkerExit:
    """What a verify decides that starts `lead` past the committed length and accepts `accept` tokens per row."""
    starts = [one.kv_committed_len + lead for one in reqs]
    ends = tuple(start + accept for start in starts)
    fields: dict[str, Any] = {
        "accept_lens": (accept,) * len(reqs), "new_seq_lens": ends, "published": ends,
        "next_tokens": tuple(
            tuple(text(one.rid).tokens[start + 1 : start + accept + 1]) for one, start in zip(reqs, starts, strict=True)
        ),
    }  # fmt: skip
    return WorkerExit(**(fields | changes))


def executed(*reqs: ReqView, lead: int = 0, accept: int = 2, **changes: Any) -> LaunchView:
    """A verify that ran to its end in this event."""
    fields: dict[str, Any] = {
        "entry": entry(*reqs, lead=lead), "exit": exit_(*reqs, lead=lead, accept=accept), "entry_now": True,
        "exit_now": True, "published": True,
    }  # fmt: skip
    return launch(*reqs, **(fields | changes))


def asked(
    *rids: str, number: int = 2, mode: str = "DECODE", accept: int = 2, extended: tuple[str, ...] = ()
) -> Launched:
    """The same forward as it was asked for."""
    return Launched(number, mode, rids, (accept,) * len(rids), (1,) * len(rids), extended)
