"""Who writes the host ledger, seen from outside: recording subclasses of `ReqKvInfo` and `Req`.

The engine's code runs unchanged; only attribute assignment on the instances is observed. An engine whose classes
can't be subclassed reports no writers (`writes` is None, the verdict UNKNOWN) instead of an empty list.
"""

from __future__ import annotations

import sys
from typing import Any

from specfuzz.core.snapshot import WriteRecord
from specfuzz.systems.sglang.versions import Engine

#: Owned fields of `ReqKvInfo` and of `Req` (the iteration clocks and statistics that live outside the KV record).
KV_FIELDS = frozenset({"kv_committed_len", "kv_allocated_len", "cache_protected_len"})
REQ_FIELDS = frozenset({"decode_batch_idx", "extend_batch_idx", "spec_verify_ct", "spec_num_correct_drafts"})


class WriteLog:
    """Records of the current event, and the classes that produce them."""

    def __init__(self, engine: Engine) -> None:
        """Derives the recording classes; `recording` says whether that worked."""
        self.records: list[WriteRecord] = []
        self._kv_class: type | None = None
        self._req_class: type | None = None
        try:
            self._kv_class = _recording(engine.ReqKvInfo, KV_FIELDS, self)
            self._req_class = _recording(engine.Req, REQ_FIELDS, self)
        except TypeError:
            self._kv_class = self._req_class = None

    @property
    def recording(self) -> bool:
        """Whether writers are known."""
        return self._kv_class is not None and self._req_class is not None

    def begin(self) -> None:
        """A new event starts."""
        self.records = []

    def adopt(self, rid: str, req: Any) -> None:
        """Observe a freshly made request from here on."""
        if self._kv_class is None or self._req_class is None:
            return
        try:
            req.__class__ = self._req_class
            req.kv = self._kv_class()
        except TypeError:
            self._kv_class = self._req_class = None
            return
        object.__setattr__(req, "_specfuzz_rid", rid)
        object.__setattr__(req.kv, "_specfuzz_rid", rid)


def _recording(base: type, owned: frozenset[str], log: WriteLog) -> type:
    """A subclass of `base` that records changes of `owned` once an instance has a rid."""
    write: Any = base.__setattr__

    def recorded(self: Any, name: str, value: Any) -> None:
        if name in owned:
            rid = getattr(self, "_specfuzz_rid", None)
            if rid is not None and (old := int(getattr(self, name))) != value:
                log.records.append(WriteRecord(field=name, rid=rid, writer=_writer(), old=old, new=int(value)))
        write(self, name, value)

    slots = {} if "__dict__" in dir(base) else {"__slots__": ("_specfuzz_rid",)}
    body: dict[str, Any] = {**slots, "__module__": base.__module__, "__setattr__": recorded}
    return type(base.__name__, (base,), body)


def _writer() -> str:
    """Name of the engine function that assigned: the caller of `recorded`."""
    return sys._getframe(2).f_code.co_name
