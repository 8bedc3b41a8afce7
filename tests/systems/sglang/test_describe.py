"""What is said of an exception of the engine: where it was raised, and who in the engine called there."""

from __future__ import annotations

from pathlib import Path

import pytest

from specfuzz.systems.sglang.runner import describe

ENGINE = "def pop(queue):\n    return queue.pop()\n\n\ndef settle(queue):\n    return pop(queue)\n"


def raised(path: Path) -> IndexError:
    path.parent.mkdir(parents=True)
    names: dict[str, object] = {}
    exec(compile(ENGINE, str(path), "exec"), names)
    with pytest.raises(IndexError) as caught:
        names["settle"]([])  # type: ignore[operator]
    return caught.value


def test_engine_frames_are_named_from_the_package_on(tmp_path: Path) -> None:
    error = raised(tmp_path / "checkout" / "sglang" / "srt" / "scheduler.py")
    assert describe(error) == (
        "IndexError: pop from empty list at sglang/srt/scheduler.py:2, called at sglang/srt/scheduler.py:6"
    )


def test_what_another_file_raises_is_named_with_its_place_alone(tmp_path: Path) -> None:
    assert describe(raised(tmp_path / "elsewhere" / "fake.py")) == "IndexError: pop from empty list at fake.py:2"


def test_an_exception_that_was_never_raised_has_no_place() -> None:
    assert describe(ValueError("no")) == "ValueError: no"
    assert describe(ValueError()) == "ValueError: no message"
