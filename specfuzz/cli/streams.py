"""Where output goes and what happens where it can't: the report to stdout or a sentence why not, progress to stderr."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from specfuzz.cli.outcome import BROKEN_PIPE, FINE, WRONG_USE


@contextlib.contextmanager
def tidy_streams() -> Iterator[None]:
    """While a command runs: no stream refuses a character, and a stderr that fails doesn't end it."""
    _occupy_standard_descriptors()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that can't show a character shows a question mark
    with contextlib.redirect_stderr(_Progress(sys.stderr)):
        yield


def deliver(write: Callable[[], None]) -> int:
    """Do what writes the report to stdout; FINE, or the exit status of a stdout that can't be written."""
    try:
        write()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read it has gone, and needs no words about it
        _silence(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:
        _silence(sys.stdout)
        say(f"specfuzz: the report can't be written to stdout: {error.strerror or error}.")
        return WRONG_USE
    return FINE


def say(line: str) -> None:
    """One line on stderr; in a worker process of `--jobs`, too, it may fail without a word."""
    with contextlib.suppress(OSError):
        print(line, file=sys.stderr, flush=True)


class _Progress(io.TextIOBase):
    """stderr as long as it can be written: nobody loses a campaign because nobody reads its progress."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream  # None: it was closed before we started

    def write(self, text: str, /) -> int:
        self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(lambda stream: stream.flush())

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def _try(self, use: Callable[[TextIO], object]) -> None:
        stream = self._stream
        if stream is None:
            return
        try:
            use(stream)
        except (OSError, ValueError):  # ValueError: somebody closed it
            _silence(stream)
            self._stream = None


def _silence(stream: TextIO) -> None:
    """Send what is still buffered nowhere: the interpreter's own flush at its end would fail too, and say so."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _occupy_standard_descriptors() -> None:
    """A closed descriptor 0, 1 or 2 would be given to the next file that is opened, and then be written by a print."""
    with contextlib.suppress(OSError):
        descriptor = os.open(os.devnull, os.O_RDWR)
        while descriptor <= 2:
            descriptor = os.dup(descriptor)
        os.close(descriptor)
