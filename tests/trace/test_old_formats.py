"""Files of every age and origin: each is brought to today's form or refused in a sentence, and none is lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import format_events
from specfuzz.trace import load
from specfuzz.trace.upkeep import form_of

FOLDER = Path(__file__).parent / "old_formats"
OLDER = sorted((FOLDER / "migrated").iterdir())
REFUSED = {
    "version-0": "has version 0 of the trace format, and this specfuzz reads version 1. No released specfuzz wrote it.",
    "version-2": "has version 2 of the trace format, and this specfuzz reads version 1. Use a newer specfuzz.",
    "version-as-a-date": "Expected `int`, got `str` at `$.version`",
    "no-version": "missing required field `version`",
    "no-system": "missing required field `system`",
    "no-config": "missing required field `config`",
    "a-config-field-that-is-not-known": "unknown field `block_size` at `$.config`",
    "an-event-that-is-not-known": "line 2: Invalid value 'next_turn' at `$.event.do`",
    "an-event-without-its-rid": "line 3: Object missing required field `rid` at `$.event`",
    "a-receipt-field-that-is-not-known": "line 3: Object contains unknown field `aborted` at `$.receipt`",
    "no-footer": "is truncated after line 3",
    "a-footer-of-another-length": "its footer says 3 steps, and it has 2",
    "another-format": "its format is `vllm-replay` instead of `specfuzz-trace`",
    "hypothesis-choices": "is not a specfuzz trace",
    "a-line-of-notation": "is not a specfuzz trace",
}


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_an_older_form_means_the_same_when_it_is_migrated(path: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(path, tmp_path))
    form = form_of(copy)
    assert form.state == "older"
    copy.write_bytes(form.data)
    assert form_of(copy).state == "current"
    assert load(copy) == load(path)


@pytest.mark.parametrize("path", OLDER, ids=lambda path: path.stem)
def test_what_an_older_form_leaves_out_has_its_default(path: Path) -> None:
    trace = load(path)
    assert format_events(trace.events) == "submit(a,2,2) abort(a)"
    assert trace.config in (EngineConfig(), EngineConfig(page_size=4))


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_migrated_is_refused_in_a_sentence(name: str) -> None:
    path = FOLDER / "refused" / f"{name}.jsonl"
    form = form_of(path)
    assert form.state == "refused" and not form.data
    assert REFUSED[name] in form.because and form.because.startswith("`") and form.because.isprintable()


def test_no_file_lies_about_without_a_test() -> None:
    assert {path.stem for path in (FOLDER / "refused").iterdir()} == set(REFUSED)


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    assert "there is no file" in form_of(tmp_path / "gone.jsonl").because
