"""Verbs that run an engine: exit statuses, JSON keys, and that nothing found is ever lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from specfuzz.core.event import Event
from specfuzz.core.notation import format_events
from specfuzz.core.receipt import Receipt
from specfuzz.trace import load
from tests.cli.command import Answer, is_one_sentence, process, specfuzz
from tests.cli.systems_that_fail import CrashesOnce, CrashesOnRetract, HangsAtStart, registered

CLEAN = "submit(a,5,12) prefill(a) settle prepare verify(a=3) publish settle"
#: Found and shrunk by `specfuzz demo`.
MUTANT = "late-result-for-finished"
BROKEN = "submit(a,2,2) prefill(a) prepare abort(a) verify settle settle"
IDENTITY = "dead-rows-are-inert/result_processor/after-event"
COMMON = {"verb", "version", "seed", "seconds", "verdict", "violations"}
ENTRY = {"oracle", "owner", "clock", "phase", "events", "notation", "trace", "baseline"}
SMALL = ["--algorithm", "EAGLE", "--overlap", "on", "--page-size", "1", "--config", "radix=false"]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fuzz_broken(*more: str | int | Path) -> Answer:
    return specfuzz("fuzz", "--system", f"mutated:{MUTANT}", "--seed", "1", "--max-examples", "30", *SMALL, *more)


def test_what_holds_is_status_0_with_every_key_of_fuzz() -> None:
    answer = specfuzz("fuzz", "--seed", "3", "--max-examples", "4", *SMALL, "--json")
    data = answer.json
    assert answer.status == 0 and data["verdict"] == "holds" and data["seed"] == 3 and not data["violations"]
    own = {"system", "algorithms", "examples", "events", "skipped", "events_per_second", "oracles", "reached"}
    assert COMMON | own | {"not_exercised", "lazy_share", "compared"} <= set(data)
    count = next(iter(data["oracles"].values()))
    assert set(count) == {"applied", "violated", "unknown", "not_applicable"}


def test_a_violation_is_status_1_and_its_trace_replays() -> None:
    answer = fuzz_broken("--json")
    assert answer.status == 1 and answer.json["verdict"] == "violated"
    entry = next(e for e in answer.json["violations"] if e["oracle"] == "dead-rows-are-inert")
    assert set(entry) >= ENTRY
    trace = load(entry["trace"])
    assert (format_events(trace.events), len(trace.events)) == (entry["notation"], entry["events"])
    assert specfuzz("replay", entry["trace"]).status == 0
    assert specfuzz("replay", entry["trace"], "--system", "reference").status == 0


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_same_seed_finds_the_same(jobs: int) -> None:
    one, two = fuzz_broken("--json").json, fuzz_broken("--json", "--jobs", jobs).json
    for data in (one, two):
        del data["seconds"], data["events_per_second"]
    assert one == two


def test_a_known_finding_is_reported_and_does_not_fail(tmp_path: Path) -> None:
    baseline = tmp_path / "known.toml"
    entry = f'[[known]]\nidentity = "{IDENTITY}"\nsystem = "mutated:{MUTANT}"\nreason = "planted"\n'
    baseline.write_text(entry + 'versions = ">=0.1"\n')
    answer = specfuzz("replay", BROKEN, "--system", f"mutated:{MUTANT}", "--baseline", baseline, "--json")
    assert answer.status == 0 and answer.json["violations"][0]["baseline"] == "planted"
    baseline.write_text(entry + 'versions = ">=7"\n')
    assert specfuzz("replay", BROKEN, "--system", f"mutated:{MUTANT}", "--baseline", baseline).status == 1
    baseline.write_text(entry.replace(IDENTITY, "one/two"))
    answer = specfuzz("replay", BROKEN, "--baseline", baseline)
    assert answer.status == 2 and is_one_sentence(answer.err)


def test_an_unwritable_corpus_is_said_before_anything_runs() -> None:
    answer = fuzz_broken("--corpus", "/dev/null/corpus")
    assert answer.status == 2 and not answer.out and is_one_sentence(answer.err)


@pytest.mark.slow
def test_a_finding_that_the_corpus_does_not_take_is_kept_and_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = tmp_path / "corpus"

    class Spoils(CrashesOnRetract):
        def apply(self, event: Event) -> Receipt:  # while the campaign runs, somebody puts a file there
            if not corpus.exists():
                corpus.write_text("a file where the folder should be")
            return super().apply(event)

    for flags in (["--json"], []):
        registered(monkeypatch, Spoils)
        answer = specfuzz(
            "fuzz", "--system", "failing", "--seed", "1", "--max-examples", "60", *SMALL, "--corpus", corpus, *flags
        )
        assert answer.status == 2 and "can't be written" in answer.err and "Traceback" not in answer.err
        if flags:
            assert answer.json["error"]["kind"] == "store-error"
            (entry,) = answer.json["violations"]
            assert entry["trace"].startswith("findings/") and entry["notation"].startswith("submit(")
        else:
            assert "VIOLATED" in answer.out and "specfuzz replay findings/" in answer.out
        corpus.unlink()


def test_an_engine_that_hangs_before_the_first_event_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    registered(monkeypatch, HangsAtStart)
    for verb in (["fuzz", "--max-examples", "3", *SMALL], ["replay", CLEAN], ["explain", CLEAN]):
        answer = specfuzz(verb[0], "--system", "failing", *verb[1:], "--json")
        assert (answer.status, answer.json["verdict"]) == (1, "violated"), answer
        (entry,) = answer.json["violations"]
        assert (entry["oracle"], entry["phase"]) == ("engine-fault", "hang")
    answer = specfuzz("replay", "--system", "failing", CLEAN)
    assert "VIOLATED engine-fault [hang]" in answer.out and f"'{CLEAN}'" in answer.out
    assert "specfuzz replay --system failing" in (text := specfuzz("fuzz", "--system", "failing", *SMALL).out)
    assert "'idle'" in text or " idle" in text  # an empty line of events would be refused


def test_a_finding_that_does_not_come_about_again_is_reported_as_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def once() -> type[CrashesOnce]:
        return type("Once", (CrashesOnce,), {})  # counts its own crashes

    flaky = once()
    registered(monkeypatch, lambda: flaky())
    answer = specfuzz("fuzz", "--system", "failing", "--seed", "1", "--max-examples", "60", *SMALL, "--json")
    assert answer.status == 1, answer
    (entry,) = answer.json["violations"]
    assert entry["oracle"] == "engine-fault" and len(load(entry["trace"]).steps) == entry["events"]
    flaky = once()
    answer = specfuzz("replay", "submit(a,3,3) prefill(a) settle retract(a)", "--system", "failing")
    assert answer.status == 1 and "it did not come about again: the engine is not deterministic" in answer.out


def test_an_asked_for_oracle_that_never_applied_cannot_say() -> None:
    answer = specfuzz("fuzz", "--seed", "1", "--max-examples", "1", *SMALL, "--oracles", "idle-pool-is-whole", "--json")
    data = answer.json
    assert (answer.status, data["verdict"]) == ((3, "unknown") if data["not_exercised"] else (0, "holds"))
    assert list(data["oracles"]) == ["idle-pool-is-whole"]


def test_a_replay_has_its_keys_and_one_digest() -> None:
    answer = specfuzz("replay", CLEAN, "--repeat", "5", "--json")
    data = answer.json
    assert COMMON | {"system", "events", "expected", "got", "digest", "repeats"} <= set(data)
    assert (answer.status, data["expected"], data["got"], data["repeats"], data["events"]) == (
        0,
        "holds",
        "holds",
        5,
        7,
    )
    assert data["digests"] == [data["digest"]]


def test_the_digest_does_not_depend_on_the_process() -> None:
    elsewhere = process("replay", CLEAN, "--json", PYTHONHASHSEED="1").json["digest"]
    assert elsewhere == specfuzz("replay", CLEAN, "--json").json["digest"]


def test_a_replay_that_breaks_what_should_hold_is_status_1() -> None:
    answer = specfuzz("replay", BROKEN, "--system", f"mutated:{MUTANT}")
    assert answer.status == 1 and "NOT AS EXPECTED" in answer.out and f"got {IDENTITY}" in answer.out


def test_explain_marks_the_first_cell_that_differs_from_the_clean_engine() -> None:
    answer = specfuzz("explain", BROKEN, "--system", f"mutated:{MUTANT}")
    assert answer.status == 1 and ">first bad cell<: event 6 `settle`, a, host kv_committed_len" in answer.out
    assert max(len(line) for line in answer.out.splitlines() if not line.startswith("replay")) <= 80
    marked = specfuzz("explain", BROKEN, "--system", f"mutated:{MUTANT}", "--json").json["clocks"]
    assert marked["first_bad"] == {"row": 6, "subject": "a", "column": "commit"} and marked["clean"] == "reference"


def test_explain_shows_the_clocks_of_what_holds() -> None:
    answer = specfuzz("explain", CLEAN)
    assert answer.status == 0 and all(word in answer.out for word in ("host", "relay", "device", "HOLDS"))


def test_shrink_ends_minimal_and_keeps_the_identity() -> None:
    longer = BROKEN.replace("prepare abort(a)", "submit(b,4,4) advance(forward) prepare abort(a)") + " idle"
    answer = specfuzz("shrink", longer, "--system", f"mutated:{MUTANT}", "--out", "small.jsonl", "--json")
    data = answer.json
    assert answer.status == 0 and data["before"] > data["after"] <= 7 and data["trace"] == "small.jsonl"
    assert str(load("small.jsonl").expected) == IDENTITY


def test_demo_finds_shrinks_and_replays() -> None:
    answer = specfuzz("demo")
    assert answer.status == 0, answer
    for words in ("VIOLATED", "request ", ">first bad cell<", "specfuzz replay findings/", "REPLAYED"):
        assert words in answer.out


def test_mutants_have_their_keys() -> None:
    answer = specfuzz("mutants", MUTANT, "reserve-1x", "--seeds", "2", "--json")
    data = answer.json
    assert answer.status == 0 and (data["killed"], data["total"], data["violations"]) == (2, 2, [])
    keys = {"name", "source", "killed", "by", "seeds_found", "seeds", "events_to_find", "seconds_to_find"}
    assert {"equivalent", "redundant_oracles"} <= set(data)
    for mutant in data["mutants"]:
        assert keys | {"shrunk_events", "needs"} <= set(mutant) and (mutant["seeds_found"], mutant["seeds"]) == (2, 2)


def test_listed_mutants_have_the_same_keys() -> None:
    data = specfuzz("mutants", "--list", "--seed", "7", "--json").json
    tried = specfuzz("mutants", MUTANT, "--seeds", "1", "--json").json
    assert set(data) == set(tried) and data["seed"] == 7
    assert (data["killed"], data["total"], data["redundant_oracles"]) == (0, len(data["mutants"]), [])
    for mutant in data["mutants"]:
        assert set(mutant) >= set(tried["mutants"][0]) and mutant["summary"] and mutant["killed_by"]
        assert (mutant["killed"], mutant["by"], mutant["seeds_found"], mutant["seeds"]) == (False, [], 0, 0)
        assert mutant["events_to_find"] is mutant["seconds_to_find"] is mutant["shrunk_events"] is None


def test_a_survivor_is_status_1() -> None:
    answer = specfuzz("mutants", MUTANT, "--seeds", "1", "--max-examples", "1", "--json")
    assert answer.status == 1 and answer.json["verdict"] == "violated" and answer.json["killed"] == 0


def test_prove_says_which_lemma_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from specfuzz.cli.prove import prove

    (tmp_path / "lemmas_of_this_test.py").write_text(
        'def double(n: int) -> int:\n    """Twice.\n\n    pre: 0 <= n <= 9\n    post: __return__ != 8\n    """\n'
        "    return 2 * n\n\n\nLEMMAS = (double,)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (lemma,) = prove("lemmas_of_this_test")
    assert lemma.state == "refuted" and "double(4)" in lemma.because


@pytest.mark.slow
def test_every_lemma_is_proved() -> None:
    answer = specfuzz("prove", "--json")
    assert answer.status == 0 and all(lemma["state"] == "proved" for lemma in answer.json["lemmas"])


@pytest.mark.slow
def test_bench_has_rows_and_names_the_machine() -> None:
    data = specfuzz("bench", "--system", "reference", "--slices", "1", "--max-examples", "3", "--json").json
    assert data["machine"] and all({"name", "value", "unit", "baseline", "ratio"} <= set(row) for row in data["rows"])


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ("submit(a,2,3) verify prefill(a) settle", "1 of 4 events were not applied, first `verify`: it was not legal"),
        (
            "submit(a,2,3,grammar=2)",
            "1 of 1 events were not applied, first `submit(a,2,3,grammar=2)`: it was not legal",
        ),
        ("submit(a,2,3) prefill(a)", "2 events, digest"),
    ],
)
def test_a_replay_names_the_first_event_that_was_not_applied(events: str, said: str) -> None:
    assert said in specfuzz("replay", events).out


def test_what_comes_behind_the_violation_was_not_illegal() -> None:
    answer = specfuzz("replay", BROKEN + " idle", "--system", f"mutated:{MUTANT}")
    assert answer.status == 1 and "first `idle`: the run had ended" in answer.out


def test_a_checkout_needs_a_system_that_is_driven_from_one(tmp_path: Path) -> None:
    for system in ("reference", f"mutated:{MUTANT}", "rerun:reference"):
        answer = specfuzz("fuzz", "--system", system, "--engine-path", tmp_path)
        assert answer.status == 2 and "Add `--system sglang`" in answer.err
