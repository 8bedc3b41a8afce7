"""The happens-before checker: it reports what nothing orders, also when it happened to run in the right order."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from specfuzz.gpu import Device, Race, open_device
from specfuzz.gpu.races import RECENT_LIMIT
from tests.gpu.kernels import Log, declare, load, nothing, store, zeros


@pytest.fixture
def device() -> Device:
    return open_device("cpu")


def plan(device: Device, stream: str, name: str, buffers: list[Any], *accesses: Any) -> None:
    device.stream(stream).launch(name, declare, buffers, list(accesses))


def kinds(device: Device) -> list[tuple[str, str, str, int | None]]:
    return [(race.kind, race.first, race.second, race.row) for race in device.take_races()]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("write", "read", "read-after-write"),
        ("read", "write", "write-after-read"),
        ("write", "write", "write-after-write"),
    ],
)
def test_each_kind_of_pair_is_reported_although_execution_was_benign(
    device: Device, first: str, second: str, kind: str
) -> None:
    relay = zeros(device, "relay")
    plan(device, "forward", "one", [relay], (0, first, [3, 4]))
    plan(device, "schedule", "two", [relay], (0, second, [4, 5]))
    device.drain()  # oldest first: the order that was meant
    race = Race(
        kind=kind, buffer="relay", row=4, first="one", first_stream="forward", second="two", second_stream="schedule"
    )
    assert device.take_races() == [race]
    assert str(race) == f"{kind} on `relay[4]`: `one` [forward] and `two` [schedule] are not ordered"


def test_two_reads_are_no_race(device: Device) -> None:
    relay = zeros(device, "relay")
    plan(device, "forward", "one", [relay], (0, "read", None))
    plan(device, "schedule", "two", [relay], (0, "read", [1]))
    device.drain()
    assert kinds(device) == []


@pytest.mark.parametrize("barrier", [True, False])
def test_a_write_after_read_is_silent_with_the_barrier_and_reported_without(device: Device, barrier: bool) -> None:
    row_table, log = zeros(device, "req_to_token"), Log()
    device.stream("forward").launch("verify", load, row_table, [2], log)
    if barrier:
        device.stream("schedule").wait_stream(device.stream("forward"))
    device.stream("schedule").launch("prepare next", store, row_table, [2], 9)
    device.drain()
    assert log.seen == [[0]]
    assert kinds(device) == ([] if barrier else [("write-after-read", "verify", "prepare next", 2)])


def test_disjoint_rows_do_not_conflict(device: Device) -> None:
    relay = zeros(device, "relay")
    plan(device, "forward", "publish", [relay], (0, "write", [0, 1]))
    plan(device, "schedule", "resolve", [relay], (0, "read", [2, 3]), (0, "write", []))
    device.drain()
    assert kinds(device) == []


def test_the_whole_buffer_conflicts_with_any_row(device: Device) -> None:
    relay = zeros(device, "relay")
    plan(device, "forward", "rows", [relay], (0, "write", [6, 5]))
    plan(device, "schedule", "all", [relay], (0, "read", None))
    plan(device, "copy", "all again", [relay], (0, "write", None))
    plan(device, "d2h", "row", [relay], (0, "read", [7]))
    device.drain()
    assert kinds(device) == [
        ("read-after-write", "rows", "all", 5),
        ("write-after-write", "rows", "all again", 5),
        ("write-after-read", "all", "all again", None),
        ("read-after-write", "all again", "row", 7),
    ]


def test_nothing_conflicts_with_no_rows(device: Device) -> None:
    relay = zeros(device, "relay")
    plan(device, "forward", "all", [relay], (0, "write", None))
    plan(device, "schedule", "none", [relay], (0, "write", []), (0, "read", torch.empty(0, dtype=torch.int64)))
    device.drain()
    assert kinds(device) == []


@pytest.mark.parametrize(
    "rows", [[4], (4,), {4}, range(4, 5), torch.tensor([4]), torch.tensor([[4], [3]], dtype=torch.int32)]
)
def test_rows_may_be_any_ints(device: Device, rows: Any) -> None:
    relay = zeros(device, "relay")
    plan(device, "forward", "one", [relay], (0, "write", rows))
    plan(device, "schedule", "two", [relay], (0, "write", iter([4])))
    device.drain()
    assert kinds(device) == [("write-after-write", "one", "two", 4)]


def test_different_buffers_do_not_conflict(device: Device) -> None:
    one, two = zeros(device, "relay"), zeros(device, "relay")
    plan(device, "forward", "one", [one], (0, "write", None))
    plan(device, "schedule", "two", [two], (0, "write", None))
    device.drain()
    assert kinds(device) == []


def test_an_event_orders_only_what_was_launched_before_its_record(device: Device) -> None:
    relay, forward, schedule = zeros(device, "relay"), device.stream("forward"), device.stream("schedule")
    plan(device, "forward", "publish", [relay], (0, "write", [1]))
    published = forward.record("published")
    plan(device, "forward", "late publish", [relay], (0, "write", [2]))
    schedule.wait(published)
    plan(device, "schedule", "resolve", [relay], (0, "read", [1, 2]))
    device.drain()
    assert kinds(device) == [("read-after-write", "late publish", "resolve", 2)]


def test_what_the_host_launches_after_its_wait_is_ordered_on_every_stream(device: Device) -> None:
    relay = zeros(device, "relay")
    plan(device, "forward", "publish", [relay], (0, "write", None))
    device.stream("forward").record().synchronize()
    plan(device, "schedule", "resolve", [relay], (0, "write", None))
    device.drain()
    assert kinds(device) == []


def test_progress_without_a_host_wait_orders_nothing(device: Device) -> None:
    relay = zeros(device, "relay")
    plan(device, "forward", "publish", [relay], (0, "write", [0]))
    device.advance("forward", 1)
    plan(device, "schedule", "resolve", [relay], (0, "read", [0]))
    device.advance("schedule", 1)
    assert kinds(device) == [("read-after-write", "publish", "resolve", 0)]


def test_an_old_unordered_access_is_still_found_after_many_others_and_host_waits(device: Device) -> None:
    relay = zeros(device, "relay", rows=1000)
    plan(device, "schedule", "resolve", [relay], (0, "read", [999]))
    for number in range(3 * RECENT_LIMIT):
        plan(device, "schedule", "resolve others", [relay], (0, "read", [number]))
        device.stream("copy").launch("other", nothing, relay)
        device.stream("copy").record().synchronize()
        device.advance("schedule", 2)
    plan(device, "forward", "publish", [relay], (0, "write", [999]))
    device.drain()
    assert kinds(device) == [("write-after-read", "resolve", "publish", 999)]


def test_a_repeated_race_is_reported_once_per_run(device: Device) -> None:
    relay = zeros(device, "relay")
    for _ in range(5):
        plan(device, "forward", "publish", [relay], (0, "write", [0]))
        plan(device, "schedule", "resolve", [relay], (0, "read", [0]))
        device.advance("forward", 1)
        device.advance("schedule", 1)
    assert kinds(device) == [
        ("read-after-write", "publish", "resolve", 0),
        ("write-after-read", "resolve", "publish", 0),
    ]
    plan(device, "forward", "publish", [relay], (0, "write", [0]))
    device.drain()
    assert kinds(device) == []


def test_a_host_read_without_a_wait_is_reported_and_gets_what_the_memory_holds(device: Device) -> None:
    lens = zeros(device, "lens")
    device.stream("d2h").launch("copy out", store, lens, [0, 1], 5)
    assert device.host_read(lens, [0]).tolist() == [0]
    device.stream("d2h").record().synchronize()  # the write that should have come first comes now
    assert device.host_read(lens, torch.tensor([0, 1])).tolist() == [5, 5]
    assert kinds(device) == [
        ("host-read-unsynchronised", "copy out", "host", None),  # at once: the operation is still queued
        ("host-read-unsynchronised", "host", "copy out", 0),  # and the row, when it has run
    ]


def test_a_host_read_after_the_wait_is_silent(device: Device) -> None:
    lens = zeros(device, "lens", rows=2)
    device.stream("d2h").launch("copy out", store, lens, None, 5)
    device.stream("d2h").record().synchronize()
    copied = device.host_read(lens)
    device.stream("d2h").launch("copy out", store, lens, None, 6)
    device.drain()
    assert (copied.tolist(), kinds(device)) == ([5, 5], [])


def test_a_host_write_over_what_a_queued_copy_still_reads_is_reported(device: Device) -> None:
    staging, log = zeros(device, "pinned staging", rows=2), Log()
    device.host_write(staging, 3)
    device.stream("copy").launch("upload", load, staging, [1], log)
    device.host_write(staging, 4, [1])
    device.drain()
    assert log.seen == [[4]]
    assert kinds(device) == [("read-after-write", "host", "upload", 1)]


def rows_of(access: Any) -> set[int]:
    return set(range(40) if access[2] is None else access[2])


def brute_force(history: list[tuple[str, str, frozenset[str], list[Any]]]) -> set[tuple[str, str]]:
    """Unordered conflicting pairs of (name, stream, names of its past, accesses), by comparing all with all."""
    pairs = set()
    for number, (second, _, past, accesses) in enumerate(history):
        for first, _, _, earlier in history[:number]:
            if first not in past and any(
                a[0] == b[0] and "write" in (a[1], b[1]) and rows_of(a) & rows_of(b) for a in earlier for b in accesses
            ):
                pairs.add((first, second))
    return pairs


@pytest.mark.parametrize("seed", range(60))
def test_it_agrees_with_comparing_all_pairs_of_a_random_program(seed: int) -> None:
    rng, device = random.Random(seed), open_device("cpu")
    names = ["schedule", "forward", "copy"]
    buffers = [zeros(device, f"b{number}", rows=40) for number in range(2)]
    tail: dict[str, frozenset[str]] = dict.fromkeys(names, frozenset())
    host: frozenset[str] = frozenset()
    launched: list[tuple[str, str, frozenset[str], list[Any]]] = []
    events: list[tuple[Any, frozenset[str]]] = []
    for number in range(400):
        stream, dice = rng.choice(names), rng.random()
        if dice < 0.5:
            accesses = [
                (
                    rng.randrange(2),
                    rng.choice(("read", "read", "write")),
                    None if rng.random() < 0.05 else rng.sample(range(40), rng.randrange(3)),
                )
                for _ in range(rng.randrange(3))
            ]
            past = tail[stream] | host
            plan(device, stream, f"op{number}", buffers, *accesses)
            launched.append((f"op{number}", stream, past, accesses))
            tail[stream] = past | {f"op{number}"}
        elif dice < 0.6:
            events.append((device.stream(stream).record(), tail[stream]))
        elif dice < 0.8 and events:
            event, past = rng.choice(events[-4:])
            device.stream(stream).wait(event)
            tail[stream] |= past
        elif dice < 0.86 and events:
            event, past = rng.choice(events[-4:])
            event.synchronize()
            host |= past
        elif dice >= 0.86:
            device.advance(stream, rng.randrange(4))
    device.drain()
    found = {frozenset((race.first, race.second)) for race in device.take_races()}
    expected = {frozenset(pair) for pair in brute_force(launched)}
    assert found <= expected
    # Of one stream's unordered accesses to a row only the latest must be named, so a later one may stand in for `one`.
    order = {name: number for number, (name, *_) in enumerate(launched)}
    stream_of = {name: stream for name, stream, *_ in launched}
    for pair in expected:
        assert any(
            frozenset((later, other)) in found
            for one in pair
            for other in pair - {one}
            for later in order
            if stream_of[later] == stream_of[one] and order[later] >= order[one]
        )
