"""Ctrl-C, SIGTERM and SIGHUP: at once where nothing would be lost, else after the example in hand and with a report."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Protocol

from specfuzz.cli.outcome import INTERRUPTED

#: Those that ask a command to end; one that was ignored before (nohup) stays so.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Flag(Protocol):
    """A number in memory that processes share without a lock: a handler may set it whatever it interrupted."""

    value: int


class _State:
    """number: the first signal that arrived, 0 for none. deferring: after `defer`. flag: shared with workers."""

    number = 0
    deferring = False
    flag: Flag | None = None


def stop_asked() -> bool:
    """Whether the user wants the run to end; campaigns and shrinkers ask after every example and every try."""
    return bool(_State.number or (_State.flag is not None and _State.flag.value))


def interrupted_status() -> int:
    """The exit status of a command that a signal ended, as shells know it; 0 if none did."""
    return 128 + _State.number if _State.number else 0


@contextlib.contextmanager
def caught() -> Iterator[None]:
    """For one command: every signal raises KeyboardInterrupt, but after `defer` the first one is only noted."""
    _State.number, _State.deferring = 0, False

    def handle(number: int, _frame: FrameType | None) -> None:
        again = _State.number
        _State.number = again or number
        if _State.flag is not None:
            _State.flag.value = 1
        if again or not _State.deferring:
            raise KeyboardInterrupt

    before = {}
    try:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handle)
    except ValueError:  # not in the main thread: whoever runs us there handles its own signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def defer() -> None:
    """From here to the end of the command the first signal is only noted: there may be findings to report."""
    _State.deferring = True


@contextlib.contextmanager
def passed_on(flag: Flag) -> Iterator[None]:
    """While other processes work: they learn of a signal by the flag."""
    _State.flag = flag
    try:
        if _State.number:  # it came before there was a flag
            flag.value = 1
        yield
    finally:
        _State.flag = None


def leave_to_parent(flag: Flag) -> None:
    """In a worker process: signals reach the whole group, but the parent decides what they mean; and ends with it."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    _State.flag = flag
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(INTERRUPTED)  # killed without a word: nobody is left to take our report
