"""Order of execution: what runs when on the simulated device, and what a launch takes with it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

from specfuzz.errors import DeviceFault, MissingPart
from specfuzz.gpu import Device, open_device
from tests.gpu.kernels import Log, append, declare, fail, load, nothing, store, zeros


class Pair(NamedTuple):
    left: Any
    right: Any


@pytest.fixture
def device() -> Device:
    return open_device("cpu")


def launch(device: Device, log: Log, stream: str, *names: str) -> None:
    for name in names:
        device.stream(stream).launch(name, append, log, name)


def test_a_launch_only_queues(device: Device) -> None:
    log = Log()
    launch(device, log, "forward", "a", "b")
    assert (log.seen, device.pending(), device.pending("forward"), device.progress) == ([], 2, 2, 0)


def test_records_and_waits_run_nothing_and_are_no_operations(device: Device) -> None:
    log = Log()
    launch(device, log, "forward", "a")
    device.stream("copy").wait(device.stream("forward").record("done"))
    device.stream("d2h").wait_stream(device.stream("copy"))
    assert (log.seen, device.pending()) == ([], 1)


def test_advance_runs_that_many_operations_of_that_stream(device: Device) -> None:
    log = Log()
    launch(device, log, "forward", "a", "b", "c")
    launch(device, log, "copy", "x")
    assert device.advance("forward", 2) == 2
    assert (log.seen, device.progress, device.pending("forward"), device.pending("copy")) == (["a", "b"], 2, 1, 1)


def test_advance_stops_at_an_operation_whose_wait_is_not_over(device: Device) -> None:
    log = Log()
    launch(device, log, "forward", "a")
    launch(device, log, "copy", "free")
    device.stream("copy").wait_stream(device.stream("forward"))
    launch(device, log, "copy", "held")
    assert device.advance("copy", 9) == 1
    assert device.advance("forward", 1) == 1
    assert device.advance("copy", 9) == 1
    assert log.seen == ["free", "a", "held"]


def test_a_wait_binds_only_later_operations_and_only_to_what_was_recorded(device: Device) -> None:
    log = Log()
    forward, copy = device.stream("forward"), device.stream("copy")
    launch(device, log, "forward", "a")
    event = forward.record()
    launch(device, log, "forward", "after the record")
    copy.wait(event)
    launch(device, log, "copy", "x")
    device.advance("forward", 1)
    assert device.advance("copy", 1) == 1
    assert log.seen == ["a", "x"]


def test_a_host_wait_runs_exactly_the_past_of_its_event_oldest_first(device: Device) -> None:
    log = Log()
    forward, copy = device.stream("forward"), device.stream("copy")
    launch(device, log, "copy", "unrelated")
    launch(device, log, "schedule", "s1")
    launch(device, log, "forward", "f1")
    forward.wait_stream(device.stream("schedule"))
    launch(device, log, "schedule", "s2")
    launch(device, log, "forward", "f2")
    event = forward.record("f2 done")
    launch(device, log, "forward", "f3")
    copy.wait(event)
    assert not event.query()
    event.synchronize()
    assert log.seen == ["s1", "f1", "f2"]
    assert event.query()
    assert device.pending() == 3


def test_a_past_reaches_through_streams_that_were_waited_for_transitively(device: Device) -> None:
    log = Log()
    launch(device, log, "schedule", "s")
    device.stream("forward").wait_stream(device.stream("schedule"))
    device.stream("copy").wait_stream(device.stream("forward"))
    launch(device, log, "copy", "c")
    device.stream("copy").record().synchronize()
    assert log.seen == ["s", "c"]


def test_a_query_runs_nothing_and_tells_the_host_nothing(device: Device) -> None:
    buffer = zeros(device, "lens")
    device.stream("forward").launch("publish", store, buffer, [0], 5)
    event = device.stream("forward").record()
    assert not event.query()
    device.advance("forward", 1)
    assert event.query()
    device.host_read(buffer, [0])
    assert [race.kind for race in device.take_races()] == ["host-read-unsynchronised"]


def test_drain_runs_everything_oldest_first(device: Device) -> None:
    log = Log()
    launch(device, log, "forward", "1")
    launch(device, log, "schedule", "2")
    launch(device, log, "copy", "3")
    launch(device, log, "forward", "4")
    assert device.drain() == 4
    assert (log.seen, device.pending(), device.drain()) == (["1", "2", "3", "4"], 0, 0)


def test_a_missing_wait_reads_what_the_memory_holds(device: Device) -> None:
    log, relay = Log(), zeros(device, "new_seq_lens_buf")
    device.stream("forward").launch("publish", store, relay, [1], 7)
    device.stream("schedule").launch("resolve", load, relay, [1], log)
    device.stream("schedule").record().synchronize()
    assert log.seen == [[0]]
    device.stream("schedule").wait_stream(device.stream("forward"))
    device.stream("schedule").launch("resolve", load, relay, [1], log)
    device.stream("schedule").record().synchronize()
    assert log.seen == [[0], [7]]


def test_a_peek_runs_nothing_and_shows_the_present(device: Device) -> None:
    buffer = zeros(device, "lens", rows=2)
    device.stream("forward").launch("publish", store, buffer, None, 3)
    assert buffer.peek().tolist() == [0, 0]
    device.advance("forward", 1)
    assert buffer.peek().tolist() == [3, 3]
    assert device.take_races() == []


def test_progress_tells_that_memory_may_have_changed_also_without_an_operation(device: Device) -> None:
    buffer, doomed = zeros(device, "lens"), zeros(device, "doomed")
    device.host_write(buffer, 1)
    assert device.progress == 1
    device.stream("forward").launch("verify", nothing, doomed)
    del doomed
    assert device.progress == 2


def test_buffers_inside_containers_reach_the_kernel_as_tensors(device: Device) -> None:
    log, one, two = Log(), zeros(device, "one"), zeros(device, "two")
    args = ((one, 1), [two, 2], {"k": one}, Pair(two, 3), None, 1.5, torch.Size([2]), "text", (4, 5))
    for arg in args:
        device.stream("forward").launch("pass", append, log, arg)
    device.drain()
    first, second = one.peek(), two.peek()
    assert [type(arg) for arg in log.seen] == [type(arg) for arg in args]
    assert log.seen[0] == (first, 1) and log.seen[0][0] is first
    assert log.seen[1][0] is second and log.seen[2]["k"] is first and log.seen[3].left is second
    assert log.seen[4:] == [None, 1.5, torch.Size([2]), "text", (4, 5)]


def test_what_the_host_does_to_a_list_after_the_launch_is_not_seen(device: Device) -> None:
    log, rows = Log(), [1, 2]
    device.stream("forward").launch("rows", append, log, rows)
    rows.append(3)
    device.drain()
    assert log.seen == [[1, 2]]


def test_a_failing_kernel_names_its_operation_and_does_not_block_its_stream(device: Device) -> None:
    log = Log()
    device.stream("forward").launch("verify", fail)
    launch(device, log, "forward", "next")
    with pytest.raises(DeviceFault, match=r"`verify` on stream `forward` raised IndexError: row 9 of 8") as caught:
        device.drain()
    assert isinstance(caught.value.__cause__, IndexError)
    device.drain()
    assert log.seen == ["next"]


def test_declaring_on_a_tensor_that_is_no_argument_is_refused(device: Device) -> None:
    buffer = zeros(device, "lens")
    device.stream("forward").launch("draft", declare, [torch.zeros(8)], [(0, "read", [0])])
    with pytest.raises(DeviceFault, match="`draft` declared an access to a tensor that is none of its buffers"):
        device.drain()
    assert buffer.peek().tolist() == [0] * 8


def test_a_boolean_mask_is_no_list_of_rows(device: Device) -> None:
    lens = zeros(device, "lens")
    device.stream("forward").launch("all", declare, [lens], [(0, "write", None)])
    # Rows are looked at when an unordered access makes a comparison necessary.
    device.stream("schedule").launch("mask", declare, [lens], [(0, "read", torch.ones(8) > 0)])
    with pytest.raises(DeviceFault, match="boolean mask"):
        device.drain()


def test_an_unknown_stream_is_refused_and_the_known_ones_are_named(device: Device) -> None:
    for ask in (lambda: device.advance("fwd", 1), lambda: device.pending("fwd")):
        with pytest.raises(DeviceFault, match=r"no stream `fwd`.*'schedule', 'forward', 'copy', 'd2h'"):
            ask()


def test_a_stream_is_made_once_and_too_many_are_refused(device: Device) -> None:
    assert device.stream("rank1") is device.stream("rank1")
    device.stream("rank2"), device.stream("rank3")
    with pytest.raises(DeviceFault, match="`rank4` is one too many"):
        device.stream("rank4")


def test_an_event_of_another_device_is_refused(device: Device) -> None:
    foreign = open_device("cpu").stream("forward").record("foreign")
    with pytest.raises(DeviceFault, match="`foreign`: it belongs to another device"):
        device.stream("forward").wait(foreign)


def test_an_unknown_kind_of_device_is_refused() -> None:
    with pytest.raises(DeviceFault, match="unknown device `tpu`"):
        open_device("tpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="only tells something where there is no GPU")
def test_cuda_without_a_gpu_is_a_missing_part() -> None:
    with pytest.raises(DeviceFault, match="torch sees no CUDA device") as caught:
        open_device("cuda")
    assert isinstance(caught.value, MissingPart)
    assert caught.value.exit_status == 4


def test_without_race_checks_the_same_operations_run() -> None:
    device = open_device("cpu", check_races=False)
    log, buffer = Log(), zeros(device, "lens")
    device.stream("forward").launch("publish", store, buffer, [0], 5)
    device.stream("schedule").launch("resolve", load, buffer, [0], log)
    device.stream("schedule").launch("nothing", nothing, buffer)
    device.drain()
    assert (log.seen, device.take_races()) == ([[5]], [])
