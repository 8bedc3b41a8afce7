"""`specfuzz algorithms`: the speculative algorithms that the reference runs."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum, Flag
from typing import Any

import click

from specfuzz.cli.flags import Flags, with_flags
from specfuzz.cli.outcome import FINE, Outcome
from specfuzz.cli.tables import columns


@click.command("algorithms")
@with_flags("json", "seed")
def command(flags: Flags) -> Outcome:
    """List the algorithms, with what each one can be asked to do."""
    from specfuzz.reference.algorithms import ALGORITHMS

    listed = [{"name": name, **described(ALGORITHMS.get(name))} for name in ALGORITHMS.names()]
    rows = [(entry["name"], entry.get("summary", "")) for entry in listed]
    return Outcome(
        verdict="holds",
        status=FINE,
        seed=flags.seed,
        more={"algorithms": listed},
        lines=[*columns(("algorithm", "summary"), rows)],
    )


def described(thing: Any) -> dict[str, Any]:
    """The plain-data part of a declaration: its first docstring line and every field that JSON can hold."""
    doc = (getattr(thing, "__doc__", "") or "").strip().splitlines()
    data: dict[str, Any] = {"summary": getattr(thing, "summary", None) or (doc[0] if doc else "")}
    names = [field.name for field in fields(thing)] if is_dataclass(thing) else []
    for name in names:
        value = getattr(thing, name)
        if isinstance(value, Flag):
            data[name] = [flag.name for flag in type(value) if flag in value and flag.value]
        elif isinstance(value, Enum):
            data[name] = str(value.value)
        elif isinstance(value, str | int | float | bool | None):
            data[name] = value
        elif isinstance(value, tuple | list) and all(isinstance(item, str | int) for item in value):
            data[name] = [*value]
    return data
