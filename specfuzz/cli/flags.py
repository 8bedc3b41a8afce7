"""The common flags: each is declared once, a verb names those that mean something to it and gets them as one record."""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click

from specfuzz.cli.outcome import Outcome
from specfuzz.errors import UsageError

#: Largest seed; Hypothesis takes any integer, 32 bits are easy to retype.
MOST_SEED = (1 << 32) - 1
Command = Callable[..., Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The common flags as given; None (or empty) where the user said nothing.

    seed: fixes everything. max_examples, max_time (seconds): bounds. jobs: worker processes. system: NAME or
    NAME:ARGUMENT. algorithm: name or "all". overlap: "on", "off" or "both". page_size, topk, config: fields of the
    engine configuration. oracles: names, comma-separated or repeated. engine_path: checkout of the engine. device:
    "cpu" or "cuda". baseline: file of known findings. step_timeout: seconds that one event of an engine may take.
    """

    seed: int | None = None
    max_examples: int | None = None
    max_time: float | None = None
    jobs: int = 1
    json: bool = False
    system: str | None = None
    algorithm: str | None = None
    overlap: str | None = None
    page_size: int | None = None
    topk: int | None = None
    config: tuple[str, ...] = ()
    oracles: tuple[str, ...] = ()
    engine_path: str | None = None
    device: str = "cpu"
    baseline: str | None = None
    step_timeout: float = 30.0


_POSITIVE = click.IntRange(min=1)


class _Seconds(click.FloatRange):
    """A positive, finite number of seconds (`nan` compares with nothing, so a range alone would let it pass)."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


class _Name(click.ParamType):
    """A text that isn't empty: an empty one would pass for a flag that was left out."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value.strip():
            self.fail(f"{value!r} names nothing; leave the flag out instead.", param, ctx)
        return value


_NAME = _Name()
_SECONDS = _Seconds(min=0, min_open=True, max=10_000_000)
_OPTIONS: dict[str, Callable[[Command], Command]] = {
    "seed": click.option(
        "--seed", type=click.IntRange(0, MOST_SEED), help="Fixes all that chance decides; drawn anew without it."
    ),
    "max_examples": click.option("--max-examples", type=_POSITIVE, help="Runs at most; a bound that ends clean holds."),
    "max_time": click.option("--max-time", type=_SECONDS, help="Seconds at most; a seed repeats the same prefix."),
    "jobs": click.option("--jobs", type=_POSITIVE, default=1, show_default=True, help="Processes side by side."),
    "json": click.option("--json", is_flag=True, help="One JSON object on stdout and nothing else there."),
    "system": click.option(
        "--system", type=_NAME, metavar="NAME",
        help="reference, mutated:MUTANT, lockstep:A,B, rerun:A or sglang; see `specfuzz systems`.",
    ),
    "algorithm": click.option("--algorithm", type=_NAME, metavar="NAME|all", help="See `specfuzz algorithms`."),
    "overlap": click.option("--overlap", type=click.Choice(["on", "off", "both"]), help="Settle one launch late."),
    "page_size": click.option("--page-size", type=int, help="Tokens of one KV page."),
    "topk": click.option("--topk", type=int, help="Branches of the draft; 1 is a chain."),
    "config": click.option(
        "--config", multiple=True, metavar="KEY=VALUE", help="Any field of the engine configuration; may be repeated."
    ),
    "oracles": click.option(
        "--oracles", multiple=True, metavar="NAME,...", help="Judge by these only; each must have applied."
    ),
    "engine_path": click.option("--engine-path", type=_NAME, metavar="DIR", help="Drive the engine of this checkout."),
    "device": click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True),
    "baseline": click.option(
        "--baseline", type=_NAME, metavar="FILE", help="Known findings, which don't fail the run (TOML)."
    ),
    "step_timeout": click.option(
        "--step-timeout", type=_SECONDS, default=30.0, show_default=True, help="Seconds for one event of an engine."
    ),
}  # fmt: skip
#: What describes one engine, and what opens it.
ENGINE = ("algorithm", "overlap", "page_size", "topk", "config")
OPENING = ("system", "engine_path", "device", "step_timeout")


def with_flags(*names: str) -> Callable[[Command], Callable[..., Outcome]]:
    """Give a verb the named common flags; its function receives one `Flags` first, then its own arguments.

    While it runs, whatever a library prints goes to stderr: stdout belongs to the report.
    """

    def decorate(function: Command) -> Callable[..., Outcome]:
        @functools.wraps(function)
        def call(**given: Any) -> Outcome:
            common = {field.name: given.pop(field.name) for field in fields(Flags) if field.name in given}
            with contextlib.redirect_stdout(sys.stderr):
                return function(Flags(**common), **given)

        wrapped: Command = call
        for name in reversed(names):
            wrapped = _OPTIONS[name](wrapped)
        return wrapped

    return decorate


def names_of(given: tuple[str, ...]) -> tuple[str, ...]:
    """`a,b` and repeated flags as one tuple of names, without doubles."""
    for text in given:
        if not text.strip(" ,"):
            raise UsageError(f"`{text}` names nothing; leave it out to mean all.")
    return tuple(dict.fromkeys(name.strip() for text in given for name in text.split(",") if name.strip()))
