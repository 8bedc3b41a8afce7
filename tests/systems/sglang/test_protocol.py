"""Frames and messages between specfuzz and an engine process."""

from __future__ import annotations

import io

import msgspec
import pytest

from specfuzz.core import event as ev
from specfuzz.core.config import EngineConfig
from specfuzz.core.snapshot import PoolView, ReqView, Snapshot
from specfuzz.systems.sglang import protocol

EVENTS = [
    ev.Submit("a", 9, 14, 3),
    ev.Prefill("a"),
    ev.Prepare(),
    ev.Verify((("a", 3), ("b", 1))),
    ev.Publish(),
    ev.Advance("forward", 2),
    ev.Settle(),
    ev.Finish("a", 4),
    ev.Abort("a"),
    ev.Retract("b"),
    ev.Evict(3),
    ev.Idle(),
]


def pool() -> PoolView:
    return PoolView(
        page_size=1,
        num_pages=4,
        max_reqs=2,
        free_pages=(1, 2, 3, 4),
        free_rows=(1, 2),
        available=4,
        evictable=0,
        protected=0,
    )


def snapshot(**fields: object) -> Snapshot:
    parts: dict[str, object] = {"reqs": {}, "pool": pool(), **fields}
    return Snapshot(**parts)  # type: ignore[arg-type]


def carried(message: protocol.Request | protocol.Reply) -> bytes:
    stream = io.BytesIO()
    protocol.send(stream, message)
    stream.seek(0)
    body = protocol.receive(stream)
    assert body is not None
    assert protocol.receive(stream) is None
    return body


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_arrives_as_it_was_sent(event: ev.Event) -> None:
    message = protocol.REQUESTS.decode(carried(protocol.pack(event)))
    assert isinstance(message, protocol.Apply)
    assert protocol.unpack(message) == event


def test_a_configuration_arrives_as_it_was_sent() -> None:
    config = EngineConfig(algorithm="NONE", page_size=16, overlap=False)
    message = protocol.REQUESTS.decode(carried(protocol.Reset(config=config, mutant="reserve-1x")))
    assert message == protocol.Reset(config=config, mutant="reserve-1x")


def test_an_event_with_foreign_fields_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        protocol.unpack(protocol.Apply(verb="prefill", fields={"rid": 3}))


def test_a_truncated_frame_is_an_end_of_file() -> None:
    stream = io.BytesIO()
    protocol.send(stream, protocol.pack(ev.Settle()))
    with pytest.raises(EOFError):
        protocol.receive(io.BytesIO(stream.getvalue()[:-1]))


def test_a_frame_of_absurd_length_is_refused_before_it_is_read() -> None:
    with pytest.raises(EOFError):
        protocol.receive(io.BytesIO(b"\xff\xff\xff\xff"))


def test_a_joined_snapshot_shares_what_did_not_change() -> None:
    first = ReqView(rid="a", prompt_len=3, max_new=4)
    before = snapshot(reqs={"a": first}, waiting=("a",))
    second = ReqView(rid="b", prompt_len=5, max_new=1)
    after = snapshot(reqs={"a": first, "b": second}, pool=before.pool, batches=before.batches, launches=before.launches)
    change = protocol.difference(before, after)
    assert change.reqs == {"b": second}
    assert change.pool is None
    joined = protocol.join(before, change)
    assert joined == after
    assert joined.reqs["a"] is first
    assert joined.pool is before.pool


def test_the_first_difference_carries_everything() -> None:
    state = snapshot(reqs={"a": ReqView(rid="a", prompt_len=3, max_new=4)}, waiting=("a",), writes=(), on_idle=True)
    body = carried(protocol.Stepped(difference=protocol.difference(None, state)))
    reply = protocol.REPLIES.decode(body)
    assert isinstance(reply, protocol.Stepped)
    assert protocol.join(None, reply.difference) == state
