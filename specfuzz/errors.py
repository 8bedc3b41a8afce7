"""Every exception of specfuzz, with the exit status that the command line gives it.

SpecfuzzError
├── UsageError            exit 2: wrong use or unreadable input
│   ├── ConfigError           a field does not fit another one; names both
│   ├── UnknownName           a registry has no such name; lists the closest
│   ├── NotationError         an event is not written in the one-line notation
│   ├── TraceError            a trace file is truncated, hostile or of a foreign version
│   └── StoreError            the corpus folder can't be written
├── MissingPart           exit 4: an engine, a device or a package is not here
├── DeviceFault           the (simulated) device can't do what was asked
└── EngineFault           the engine under test raised, hung or died: a finding, never a kill
"""

from __future__ import annotations

import re

#: Characters that a sentence may have, and a single word in it: room for the longest list of names and for a path.
_LONGEST, _LONGEST_WORD = 4000, 200


def tame(text: str, most: int = _LONGEST) -> str:
    """Text that may quote anything, as one printable line: escaped where it can't be shown, cut where it has no end.

    Messages of errors pass through here and are cut nowhere else. Taming twice changes nothing.
    """
    text = _cut(text, 4 * most)  # before anything looks at every character of a megabyte
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    if len(text) > _LONGEST_WORD:
        text = re.sub(rf"\S{{{_LONGEST_WORD + 1},}}", lambda word: _cut(word[0], _LONGEST_WORD), text)
    return _cut(text, most)


def _cut(text: str, most: int) -> str:
    """At most so many characters: what stands at the end often says what to do, so the middle goes."""
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}…{text[len(text) - tail :]}"


class SpecfuzzError(Exception):
    """Base of every error that specfuzz raises on purpose; `exit_status` is what the command line returns."""

    exit_status = 2

    def __init__(self, message: str = "") -> None:
        """message: one sentence; whatever it quotes is tamed here."""
        super().__init__(tame(message))


class UsageError(SpecfuzzError):
    """The user asked for something that can't be done as asked; the message says what to do instead."""


class ConfigError(UsageError):
    """An engine configuration contradicts itself; the message names both fields and their values."""


class UnknownName(UsageError):
    """A name is not registered; the message offers the closest ones."""


class NotationError(UsageError):
    """A token of the one-line event notation can't be read; the message quotes it."""


class TraceError(UsageError):
    """A trace can't be read: truncated, too deep, foreign version, or not a trace at all."""


class StoreError(UsageError):
    """The corpus can't be read or written; nothing that was there has been lost."""


class MissingPart(SpecfuzzError):
    """A needed part (engine environment, CUDA, a package) is not on this machine; the message says how to get it."""

    exit_status = 4


class DeviceFault(SpecfuzzError):
    """The device port was asked for something that it can't do, or a queued operation failed while it ran."""


class EngineFault(SpecfuzzError):
    """The engine under test raised, hung or died while it applied an event.

    It is reported as the finding `engine-fault` with the trace so far; it never counts as a mutant's kill.
    """

    exit_status = 1

    def __init__(self, message: str, *, kind: str = "exception", where: str = "") -> None:
        """kind: "exception", "hang" or "crash". where: exception class and engine function, part of the identity."""
        super().__init__(message)
        self.kind = kind
        self.where = where
