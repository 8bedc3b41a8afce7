"""The command-line options, and the settings that they make; whatever is wrong with one is a single sentence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from specfuzz.suite.places import CORPUS, check_place

if TYPE_CHECKING:
    from specfuzz.suite.settings import Settings

#: As on specfuzz' own command line: 32 bits are easy to retype.
MOST_SEED = (1 << 32) - 1
#: More examples than anybody waits for.
MOST_EXAMPLES = 1_000_000_000

_HELP = {
    "seed": ("N", "fixes every example of every machine; drawn anew without it"),
    "max-examples": ("N", "examples per machine, over all of its configurations; without it the profile says how many"),
    "profile": ("NAME", "dev, ci or nightly, for every machine, whatever it says itself"),
    "baseline": ("FILE", "known findings, which don't fail a test (TOML)"),
    "corpus": ("DIR", "where shrunk failures are kept and replayed from; default: .specfuzz in the root directory"),
}


def add_options(parser: pytest.Parser) -> None:
    """Declare `--specfuzz-…`. They are read as text, because our own words about a bad value are shorter."""
    group = parser.getgroup("specfuzz", "specfuzz: fuzzing the bookkeeping of speculative-decoding schedulers")
    for name, (metavar, text) in _HELP.items():
        group.addoption(f"--specfuzz-{name}", metavar=metavar, default=None, help=text)


def any_given(config: pytest.Config) -> bool:
    """Whether the user said anything, so that it has to be checked."""
    return any(_given(config, name) is not None for name in _HELP)


def seed_given(config: pytest.Config) -> int | None:
    """The seed, or None; raises pytest.UsageError."""
    return _number(config, "seed", 0, MOST_SEED)


def corpus_folder(config: pytest.Config) -> Path:
    """Where failures are kept; raises pytest.UsageError."""
    folder = _given(config, "corpus")
    if folder == "":
        raise pytest.UsageError("`--specfuzz-corpus` names no folder.")
    return Path(config.rootpath / CORPUS if folder is None else config.invocation_params.dir / folder)


def read_settings(config: pytest.Config, seed: int) -> Settings:
    """The settings of the session; raises pytest.UsageError in one sentence."""
    from specfuzz.campaign.baseline import load_baseline
    from specfuzz.errors import SpecfuzzError
    from specfuzz.state_machine.profiles import profile_of
    from specfuzz.suite.settings import Settings

    here, profile, baseline = config.invocation_params.dir, _given(config, "profile"), _given(config, "baseline")
    corpus = corpus_folder(config)
    try:
        if _given(config, "corpus") is not None:
            check_place(corpus)  # rather now than when a failure has been found
        return Settings(
            seed=seed, profile=None if profile is None else profile_of(profile), corpus=corpus,
            max_examples=_number(config, "max-examples", 1, MOST_EXAMPLES),
            baseline=load_baseline(None if baseline is None else str(here / baseline)),
        )  # fmt: skip
    except SpecfuzzError as error:
        raise pytest.UsageError(str(error)) from None


def _given(config: pytest.Config, name: str) -> str | None:
    value = config.getoption(f"--specfuzz-{name}")
    return None if value is None else str(value)


def _number(config: pytest.Config, name: str, least: int, most: int) -> int | None:
    text = _given(config, name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
        raise pytest.UsageError(f"`--specfuzz-{name}`={text[:40]!r} is no number from {least} to {most}.")
    return int(text)
