"""Records who writes the owned fields of a request, by swapping in recording subclasses from outside."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from specfuzz.core.snapshot import WriteRecord
from specfuzz.reference.req import Req, ReqKvInfo

#: The fields with declared writers, by the object that holds them; see oracles.owners.
OWNED_KV = frozenset({"kv_committed_len", "kv_allocated_len", "cache_protected_len"})
OWNED_REQ = frozenset({"decode_batch_idx", "extend_batch_idx", "spec_verify_ct", "spec_num_correct_drafts"})


class WriteRecorder:
    """Notes field, rid, writing function, old and new value of every write that changes an owned field."""

    def __init__(self) -> None:
        self.records: list[WriteRecord] = []
        self._types: dict[type[Req], type[Req]] = {}

    def watch(self, req: Req) -> None:
        """Record the writes to this request from now on."""
        req_type = type(req)
        if req_type not in self._types:  # a mutant may have brought a subclass of its own
            self._types[req_type] = type(
                req_type.__name__, (req_type,), {"__slots__": (), "__setattr__": self._setter(OWNED_REQ, _rid_of_req)}
            )
        rid = req.rid
        kv_type = type("ReqKvInfo", (ReqKvInfo,), {"__setattr__": self._setter(OWNED_KV, lambda _kv: rid)})
        req.kv = kv_type()
        req.__class__ = self._types[req_type]

    def take(self) -> tuple[WriteRecord, ...]:
        """The writes since the last call."""
        taken, self.records[:] = tuple(self.records), []
        return taken

    def _setter(self, owned: frozenset[str], rid_of: Callable[[Any], str]) -> Callable[[Any, str, Any], None]:
        records, write = self.records, object.__setattr__

        def set_and_note(holder: Any, name: str, value: Any) -> None:
            if name not in owned:
                write(holder, name, value)
                return
            old = getattr(holder, name, 0)
            write(holder, name, value)
            if old != value:
                writer = sys._getframe(1).f_code.co_name
                records.append(WriteRecord(field=name, rid=rid_of(holder), writer=writer, old=old, new=value))

        return set_and_note


def _rid_of_req(req: Req) -> str:
    return req.rid
