"""`specfuzz corpus`: lists, checks, tidies and migrates, and changes nothing without --write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from specfuzz.trace import CorpusStore, dumps, load
from specfuzz.trace.upkeep import form_of
from tests.cli.command import is_one_sentence, specfuzz

ROOT = Path(__file__).resolve().parents[2]
OLD = ROOT / "tests" / "trace" / "old_formats"
COMMON = {"verb", "version", "seed", "seconds", "verdict", "violations"}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Two regressions of the isolation, in today's form, and nothing else."""
    folder = tmp_path / "corpus" / "regressions" / "isolation"
    folder.mkdir(parents=True)
    for name in ("mode-is-restored", "sampling-info-is-copied"):
        (path,) = (ROOT / "corpus" / "regressions" / "isolation").glob(f"{name}-*.jsonl")
        (folder / path.name).write_bytes(dumps(load(path)))
    return tmp_path / "corpus"


def traces(corpus: Path) -> list[Path]:
    return list(CorpusStore(corpus).paths())


def contents(corpus: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in corpus.rglob("*") if path.is_file()}


def test_the_traces_are_listed_by_owner(corpus: Path) -> None:
    data = specfuzz("corpus", "list", corpus, "--json").json
    assert set(data) >= COMMON and data["verb"] == "corpus"
    assert data["owners"] == {"isolation": 2} and not data["problems"]
    assert data["traces"][0]["expected"] == "mode-is-restored/isolation/after-event"
    assert data["traces"][0]["system"] == "mutated:leaked-forward-mode" and data["traces"][0]["events"] > 2
    answer = specfuzz("corpus", "list", corpus)
    assert answer.status == 0 and "sampling-info-is-copied/isolation" in answer.out


def test_without_a_command_the_default_corpus_is_listed(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus.parent)
    assert specfuzz("corpus", "--json").json["owners"] == {"isolation": 2}


def test_a_corpus_that_ends_as_recorded_is_status_0(corpus: Path) -> None:
    data = specfuzz("corpus", "check", corpus, "--json").json
    assert data["verdict"] == "holds" and [trace["passed"] for trace in data["traces"]] == [True, True]


def test_a_bug_that_nobody_planted_is_status_1_unless_a_baseline_explains_it(corpus: Path) -> None:
    system = "rerun:mutated:leaked-forward-mode"
    path, other = traces(corpus)
    other.unlink()
    path.write_bytes(path.read_bytes().replace(b"mutated:leaked-forward-mode", system.encode()))
    baseline = corpus / "known.toml"
    baseline.write_text(
        f'[[known]]\nidentity = "mode-is-restored/isolation/after-event"\nsystem = "{system}"\nreason = "meant so"\n'
    )
    assert specfuzz("corpus", "check", corpus, "--json").status == 1
    answer = specfuzz("corpus", "check", corpus, "--baseline", baseline, "--json")
    assert answer.status == 0 and [trace["baseline"] for trace in answer.json["traces"]] == ["meant so"]
    answer = specfuzz("corpus", "check", corpus, "--baseline", baseline)
    assert answer.out.startswith("known ") and "meant so" in answer.out


def test_a_trace_that_no_longer_fails_is_status_1(corpus: Path) -> None:
    path = traces(corpus)[0]
    path.write_bytes(path.read_bytes().replace(b"mutated:leaked-forward-mode", b"mutated:sampling-info-shared"))
    answer = specfuzz("corpus", "check", corpus)
    assert answer.status == 1 and f"FAILS {path}" in answer.out and "VIOLATED 1 of 2" in answer.out


