"""When memory goes: freed with its last host binding, poisoned if a queued operation may still read it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from specfuzz.gpu import POISON, Device, Race, open_device
from specfuzz.gpu.memory import poison_of
from tests.gpu.kernels import Log, declare, load, nothing, store, zeros


@pytest.fixture
def device() -> Device:
    return open_device("cpu")


def test_a_free_that_nothing_orders_poisons_what_a_queued_operation_reads(device: Device) -> None:
    log, lens = Log(), zeros(device, "seq_lens", rows=2)
    device.stream("forward").launch("verify", load, lens, None, log)
    del lens
    assert device.take_races() == [
        Race(
            kind="use-after-free",
            buffer="seq_lens",
            row=None,
            first="verify",
            first_stream="forward",
            second="free",
            second_stream="schedule",
        )
    ]
    device.drain()
    assert log.seen == [[POISON, POISON]]


def test_a_free_behind_a_queued_wait_of_the_home_stream_only_waits_for_the_operation(device: Device) -> None:
    log, lens = Log(), zeros(device, "seq_lens", rows=2)
    device.stream("forward").launch("verify", load, lens, None, log)
    device.stream("schedule").wait_stream(device.stream("forward"))
    del lens
    device.drain()
    assert (log.seen, device.take_races()) == ([[0, 0]], [])


def test_a_wait_for_an_event_recorded_before_the_operation_does_not_order_the_free(device: Device) -> None:
    lens, forward = zeros(device, "seq_lens"), device.stream("forward")
    too_early = forward.record()
    forward.launch("verify", nothing, lens)
    device.stream("schedule").wait(too_early)
    del lens
    assert [race.kind for race in device.take_races()] == ["use-after-free"]


def test_operations_of_the_home_stream_are_ordered_before_the_free(device: Device) -> None:
    log, lens = Log(), zeros(device, "seq_lens", rows=2, home="forward")
    device.stream("forward").launch("verify", load, lens, None, log)
    del lens
    device.drain()
    assert (log.seen, device.take_races()) == ([[0, 0]], [])


def test_a_host_wait_before_the_free_orders_it(device: Device) -> None:
    lens = zeros(device, "seq_lens")
    device.stream("forward").launch("verify", nothing, lens)
    device.stream("forward").record().synchronize()
    del lens
    assert device.take_races() == []


def test_a_free_after_an_operation_that_ran_by_luck_is_reported_but_not_poisoned(device: Device) -> None:
    log, lens = Log(), zeros(device, "seq_lens", rows=2)
    device.stream("forward").launch("verify", load, lens, None, log)
    device.advance("forward", 1)
    tensor = lens.peek()
    del lens
    assert [(race.kind, race.first) for race in device.take_races()] == [("use-after-free", "verify")]
    assert (log.seen, tensor.tolist()) == ([[0, 0]], [0, 0])


def test_a_buffer_in_a_container_argument_is_not_kept_alive_by_the_queue(device: Device) -> None:
    lens = zeros(device, "seq_lens")
    device.stream("forward").launch("verify", declare, [lens], [(0, "read", None)])
    del lens
    assert [race.kind for race in device.take_races()] == ["use-after-free"]


def test_the_memory_lives_until_the_last_operation_that_names_it_has_run(device: Device) -> None:
    lens = zeros(device, "seq_lens")
    memory = weakref.ref(lens.peek())
    device.stream("forward").launch("verify", nothing, lens)
    device.stream("schedule").wait_stream(device.stream("forward"))
    device.stream("schedule").launch("prepare", nothing, lens)
    del lens
    device.advance("forward", 1)
    assert memory() is not None
    device.drain()
    assert memory() is None


def test_a_second_binding_keeps_the_memory(device: Device) -> None:
    lens = zeros(device, "seq_lens", rows=2)
    shallow_snapshot = {"seq_lens": lens}
    device.stream("forward").launch("verify", store, lens, None, 4)
    del lens
    device.drain()
    assert device.take_races() == []
    assert shallow_snapshot["seq_lens"].peek().tolist() == [4, 4]


def test_without_race_checks_an_unordered_free_still_poisons() -> None:
    device, log = open_device("cpu", check_races=False), Log()
    lens = zeros(device, "seq_lens", rows=1)
    device.stream("forward").launch("verify", load, lens, None, log)
    del lens
    device.drain()
    assert (log.seen, device.take_races()) == ([[POISON]], [])


@pytest.mark.parametrize(
    "name", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "complex64"]
)
def test_every_dtype_has_a_poison_that_fits(name: str) -> None:
    dtype = getattr(torch, name)
    filled = torch.zeros(2, dtype=dtype).fill_(poison_of(dtype))
    if dtype.is_floating_point or dtype.is_complex:
        assert filled.isnan().all()
    else:
        assert filled.tolist() == [poison_of(dtype)] * 2
        assert poison_of(dtype) != 0


def test_buffers_are_numbered_from_one(device: Device) -> None:
    one, two = zeros(device, "same"), zeros(device, "same")
    assert (one.id, two.id, repr(two)) == (1, 2, "Buffer('same', id=2)")


def objects_after(device: Device, rounds: int) -> int:
    relay, forward, schedule = zeros(device, "relay"), device.stream("forward"), device.stream("schedule")
    for _ in range(rounds):
        batch = zeros(device, "batch")
        forward.wait_stream(schedule)
        forward.launch("verify", declare, [relay, batch], [(0, "write", [1, 2]), (1, "read", None)])
        published = forward.record()
        schedule.wait(published)
        schedule.launch("resolve", declare, [relay], [(0, "read", [1, 2])])
        published.synchronize()
    del batch
    device.drain()
    assert device.take_races() == []
    gc.collect()
    return len(gc.get_objects())


def test_nothing_grows_over_many_operations(device: Device) -> None:
    before = objects_after(device, 300)
    # One object kept per operation would be 10 000; the checker's recent accesses come and go by a few hundred.
    assert objects_after(device, 5000) - before < 1000
