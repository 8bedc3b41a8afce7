"""The wire records of a trace file: one strict msgspec Struct per line kind, event and receipt, and their core twins.

Every field is bounded, so that a hostile file can't ask an engine for the moon; unknown fields and wrong types are
refused by msgspec while it parses. `tests/trace` checks that the twins have the same fields and defaults.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import EVENT_TYPES, VERBS, Event
from specfuzz.core.receipt import Receipt

#: First key of every trace file.
FORMAT = "specfuzz-trace"

# \Z, because $ also matches before a final newline. The same names as in the one-line notation.
Rid = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_.\-]{0,63}\Z")]
# Parts of an identity become file names in the corpus, so nothing in them may lead out of it.
Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_\-]{0,79}\Z")]
Stream = Annotated[str, Meta(pattern=r"^(schedule|forward|copy|d2h)\Z")]
# The notation's largest number.
Num = Annotated[int, Meta(ge=0, le=1_000_000)]
# What a broken engine reports may be negative; it is only ever compared and shown.
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Text = Annotated[str, Meta(max_length=10_000)]


class _Event(Struct, frozen=True, tag=True, tag_field="do", forbid_unknown_fields=True, omit_defaults=True):
    pass


class _Submit(_Event, frozen=True, tag="submit"):
    rid: Rid
    prompt_len: Num
    max_new: Num
    shared_len: Num = 0
    grammar: Num = 0


class _Prefill(_Event, frozen=True, tag="prefill"):
    rid: Rid
    n: Num = 0


class _Mix(_Event, frozen=True, tag="mix"):
    rid: Rid
    n: Num = 0


class _Prepare(_Event, frozen=True, tag="prepare"):
    pass


class _Verify(_Event, frozen=True, tag="verify"):
    accept: tuple[tuple[Rid, Num], ...] = ()


class _Publish(_Event, frozen=True, tag="publish"):
    pass


class _Advance(_Event, frozen=True, tag="advance"):
    stream: Stream
    count: Num = 1


class _Settle(_Event, frozen=True, tag="settle"):
    pass


class _Finish(_Event, frozen=True, tag="finish"):
    rid: Rid
    at: Num


class _Abort(_Event, frozen=True, tag="abort"):
    rid: Rid


class _Retract(_Event, frozen=True, tag="retract"):
    rid: Rid


class _Evict(_Event, frozen=True, tag="evict"):
    n: Num


class _Idle(_Event, frozen=True, tag="idle"):
    pass


WireEvent = (
    _Submit | _Prefill | _Mix | _Prepare | _Verify | _Publish | _Advance | _Settle | _Finish | _Abort | _Retract
    | _Evict | _Idle
)  # fmt: skip


class WireReceipt(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The twin of `core.receipt.Receipt`."""

    refused: str | None = None  # an engine's own words, however long
    launch: Int64 | None = None
    mode: Text = ""
    rows: tuple[Rid, ...] = ()
    admitted: tuple[tuple[Rid, Int64, Int64], ...] = ()
    retracted: tuple[Rid, ...] = ()
    dropped: tuple[Rid, ...] = ()
    skipped: bool = False
    settled: Int64 | None = None
    emitted: tuple[tuple[Rid, tuple[Int64, ...]], ...] = ()
    finished: tuple[tuple[Rid, Text, Int64 | None], ...] = ()
    evicted: Int64 = 0
    executed: Int64 = 0


class Line(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One step of the trace."""

    event: WireEvent
    receipt: WireReceipt = WireReceipt()


class Marker(Struct, frozen=True):
    """What every version of the format begins with; other fields are for the version to judge."""

    format: str
    version: int


class WireIdentity(Struct, frozen=True, forbid_unknown_fields=True):
    """The twin of `core.verdict.Identity`."""

    oracle: Name
    owner: Name
    phase: Name


# From the dataclass, so that a new field with a default (old traces mean the default) needs no second list.
WireConfig: Any = msgspec.defstruct(
    "WireConfig",
    [
        (field.name, Num if type(field.default) is int else type(field.default), field.default)
        for field in fields(EngineConfig)
    ],
    frozen=True,
    forbid_unknown_fields=True,
)


class Header(Struct, frozen=True, forbid_unknown_fields=True):
    """First line of a trace file."""

    format: str
    version: int
    system: Annotated[str, Meta(min_length=1, max_length=200)]
    config: WireConfig
    engine_version: Annotated[str, Meta(max_length=200)] = ""
    expected: WireIdentity | None = None
    seed: Int64 | None = None
    note: Text = ""


class Footer(Struct, frozen=True, forbid_unknown_fields=True):
    """Last line of a trace file; without it the file is truncated."""

    steps: Num


_WIRE_OF: dict[type[Event], type[_Event]] = {
    EVENT_TYPES[str(wire.__struct_config__.tag)]: wire for wire in _Event.__subclasses__()
}


def event_to_wire(event: Event) -> Any:
    """The event's wire record."""
    wire = _WIRE_OF[type(event)]
    return wire(*(getattr(event, name) for name in wire.__struct_fields__))


def event_from_wire(wire: Any) -> Event:
    """The event that a decoded wire record stands for."""
    event_type = EVENT_TYPES[str(wire.__struct_config__.tag)]
    return event_type(*(getattr(wire, name) for name in wire.__struct_fields__))


def receipt_to_wire(receipt: Receipt) -> WireReceipt:
    """The receipt's wire record."""
    return WireReceipt(**{name: getattr(receipt, name) for name in WireReceipt.__struct_fields__})


def receipt_from_wire(wire: WireReceipt) -> Receipt:
    """The receipt that a decoded wire record stands for."""
    return Receipt(**{name: getattr(wire, name) for name in WireReceipt.__struct_fields__})


assert set(_WIRE_OF) == set(VERBS), "an event has no wire record"
