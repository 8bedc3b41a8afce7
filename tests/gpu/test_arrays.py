"""The vocabulary of kernels means the same on both faces."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from specfuzz.gpu.arrays import MOST_KEPT, Arrays, NumpyArrays, TorchArrays, host_arrays


@pytest.fixture(params=["numpy", "torch"])
def xp(request: pytest.FixtureRequest) -> Arrays:
    return NumpyArrays() if request.param == "numpy" else TorchArrays(torch.device("cpu"))


def test_a_dot_wraps_and_broadcasts(xp: Arrays) -> None:
    rows, weights = xp.array([[1 << 62, 3], [5, -7]]), xp.array([[4, 1], [1, 2]])
    assert xp.dot(rows, weights).tolist() == [3, -9]
    assert xp.dot(rows[:, None], weights).tolist() == [[3, (1 << 62) + 6], [13, -9]]


@pytest.mark.parametrize(("flags", "wanted"), [([1, 1, 1], 3), ([1, 0, 1], 1), ([0, 1, 1], 0), ([0, 0, 0], 0)])
def test_leading_counts_up_to_the_first_that_is_false(xp: Arrays, flags: list[int], wanted: int) -> None:
    assert xp.leading(xp.array([flags, [1, 1, 0]]) == 1).tolist() == [wanted, 2]


def test_a_column_is_spread_over_lanes(xp: Arrays) -> None:
    assert xp.spread(xp.array([4, 9]), 3).tolist() == [[4, 4, 4], [9, 9, 9]]


def test_negative_places_become_the_first(xp: Arrays) -> None:
    assert xp.not_below_zero(xp.array([[-1, 0, 5]])).tolist() == [[0, 0, 5]]


def test_a_constant_is_an_operand_of_any_shape(xp: Arrays) -> None:
    one = xp.constant(1)
    assert (xp.array([1, 2]) + one).tolist() == [2, 3]
    assert (xp.array([[1], [2]]) | one).tolist() == [[1], [3]]


def test_a_gather_reads_each_row_on_its_own(xp: Arrays) -> None:
    assert xp.gather(xp.array([[1, 2, 3], [4, 5, 6]]), xp.array([[2, 0], [1, 1]])).tolist() == [[3, 1], [5, 5]]


def test_the_host_has_one_face_of_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_arrays() is host_arrays()
    monkeypatch.setenv("SPECFUZZ_ARRAYS", "torch")
    assert host_arrays().name == "torch" and host_arrays() is host_arrays()


@pytest.mark.parametrize("old", ["del numpy.vecdot", "sys.modules['numpy'] = None"])
def test_torch_takes_the_place_of_a_numpy_that_is_old_or_missing(old: str) -> None:
    probe = f"import sys, numpy; {old}; from specfuzz.gpu.arrays import host_arrays; print(host_arrays().name)"
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", probe], capture_output=True, text=True, check=True)
    assert run.stdout == "torch\n"


def test_a_face_keeps_a_table_until_there_are_too_many_or_it_forgets(xp: Arrays) -> None:
    made: list[int] = []

    def table(key: int) -> int:
        return xp.kept(key, lambda: made.append(key) or key + 100)

    assert [table(key) for key in (1, 1, 2)] == [101, 101, 102] and made == [1, 2]
    for key in range(3, 3 + MOST_KEPT):
        table(key)
    table(1)
    assert made.count(1) == 2
    xp.forget()
    table(1)
    assert made.count(1) == 3


def test_a_shared_table_of_the_simulated_device_can_not_be_written() -> None:
    table = NumpyArrays().shared(NumpyArrays().arange(3))
    with pytest.raises(ValueError, match="read-only"):
        table[0] = 7
    assert table[1:].tolist() == [1, 2]
