"""The corpus: one shortest trace per bug, whole files only, and nothing is lost when writing fails."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import StoreError
from specfuzz.trace import CorpusStore, dumps, load, write_atomically

BUG = Identity("pages-conserved", "kv_allocator", "after-event")


def trace(text: str, **fields) -> Trace:
    steps = tuple(TraceStep(event=event) for event in parse_events(text))
    return Trace(config=EngineConfig(), steps=steps, **{"system": "mutated:leak", "expected": BUG, **fields})


LONG, SHORT = trace("submit(a,4,3) prefill(a) settle retract(a)"), trace("submit(a,2,1) prefill(a) retract(a)")


def stored(store: CorpusStore) -> list[Trace]:
    listing = store.load()
    assert not listing.problems
    return [entry.trace for entry in listing.entries]


def test_a_trace_lies_in_the_folder_of_its_owner(tmp_path: Path) -> None:
    added = CorpusStore(tmp_path).add(LONG)
    assert added.written and load(added.path) == LONG
    assert added.path.parent == tmp_path / "regressions" / "kv_allocator"
    assert added.path.name.startswith("pages-conserved-after-event-") and added.path.suffix == ".jsonl"


def test_the_shorter_trace_of_one_bug_stays(tmp_path: Path) -> None:
    store = CorpusStore(tmp_path)
    first, second, third = store.add(LONG), store.add(SHORT), store.add(LONG)
    assert stored(store) == [SHORT]
    assert second.written and second.replaced == (first.path,)
    assert not third.written and third.path == second.path


def test_adding_the_same_trace_again_changes_nothing(tmp_path: Path) -> None:
    store = CorpusStore(tmp_path)
    store.add(SHORT)
    assert not store.add(SHORT).written
    assert stored(store) == [SHORT]


def test_another_system_or_phase_is_another_bug(tmp_path: Path) -> None:
    store = CorpusStore(tmp_path)
    others = [SHORT, replace(SHORT, system="sglang"), replace(SHORT, expected=BUG._replace(phase="idle"))]
    # Names run into each other with the hyphens of the phase: the identity in the header decides.
    others.append(replace(SHORT, expected=Identity("pages-conserved-after", "kv_allocator", "event")))
    for one in others:
        assert store.add(one).written
    assert len(stored(store)) == 4


def test_a_trace_that_holds_needs_the_bug_that_it_guards_against(tmp_path: Path) -> None:
    store, fixed = CorpusStore(tmp_path), replace(SHORT, expected=None, system="reference")
    with pytest.raises(StoreError, match="say which bug"):
        store.add(fixed)
    assert store.add(fixed, about=BUG).written
    assert store.add(replace(LONG, expected=None, system="reference"), about=BUG).written is False
    assert store.add(SHORT).written  # it fails where the other holds
    assert len(stored(store)) == 2


def test_an_identity_can_not_lead_out_of_the_corpus(tmp_path: Path) -> None:
    for owner in ("../..", "/etc", "a/b", "", "A b"):
        with pytest.raises(StoreError, match="can't be a file name"):
            CorpusStore(tmp_path / "corpus").add(SHORT, about=None) if owner is None else CorpusStore(
                tmp_path / "corpus"
            ).add(replace(SHORT, expected=BUG._replace(owner=owner)))
    assert list(tmp_path.iterdir()) == []


def test_a_bad_file_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    store = CorpusStore(tmp_path)
    folder = store.add(SHORT).path.parent
    (folder / "pages-conserved-after-event-00000000.jsonl").write_text("nonsense")
    (folder / "z.jsonl").mkdir()
    listing = store.load()
    assert [entry.trace for entry in listing.entries] == [SHORT]
    assert len(listing.problems) == 2 and "not a specfuzz trace" in listing.problems[0]
    assert not store.add(LONG).written


def test_a_corpus_that_does_not_exist_is_empty_and_stays_so(tmp_path: Path) -> None:
    store = CorpusStore(tmp_path / "none")
    assert store.load().entries == () and not (tmp_path / "none").exists()


def test_a_corpus_below_a_file_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(StoreError, match="can't be written: Not a directory") as caught:
        CorpusStore(tmp_path / "file").add(SHORT)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "file").read_text() == "precious"


@pytest.fixture
def a_full_disk() -> Iterator[None]:
    """No file of this process may grow beyond 100 bytes: a write fails in the middle, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_loses_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    store = CorpusStore(tmp_path)
    path = store.add(LONG).path
    request.getfixturevalue("a_full_disk")
    for attempt in (lambda: store.add(SHORT), lambda: write_atomically(path, dumps(SHORT))):
        with pytest.raises(StoreError, match="can't be written: File too large"):
            attempt()
    assert load(path) == LONG
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_in_the_way_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").mkdir()
    with pytest.raises(StoreError, match="can't be written"):
        write_atomically(tmp_path / "t.jsonl", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def everything_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def test_asking_whether_a_corpus_can_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    for root in (tmp_path / "new" / "corpus", tmp_path):
        CorpusStore(root).check_writable()
        assert everything_in(tmp_path) == set()
    store = CorpusStore(tmp_path)
    store.add(SHORT)
    before = everything_in(tmp_path)
    store.check_writable()
    assert everything_in(tmp_path) == before


def test_a_corpus_that_can_not_work_says_so_when_it_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("precious")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("/proc/nowhere/at/all")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "regressions").write_text("precious")
    owner = tmp_path / "owner" / "regressions"
    owner.mkdir(parents=True)
    (owner / "kv_allocator").write_text("precious")
    before = everything_in(tmp_path)
    for name in ("file", "loop", "dangling", "taken", "owner", "\0"):
        with pytest.raises(StoreError, match="can't be written") as caught:
            CorpusStore(tmp_path / name).check_writable()
        assert "\n" not in str(caught.value)
    assert everything_in(tmp_path) == before
