"""Records who writes the owned fields of a request, by swapping in recording subclasses from outside.

The subclasses are made once per process: a class per request would cost more than all of its writes, would empty the
interpreter's caches of where attributes lie, and could only be freed by the garbage collector.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any

from specfuzz.core.snapshot import WriteRecord
from specfuzz.reference.req import Req, ReqKvInfo

#: The fields with declared writers, by the object that holds them; see oracles.owners.
OWNED_KV = frozenset({"kv_committed_len", "kv_allocated_len", "cache_protected_len"})
OWNED_REQ = frozenset({"decode_batch_idx", "extend_batch_idx", "spec_verify_ct", "spec_num_correct_drafts"})

_write = object.__setattr__


class RecordedKvInfo(ReqKvInfo):
    """The ledger of one request, with a list that takes its writes (also those to the request itself)."""

    __slots__ = ("records", "rid")
    records: list[WriteRecord]
    rid: str

    def __init__(self, rid: str, records: list[WriteRecord]) -> None:
        """rid: of the request. records: shared by all requests of one engine."""
        _write(self, "rid", rid)
        _write(self, "records", records)
        super().__init__()

    def __setattr__(self, name: str, value: Any) -> None:
        """Write, and note the writer if an owned field changes."""
        if name in OWNED_KV and (old := getattr(self, name, 0)) != value:
            writer = sys._getframe(1).f_code.co_name
            self.records.append(WriteRecord(field=name, rid=self.rid, writer=writer, old=old, new=value))
        _write(self, name, value)


@lru_cache(maxsize=8)  # a mutant may bring a subclass of its own with every engine
def _recorded(req_type: type[Req]) -> type[Req]:
    def set_and_note(req: Any, name: str, value: Any) -> None:
        if name in OWNED_REQ and (old := getattr(req, name, 0)) != value:
            writer = sys._getframe(1).f_code.co_name
            req.kv.records.append(WriteRecord(field=name, rid=req.rid, writer=writer, old=old, new=value))
        _write(req, name, value)

    return type(req_type.__name__, (req_type,), {"__slots__": (), "__setattr__": set_and_note})


class WriteRecorder:
    """Notes field, rid, writing function, old and new value of every write that changes an owned field."""

    def __init__(self) -> None:
        self.records: list[WriteRecord] = []

    def watch(self, req: Req) -> None:
        """Record the writes to this request from now on."""
        req.kv = RecordedKvInfo(req.rid, self.records)
        req.__class__ = _recorded(type(req))  # type: ignore[arg-type]

    def take(self) -> tuple[WriteRecord, ...]:
        """The writes since the last call."""
        taken, self.records[:] = tuple(self.records), []
        return taken
