"""The typed messages between specfuzz and an engine in its own process, and their framing.

A frame is four bytes of length (big-endian) and one msgpack body. A snapshot travels as a difference: parts that did
not change since the last one are left out, so that a step costs little and the receiver can keep sharing records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

import msgspec

from specfuzz.core import event as ev
from specfuzz.core.config import EngineConfig
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import (
    BatchView,
    DeviceView,
    LaunchView,
    MetricsView,
    PoolView,
    RelayView,
    ReqView,
    Snapshot,
    WriteRecord,
)

#: Largest frame that either side accepts; a 64-token-page pool of 128 pages needs about a quarter of a megabyte.
MAX_FRAME = 64 << 20

#: Changes whenever a message does; both sides compare it before anything else.
PROTOCOL = 1


class Load(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Import the engine. engine_path: a checkout that goes before the installed one, or None. memory: bytes or None."""

    engine_path: str | None = None
    memory_limit: int | None = None


class Reset(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Start a fresh engine with this configuration.

    mutant: planted bug that is active in it, or None. step_limit: seconds after which the process ends itself inside of
    a step, for the case that nobody is left to end it.
    """

    config: EngineConfig
    mutant: str | None = None
    step_limit: float = 60.0


class Apply(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """Run one event: its verb and its fields."""

    verb: str
    fields: dict[str, Any]


class Loaded(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """The engine is imported and every name is where it should be."""

    protocol: int
    version: str
    path: str
    recording: bool


class Failed(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """What was asked for could not be done. kind: "missing" (environment), "config" or "engine" (it raised)."""

    kind: str
    message: str


class Difference(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """A snapshot against the one before; None means "unchanged" where there is a default."""

    reqs: dict[str, ReqView]
    waiting: tuple[str, ...]
    running: tuple[str, ...]
    chunked: tuple[str, ...] | None
    prepared: tuple[str, ...] | None
    queue: tuple[int, ...]
    writes: tuple[WriteRecord, ...] | None
    on_idle: bool
    batches: tuple[BatchView, ...] | None = None
    launches: tuple[LaunchView, ...] | None = None
    pool: PoolView | None = None
    relay: RelayView | None = None
    device: DeviceView | None = None
    metrics: MetricsView | None = None


class Stepped(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    """The answer to Reset (receipt None) and Apply. seconds: time spent inside the engine and the observer."""

    difference: Difference
    receipt: Receipt | None = None
    engine_seconds: float = 0.0
    observer_seconds: float = 0.0


Request = Load | Reset | Apply
Reply = Loaded | Failed | Stepped

_empty: tuple[()] = ()

_ENCODER = msgspec.msgpack.Encoder()
REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
REPLIES: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def send(stream: BinaryIO, message: Request | Reply) -> None:
    """Write one frame and flush it."""
    body = _ENCODER.encode(message)
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()


def receive(stream: BinaryIO) -> bytes | None:
    """Read one frame's body; None when the other side has closed the pipe. Raises EOFError inside of a frame."""
    head = stream.read(4)
    if not head:
        return None
    length = int.from_bytes(head, "big")
    if len(head) < 4 or length > MAX_FRAME:
        raise EOFError(f"a frame of {length} bytes is beyond the limit of {MAX_FRAME}")
    body = stream.read(length)
    if len(body) < length:
        raise EOFError(f"a frame ended after {len(body)} of {length} bytes")
    return body


def pack(event: ev.Event) -> Apply:
    """An event as a message."""
    names = type(event).__dataclass_fields__
    return Apply(verb=ev.VERBS[type(event)], fields={name: getattr(event, name) for name in names})


def unpack(message: Apply) -> ev.Event:
    """The event of a message; raises msgspec.ValidationError if its fields are wrong."""
    return msgspec.convert(message.fields, ev.EVENT_TYPES[message.verb])


def difference(before: Snapshot | None, after: Snapshot) -> Difference:
    """What `after` has that `before` (the snapshot sent last) has not."""
    known: Mapping[str, ReqView] = {} if before is None else before.reqs
    return Difference(
        reqs={rid: view for rid, view in after.reqs.items() if known.get(rid) is not view},
        waiting=after.waiting,
        running=after.running,
        chunked=after.chunked,
        prepared=after.prepared,
        queue=after.queue,
        writes=after.writes,
        on_idle=after.on_idle,
        batches=after.batches if before is None or before.batches is not after.batches else None,
        launches=after.launches if before is None or before.launches is not after.launches else None,
        pool=after.pool if before is None or before.pool is not after.pool else None,
        relay=after.relay if before is None or before.relay is not after.relay else None,
        device=after.device if before is None or before.device is not after.device else None,
        metrics=after.metrics if before is None or before.metrics is not after.metrics else None,
    )


def join(before: Snapshot | None, change: Difference) -> Snapshot:
    """The snapshot that `change` was made from, sharing every unchanged record with `before`."""
    pool = change.pool if change.pool is not None else before.pool if before is not None else None
    assert pool is not None, "the first difference carries everything"
    return Snapshot(
        reqs={**({} if before is None else before.reqs), **change.reqs},
        pool=pool,
        waiting=change.waiting,
        running=change.running,
        chunked=change.chunked,
        prepared=change.prepared,
        queue=change.queue,
        batches=change.batches if change.batches is not None else _empty if before is None else before.batches,
        launches=change.launches if change.launches is not None else _empty if before is None else before.launches,
        relay=change.relay if change.relay is not None or before is None else before.relay,
        device=change.device if change.device is not None or before is None else before.device,
        writes=change.writes,
        races=None,
        on_idle=change.on_idle,
        metrics=change.metrics if change.metrics is not None or before is None else before.metrics,
    )