def test_an_engine_that_is_not_here_is_status_4(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFUZZ_ENGINES_DIR", str(tmp_path / "none"))
    path = traces(corpus)[0]
    path.write_bytes(path.read_bytes().replace(b"mutated:leaked-forward-mode", b"sglang"))
    answer = specfuzz("corpus", "check", corpus, "--json")
    assert answer.status == 4 and answer.json["not_checked"][0]["path"] == str(path)


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_checked(corpus: Path) -> None:
    shutil.copy(OLD / "refused" / "version-2.jsonl", corpus / "regressions" / "isolation")
    for verb, key, found in (("list", "traces", 2), ("check", "traces", 2), ("dedupe", "duplicates", 0)):
        answer = specfuzz("corpus", verb, corpus, "--json")
        assert answer.status == 2 and "Use a newer specfuzz" in answer.json["problems"][0]
        assert len(answer.json[key]) == found


def test_an_empty_corpus_cannot_say(tmp_path: Path) -> None:
    assert specfuzz("corpus", "check", tmp_path).status == 3
    assert specfuzz("corpus", "list", tmp_path).status == 0


def test_duplicates_go_only_when_they_are_told_to(corpus: Path) -> None:
    path = traces(corpus)[0]
    trace = load(path)
    longer = path.with_name(f"{path.stem[:-8]}00000000.jsonl")
    longer.write_bytes(dumps(load(path)).replace(b'"note":""', b'"note":"again"'))
    before = contents(corpus)
    answer = specfuzz("corpus", "dedupe", corpus, "--json")
    assert answer.status == 1 and contents(corpus) == before
    (group,) = answer.json["duplicates"]
    assert str(trace.expected) in group["bug"] and len(group["extra"]) == 1
    answer = specfuzz("corpus", "dedupe", corpus, "--write")
    assert answer.status == 0 and len(traces(corpus)) == 2 and "1 traces removed" in answer.out
    assert specfuzz("corpus", "dedupe", corpus).status == 0


def test_older_files_are_migrated_only_when_they_are_told_to(corpus: Path) -> None:
    old = Path(shutil.copy(OLD / "migrated" / "config-without-chunks.jsonl", corpus / "regressions" / "isolation"))
    before = contents(corpus)
    answer = specfuzz("corpus", "migrate", corpus, "--json")
    assert answer.status == 1 and contents(corpus) == before
    assert answer.json["older"] == [str(old)] and answer.json["current"] == 2
    assert specfuzz("corpus", "migrate", corpus, "--write").status == 0
    assert form_of(old).state == "current" and specfuzz("corpus", "migrate", corpus).status == 0


def test_what_cannot_be_migrated_is_refused_and_left_as_it_is(corpus: Path) -> None:
    bad = Path(shutil.copy(OLD / "refused" / "version-0.jsonl", corpus / "regressions" / "isolation"))
    before = bad.read_bytes()
    answer = specfuzz("corpus", "migrate", corpus, "--write", "--json")
    assert answer.status == 2 and bad.read_bytes() == before
    assert "has version 0" in answer.json["refused"][0]["because"]


@pytest.mark.slow
def test_seeds_are_made_and_written_only_when_they_are_told_to(tmp_path: Path) -> None:
    answer = specfuzz("corpus", "seeds", tmp_path, "--max-examples", 1, "--json")
    assert answer.json["written"] == [] and list(tmp_path.iterdir()) == []
    written = specfuzz("corpus", "seeds", tmp_path, "--max-examples", 1, "--write", "--json").json
    assert written["events"] == answer.json["events"] and written["written"]
    assert {Path(path).parent.name for path in written["written"]} == {"goals", "situations"}
    assert specfuzz("corpus", "check", tmp_path).status == 0


@pytest.mark.parametrize(
    "arguments",
    [["list", "/nowhere/at/all"], ["check", "/nowhere/at/all"], ["dedupe", "/dev/null"], ["lst"], ["check", "--nope"]],
)
def test_wrong_use_is_one_sentence_and_status_2(arguments: list[str]) -> None:
    answer = specfuzz("corpus", *arguments)
    assert answer.status == 2 and is_one_sentence(answer.err), answer


# ----------------------------------------------------------------------------------------------------------- smoke
def test_a_smoke_test_needs_seeds_and_leaves_them_as_they_are(tmp_path: Path) -> None:
    for arguments, says in (
        (["--pool", tmp_path], "has no seed traces"),
        (["--pool", tmp_path / "none"], "name the corpus"),
        (["--page-size", "4"], "`--page-size` doesn't fit `--smoke`"),
        (["--seeds", "3"], "`--seeds` doesn't fit `--smoke`"),
    ):
        answer = specfuzz("mutants", "--smoke", *arguments)
        assert answer.status == 2 and is_one_sentence(answer.err) and says in answer.err, answer


def test_a_smoke_test_of_some_mutants_has_its_keys() -> None:
    pool = ROOT / "corpus"
    answer = specfuzz("mutants", "reserve-1x", "stash-dropped", "--smoke", "--pool", pool, "--jobs", 1, "--json")
    data = answer.json
    assert answer.status == 0 and (data["killed"], data["total"], data["violations"]) == (2, 2, [])
    assert {"survivors", "redundant_oracles", "oracles_without_kill", "pool", "share", "equivalent"} <= set(data)
    assert "retraction-resets" in data["oracles_without_kill"]
    (first, _second) = data["mutants"]
    assert {"name", "source", "killed", "by", "seeds_found", "seeds", "events_to_find", "needs"} <= set(first)


def test_a_pool_that_kills_too_few_is_status_1(tmp_path: Path) -> None:
    some = min((ROOT / "corpus" / "seeds" / "goals").iterdir())
    place = tmp_path / "seeds" / "goals"
    place.mkdir(parents=True)
    lines = some.read_text().splitlines()
    (place / "short.jsonl").write_text("\n".join([*lines[:2], '{"steps":1}']) + "\n")
    answer = specfuzz("mutants", "reserve-1x", "--smoke", "--pool", tmp_path, "--jobs", 1)
    assert answer.status == 1 and "survivors (1): reserve-1x" in answer.out
