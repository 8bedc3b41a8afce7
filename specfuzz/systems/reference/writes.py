"""Records who writes the owned fields of a KV record, by swapping in a recording subclass from outside."""

from __future__ import annotations

import sys

from specfuzz.core.snapshot import WriteRecord
from specfuzz.reference.req import Req, ReqKvInfo

#: The fields with declared writers; see oracles.owners.
OWNED = frozenset({"kv_committed_len", "kv_allocated_len", "cache_protected_len", "req_pool_idx"})


class RecordingKvInfo(ReqKvInfo):
    """ReqKvInfo that notes the name of the function that writes an owned field to another value."""

    __slots__ = ("_log", "_rid")
    _log: list[WriteRecord]
    _rid: str

    def __setattr__(self, name: str, value: object) -> None:
        """Write, then note (field, rid, writer, old, new)."""
        if name in OWNED:
            old = getattr(self, name, None)
            object.__setattr__(self, name, value)
            if old != value:
                log = getattr(self, "_log", None)
                if log is not None:
                    writer = sys._getframe(1).f_code.co_name
                    log.append(
                        WriteRecord(field=name, rid=self._rid, writer=writer, old=_number(old), new=_number(value))
                    )
        else:
            object.__setattr__(self, name, value)


def record_writes(req: Req, log: list[WriteRecord]) -> None:
    """Replace the request's KV record by a recording one that appends to `log`."""
    kv = RecordingKvInfo()
    object.__setattr__(kv, "_rid", req.rid)
    object.__setattr__(kv, "_log", log)
    req.kv = kv


def _number(value: object) -> int:
    return value if isinstance(value, int) else -1
