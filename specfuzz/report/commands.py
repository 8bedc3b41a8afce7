"""The command line that shows a run again, without any file: what a report prints for pasting."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import fields

from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event, Idle
from specfuzz.core.notation import format_events


def replay_command(
    system: str, config: EngineConfig, events: Sequence[Event], verb: str = "replay", *, more: Sequence[str] = ()
) -> str:
    """The command line that shows these events again. system: as `--system` takes it. more: further words, unquoted.

    An engine that fails before the first event does so with `idle` too, and an empty line would be refused.
    """
    words = ["specfuzz", verb]
    if system != "reference":
        words += ["--system", system]
    words += [*more, *_config_words(config)]
    return " ".join([*map(shlex.quote, words), shlex.quote(format_events(events or (Idle(),)))])


def _config_words(config: EngineConfig) -> list[str]:
    """Flags for the fields that differ from the defaults."""
    default, words = EngineConfig(), []
    for field in fields(EngineConfig):
        value = getattr(config, field.name)
        if value == getattr(default, field.name):
            continue
        if field.name in ("algorithm", "topk", "page_size"):
            words += ["--" + field.name.replace("_", "-"), str(value)]
        elif field.name == "overlap":
            words += ["--overlap", "on" if value else "off"]
        else:
            words += ["--config", f"{field.name}={str(value).lower() if isinstance(value, bool) else value}"]
    return words
