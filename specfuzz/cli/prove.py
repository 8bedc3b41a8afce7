"""`specfuzz prove`: CrossHair on the contracts of the integer lemmas that the reference calls."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import subprocess
import sys
from dataclasses import dataclass

import click
from rich.text import Text

from specfuzz.cli.flags import Flags, with_flags
from specfuzz.cli.outcome import CANT_SAY, FINE, FOUND, Outcome
from specfuzz.cli.tables import columns
from specfuzz.errors import MissingPart

MODULE = "specfuzz.core.lemmas"
#: Seconds for one postcondition unless `--max-time` says otherwise; the hardest needs a few on a loaded core.
PER_CONDITION = 30.0
PROVED, REFUTED, UNKNOWN = "proved", "refuted", "unknown"
_CONFIRMED = "Confirmed over all paths."
_LINE = re.compile(r"^.*?:(\d+): (error|info|warning): (.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lemma:
    """What came of one lemma. conditions: its postconditions; because: CrossHair's words where it isn't proved."""

    name: str
    summary: str
    conditions: int
    state: str
    because: str = ""


@click.command("prove")
@with_flags("json", "max_time", "seed")
def command(flags: Flags) -> Outcome:
    """Prove the lemmas within their stated bounds; --max-time is shared by all conditions.

    Exit status 0 if every lemma is proved, 1 if one is refuted, 3 if one stays unknown.
    """
    lemmas = prove(MODULE, max_time=flags.max_time)
    states = [lemma.state for lemma in lemmas]
    verdict, status = "holds", FINE
    if REFUTED in states:
        verdict, status = "violated", FOUND
    elif UNKNOWN in states or not states:
        verdict, status = "unknown", CANT_SAY
    rows = [(lemma.name, lemma.state, lemma.conditions, lemma.because or lemma.summary) for lemma in lemmas]
    lines: list[Text | str] = [
        *columns(("lemma", "state", "conditions", "what it says, or why not"), rows),
        "",
        f"{states.count(PROVED)} of {len(states)} proved",
    ]
    objects = [
        {"name": m.name, "state": m.state, "conditions": m.conditions, "because": m.because, "summary": m.summary}
        for m in lemmas
    ]
    return Outcome(verdict=verdict, status=status, seed=flags.seed, more={"lemmas": objects}, lines=lines)


def prove(module: str, *, max_time: float | None = None) -> list[Lemma]:
    """Check every function in the module's LEMMAS; raises MissingPart without CrossHair."""
    if importlib.util.find_spec("crosshair") is None:
        raise MissingPart("CrossHair is not installed: `pip install crosshair-tool`.")
    lemmas = importlib.import_module(module).LEMMAS
    posts = {
        lemma: sum(line.strip().startswith("post:") for line in (lemma.__doc__ or "").splitlines()) for lemma in lemmas
    }
    conditions = max(sum(posts.values()), 1)
    each = PER_CONDITION if max_time is None else max_time / conditions
    answer = _crosshair(module, each, each * conditions + 60)
    said: dict[str, list[tuple[str, str]]] = {lemma.__name__: [] for lemma in lemmas}
    places = {lemma.__name__: _span(lemma) for lemma in lemmas}
    for line in answer.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        number = int(match[1])
        for name, (start, end) in places.items():
            if start <= number < end:
                said[name].append((match[2], match[3]))
    return [_judge(lemma, posts[lemma], said[lemma.__name__]) for lemma in lemmas]


def _judge(lemma: object, conditions: int, said: list[tuple[str, str]]) -> Lemma:
    name = getattr(lemma, "__name__", "?")
    summary = (getattr(lemma, "__doc__", "") or "").strip().splitlines()[0]
    wrong = [words for kind, words in said if kind == "error"]
    confirmed = sum(words == _CONFIRMED for _, words in said)
    if wrong:
        return Lemma(name=name, summary=summary, conditions=conditions, state=REFUTED, because=wrong[0])
    if conditions and confirmed == conditions:
        return Lemma(name=name, summary=summary, conditions=conditions, state=PROVED)
    open_ones = [words for _, words in said if words != _CONFIRMED]
    because = open_ones[0] if open_ones else f"only {confirmed} of {conditions} conditions were confirmed"
    return Lemma(name=name, summary=summary, conditions=conditions, state=UNKNOWN, because=because)


def _span(function: object) -> tuple[int, int]:
    lines, start = inspect.getsourcelines(function)  # type: ignore[arg-type]
    return start, start + len(lines)


def _crosshair(module: str, per_condition: float, limit: float) -> str:
    command = [
        sys.executable, "-m", "crosshair", "check", "--analysis_kind=PEP316", "--report_all",
        f"--per_condition_timeout={per_condition}", f"--per_path_timeout={per_condition / 2}", module,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else late.stdout or ""
    if done.returncode not in (0, 1):
        raise MissingPart(f"CrossHair could not run: {' '.join((done.stderr or done.stdout).split())[-300:]}")
    return done.stdout
