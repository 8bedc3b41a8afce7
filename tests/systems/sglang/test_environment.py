"""Where the engine environment lives, and what is said when it can't be built."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from specfuzz.core.port import OpenOptions
from specfuzz.errors import MissingPart, UnknownName, UsageError
from specfuzz.systems.sglang import availability, open_sglang
from specfuzz.systems.sglang.environment import LOCK, _run, build_python, install


@pytest.fixture
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECFUZZ_ENGINES_DIR", str(tmp_path))
    monkeypatch.setattr("specfuzz.systems.sglang._importable", lambda: False)
    return tmp_path


def test_without_an_environment_the_factory_says_how_to_get_one(no_engine: Path) -> None:
    available, version, why_not, command = availability()
    assert (available, version) == (False, "")
    assert str(no_engine) in why_not
    assert command == "specfuzz systems install sglang"
    with pytest.raises(MissingPart, match="specfuzz systems install sglang"):
        open_sglang("", OpenOptions())


def test_a_half_built_environment_does_not_count(no_engine: Path) -> None:
    python = no_engine / "sglang-0.5.23" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert availability()[0] is False
    assert "was not finished" in availability()[2]


def test_an_unknown_planted_bug_names_the_closest(no_engine: Path) -> None:
    with pytest.raises(UnknownName, match="reserve-1x"):
        open_sglang("reserve-1", OpenOptions())


def test_a_checkout_without_the_package_is_refused(no_engine: Path) -> None:
    with pytest.raises(UsageError, match="--engine-path"):
        open_sglang("", OpenOptions(engine_path=str(no_engine)))


def test_a_python_without_a_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(MissingPart, match=r"no wheel for Python 3\.14, only for 3\.11, 3\.12, 3\.13"):
        build_python()


def test_every_requirement_is_pinned_and_hashed_and_names_no_host() -> None:
    text = LOCK.read_text(encoding="utf-8")
    assert "://" not in text and "index-url" not in text
    entries = re.split(r"\n(?=[a-zA-Z])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    assert len(entries) > 60
    for entry in entries:
        name = entry.split()[0]
        assert "==" in name, name
        assert "--hash=sha256:" in entry, name
    names = {entry.partition("==")[0].lower() for entry in entries}
    assert {"sglang", "compressed-tensors", "triton", "transformers"} <= names
    assert not names & {"torch", "torchvision", "flashinfer-python", "sgl-kernel"}


@pytest.mark.parametrize("folder", ["a file", "below a file", "a dangling link", "a loop", "a place of the kernel"])
def test_a_folder_that_can_not_be_used_is_a_missing_part(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").write_text("precious")
    (tmp_path / "a dangling link").symlink_to("/nowhere/at/all")
    (tmp_path / "a loop").symlink_to("a loop")
    places = {"below a file": "a file/below", "a place of the kernel": "/proc/engines"}
    monkeypatch.setenv("SPECFUZZ_ENGINES_DIR", str(tmp_path / places.get(folder, folder)))
    monkeypatch.setattr("specfuzz.systems.sglang._importable", lambda: False)
    assert availability()[0] is False
    with pytest.raises(MissingPart, match="SPECFUZZ_ENGINES_DIR, then run `specfuzz systems install sglang` again"):
        install(lambda line: None)
    assert (tmp_path / "a file").read_text() == "precious"


def test_words_of_pip_that_are_no_text_are_shown_all_the_same() -> None:
    with pytest.raises(MissingPart, match="making it failed: �: no luck"):
        _run(["sh", "-c", r"printf '\377: no luck\n' >&2; exit 1"], "making it")
