"""Request ids on both sides of the adapter.

The engine's abort matches ids by prefix; a terminator keeps `a` from aborting `ab`.
"""

from __future__ import annotations

_END = "/"


def engine_rid(rid: str) -> str:
    """The id that the engine knows a request by."""
    return rid + _END


def event_rid(rid: str) -> str:
    """The id that the trace knows an engine request by."""
    return rid.removesuffix(_END)
