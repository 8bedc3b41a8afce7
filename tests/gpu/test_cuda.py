"""The real device keeps the promises of the simulated one: same results, same order, same races."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from specfuzz.errors import DeviceFault
from specfuzz.gpu import Device, open_device
from tests.gpu.kernels import declare, fail, store, zeros

pytestmark = pytest.mark.cuda


@pytest.fixture
def device() -> Iterator[Device]:
    device = open_device("cuda", delay_seed=7)
    yield device
    device.drain()


def test_a_host_wait_makes_the_past_of_its_event_visible(device: Device) -> None:
    lens, forward, copy = zeros(device, "lens", rows=2), device.stream("forward"), device.stream("copy")
    forward.launch("publish", store, lens, None, 5)
    copy.wait_stream(forward)
    copy.launch("bump", store, lens, [1], 6)
    event = copy.record("bumped")
    event.synchronize()
    assert event.query()
    assert device.host_read(lens).tolist() == [5, 6]
    assert lens.peek().device.type == "cpu"
    assert device.take_races() == []


def test_races_are_the_same_as_on_the_cpu(device: Device) -> None:
    found = []
    for either in (device, open_device("cpu")):
        relay = zeros(either, "relay")
        rows = torch.tensor([3, 4], device=either.torch_device)
        either.stream("forward").launch("publish", declare, [relay], [(0, "write", rows)])
        either.stream("schedule").launch("resolve", declare, [relay], [(0, "read", rows), (0, "read", None)])
        either.drain()
        found.append(either.take_races())
    assert found[0] == found[1] != []


def test_rows_are_kept_as_they_were_when_declared(device: Device) -> None:
    relay, rows = zeros(device, "relay"), torch.tensor([3], device=device.torch_device)
    device.stream("schedule").launch("publish", declare, [relay], [(0, "write", rows)])
    rows.fill_(5)  # on the stream `schedule`, after the kernel
    device.stream("forward").launch("other", declare, [relay], [(0, "write", [5])])
    device.drain()
    assert device.take_races() == []


def test_an_unordered_free_is_reported(device: Device) -> None:
    lens = zeros(device, "lens")
    device.stream("forward").launch("verify", store, lens, None, 1)
    del lens
    assert [race.kind for race in device.take_races()] == ["use-after-free"]


def test_the_device_runs_by_itself_and_drain_leaves_nothing_pending(device: Device) -> None:
    lens, before = zeros(device, "lens"), device.progress
    for value in range(5):
        device.stream("forward").launch("publish", store, lens, None, value)
    assert device.advance("forward", 5) == 0
    device.drain()
    assert (device.pending(), device.progress) == (0, before + 5)
    assert lens.peek().tolist() == [4] * 8


def test_a_closed_device_writes_no_more(device: Device) -> None:
    lens = zeros(device, "lens")
    for value in range(5):
        device.stream("forward").launch("publish", store, lens, None, value)
    last = device.stream("forward").record("last")
    device.close()
    assert last.query()


def test_the_host_reads_and_writes_directly(device: Device) -> None:
    lens = zeros(device, "lens", rows=3)
    device.drain()
    device.host_write(lens, [7, 8], [0, 2])
    assert device.host_read(lens, [2, 0]).tolist() == [8, 7]


def test_a_failing_kernel_names_its_operation_at_the_launch(device: Device) -> None:
    with pytest.raises(DeviceFault, match="`verify` on stream `forward` raised IndexError"):
        device.stream("forward").launch("verify", fail)
