"""Forward isolation restores bindings, also after an error, and the ring keeps what two launches had bound."""

from __future__ import annotations

from dataclasses import fields
from weakref import ref

import pytest

from specfuzz.gpu.device import Buffer
from specfuzz.reference.isolation import KeepAliveRing, forward_isolation
from specfuzz.reference.sampling import Penalizer, SamplingBatchInfo
from specfuzz.reference.schedule_batch import ForwardMode, ScheduleBatch
from specfuzz.reference.spec_info import EagleDraftInput, EagleVerifyInput
from tests.reference.memory import open_engine


def open_batch(algorithm: str = "EAGLE") -> ScheduleBatch:
    batch = ScheduleBatch(open_engine().streams, algorithm, sampling_info=SamplingBatchInfo(Penalizer(0)))
    batch.bind_seq_lens([4])
    batch.spec_info = EagleDraftInput(future_indices=(1,))
    return batch


def bindings(batch: ScheduleBatch) -> dict[str, object]:
    return {field.name: getattr(batch, field.name) for field in fields(batch)}


def rebind(batch: ScheduleBatch) -> None:
    """What a worker may do to its batch."""
    tokens = tensor(batch)
    batch.forward_mode = ForwardMode.TARGET_VERIFY
    batch.input_ids, batch.seq_lens, batch.spec_info = tokens, tokens, EagleVerifyInput(tokens)


def tensor(batch: ScheduleBatch) -> Buffer:
    return batch.to_device([0], "tokens")


def test_every_binding_of_the_batch_is_restored() -> None:
    batch = open_batch()
    before = bindings(batch)
    with forward_isolation(batch, KeepAliveRing()):
        rebind(batch)
    after = bindings(batch)
    assert [name for name in before if before[name] is not after[name]] == []


def test_bindings_are_restored_after_an_exception_too() -> None:
    batch = open_batch()
    before = bindings(batch)
    with pytest.raises(ValueError, match="worker"), forward_isolation(batch, KeepAliveRing()):
        rebind(batch)
        raise ValueError("worker")
    assert all(before[name] is value for name, value in bindings(batch).items())


def test_the_worker_samples_with_a_copy_that_has_no_penalizer() -> None:
    batch = open_batch()
    own = batch.sampling_info
    with forward_isolation(batch, None):
        assert batch.sampling_info is not own
        assert batch.sampling_info is not None and batch.sampling_info.penalizer is None
    assert batch.sampling_info is own


def test_plain_decoding_isolates_the_sampling_info_alone() -> None:
    batch = open_batch("NONE")
    own = batch.sampling_info
    with forward_isolation(batch, None):
        batch.forward_mode = ForwardMode.EXTEND
    assert batch.forward_mode is ForwardMode.EXTEND and batch.sampling_info is own


def test_a_write_in_place_escapes() -> None:
    """A known limit of a shallow snapshot; the oracles watch it."""
    batch = open_batch()
    batch.seq_lens_cpu = [4]
    with forward_isolation(batch, None):
        batch.seq_lens_cpu[0] = 9
    assert batch.seq_lens_cpu == [9]


def test_a_tensor_is_kept_until_the_second_launch_after_its_own() -> None:
    batch, ring = open_batch(), KeepAliveRing()
    batch.input_ids = tensor(batch)
    bound, alive = ref(batch.input_ids), []
    for _ in range(3):
        with forward_isolation(batch, ring):
            batch.input_ids = None
        batch.input_ids = None
        alive.append(bound() is not None)
    assert alive == [True, True, False]


def test_a_reference_added_during_the_launch_is_kept_as_long() -> None:
    batch, ring = open_batch(), KeepAliveRing()
    with forward_isolation(batch, ring) as keep_alive:
        extra = tensor(batch)
        keep_alive.append(extra)
    kept = ref(extra)
    del extra, keep_alive
    ring.record(batch)
    assert kept() is not None
    ring.record(batch)
    assert kept() is None


def test_without_overlap_nothing_is_kept() -> None:
    batch = open_batch()
    with forward_isolation(batch, None):
        batch.input_ids = tensor(batch)
        bound = ref(batch.input_ids)
    assert bound() is None
