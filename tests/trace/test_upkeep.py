"""Which stored traces are of the same bug, and where seeds lie."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specfuzz.core.config import EngineConfig
from specfuzz.core.notation import parse_events
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import StoreError
from specfuzz.trace import CorpusStore, dumps, load
from specfuzz.trace.seeds import SeedStore
from specfuzz.trace.upkeep import duplicates, remove

BUG = Identity("pages-are-conserved", "kv_allocator", "after-event")


def trace(text: str, **fields) -> Trace:
    steps = tuple(TraceStep(event=event) for event in parse_events(text))
    return Trace(config=EngineConfig(), steps=steps, **{"system": "mutated:leak", "expected": BUG, **fields})


LONG, SHORT = trace("submit(a,4,3) prefill(a) settle retract(a)"), trace("submit(a,2,1) prefill(a) retract(a)")


def planted(root: Path, *traces: Trace, about: Identity = BUG) -> tuple[Path, ...]:
    """Files as several people may have put them there: the store itself keeps one per bug."""
    paths = [CorpusStore(root).path_of(one, one.expected or about) for one in traces]
    for path, one in zip(paths, traces, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(dumps(one))
    return tuple(paths)


def test_of_several_traces_of_one_bug_the_shortest_stays(tmp_path: Path) -> None:
    long, short = planted(tmp_path, LONG, SHORT)
    (group,) = duplicates(CorpusStore(tmp_path).load().entries)
    assert (group.kept, group.extra) == (short, (long,)) and group.bug == f"{BUG} on mutated:leak"


def test_another_system_or_identity_is_no_duplicate(tmp_path: Path) -> None:
    planted(tmp_path, SHORT, replace(LONG, system="sglang"), replace(LONG, expected=BUG._replace(phase="idle")))
    assert duplicates(CorpusStore(tmp_path).load().entries) == ()


def test_traces_that_hold_are_told_apart_by_the_bug_in_their_name(tmp_path: Path) -> None:
    fixed = [replace(one, expected=None, system="reference") for one in (LONG, SHORT)]
    long, short = planted(tmp_path, *fixed)
    planted(tmp_path, replace(SHORT, expected=None, system="reference"), about=BUG._replace(oracle="sizes-add-up"))
    (group,) = duplicates(CorpusStore(tmp_path).load().entries)
    assert (group.kept, group.extra) == (short, (long,)) and "which holds" in group.bug


def test_what_cannot_be_removed_is_said_in_a_sentence(tmp_path: Path) -> None:
    (long, _short) = planted(tmp_path, LONG, SHORT)
    remove([long, long])  # gone already is as good
    assert not long.exists()
    with pytest.raises(StoreError, match="can't be removed"):
        remove([tmp_path])


# ----------------------------------------------------------------------------------------------------------- seeds
SEEDS = [replace(one, expected=None, system="reference") for one in (LONG, SHORT)]


def test_new_seeds_of_a_kind_take_the_place_of_the_old(tmp_path: Path) -> None:
    store = SeedStore(tmp_path)
    (old,) = store.replace("goals", SEEDS[:1])
    (other,) = store.replace("situations", SEEDS[:1])
    (new,) = store.replace("goals", SEEDS[1:])
    assert store.paths() == (new, other) and not old.exists()
    assert [entry.trace for entry in store.load("goals").entries] == SEEDS[1:]


def test_a_seed_is_named_by_its_configuration_and_always_the_same(tmp_path: Path) -> None:
    (path,) = SeedStore(tmp_path).replace("goals", SEEDS[:1])
    assert path.parent == tmp_path / "seeds" / "goals" and path.name.startswith("eagle-overlap-page-1-")
    assert SeedStore(tmp_path).replace("goals", [load(path)]) == (path,)


def test_a_failure_to_write_leaves_the_old_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SeedStore(tmp_path)
    (old,) = store.replace("goals", SEEDS[:1])
    store.path_of("goals", SEEDS[1]).mkdir()  # a folder is in the way
    with pytest.raises(StoreError):
        store.replace("goals", SEEDS[1:])
    assert load(old) == SEEDS[0]


def test_a_corpus_without_seeds_has_none(tmp_path: Path) -> None:
    assert SeedStore(tmp_path / "none").load().entries == () and not (tmp_path / "none").exists()
