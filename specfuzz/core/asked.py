"""What was asked for, request by request and forward by forward: the records that the legality ledger keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

from specfuzz.core.event import Submit
from specfuzz.core.language import Continuation, prompt_tokens


class Standing(StrEnum):
    """Where a request stands for the scheduler."""

    WAITING = "waiting"
    CHUNKED = "chunked"  # a part of its prompt was launched: its next prefill goes on where that ended
    RUNNING = "running"  # admitted: from the launch of its last chunk until it finishes or is retracted
    FINISHED = "finished"


@lru_cache(maxsize=1024)  # a campaign asks for the same few hundred requests over and over
def _plain_text(rid: str, prompt_len: int, shared_len: int) -> Continuation:
    """The text of a request without a stop, shared by every ledger of the process: nobody may arm a stop in it."""
    return Continuation(prompt_tokens(rid, prompt_len, shared_len))


def _copied(text: Continuation) -> Continuation:
    twin = Continuation(())
    twin.stops = set(text.stops)
    for column in ("tokens", "cells1", "cells2", "digest", "reduction"):
        setattr(twin, column, getattr(text, column)[:])
    return twin


@dataclass(slots=True)
class Asked:
    """One request as it was asked for. decided: output tokens fixed by launched forwards; settled: those on the host.

    stop_at: output index of the stop token that its text has, armed or the grammar's, or None. armed: whether a
    `finish` has set it. extend_settled: whether the result of its last prefill was processed, which is that of its last
    chunk. dropping: it was aborted between two chunks, so the next scheduling step drops it;
    one that was aborted before goes on to its last chunk. lives: how often it was admitted.
    """

    submit: Submit
    standing: Standing = Standing.WAITING
    decided: int = 0
    settled: int = 0
    stop_at: int | None = None
    armed: bool = False
    aborted: bool = False
    dropping: bool = False
    was_retracted: bool = False
    extend_settled: bool = False
    lives: int = 0
    text: Continuation = field(init=False)

    def __post_init__(self) -> None:
        self.text = _plain_text(self.submit.rid, self.submit.prompt_len, self.submit.shared_len)
        if self.submit.grammar:
            self._stop(self.submit.grammar - 1)

    def stop_end(self, max_accept: int) -> int:
        """Output index before which a stop may be armed: no run reaches it, or the text has ended there already.

        The last run may accept tokens behind the cap; a stop among them must not be taken for the end.
        """
        return self.submit.max_new + max_accept - 1 if self.stop_at is None else self.stop_at

    def arm_stop(self, at: int) -> None:
        """The stop token stands at output index `at` from now on, before any other one."""
        self.armed = True
        self._stop(at)

    def _stop(self, at: int) -> None:
        # A grammar that an earlier stop ends constrains nothing behind it.
        self.stop_at = at
        self.text = _copied(self.text)
        self.text.stops.clear()
        self.text.arm_stop(self.submit.prompt_len + at)


@dataclass(slots=True)
class Launched:
    """One launched, unsettled forward as it was asked for. accept: asked accept length, lives: incarnation, by row.

    admitted: (rid, prefix_len, extend_len) of the requests that it prefills; extended: their rids. middle: those of
    them whose prompt goes on behind this launch's chunk.
    """

    number: int
    mode: str
    rids: tuple[str, ...]
    accept: tuple[int, ...]
    lives: tuple[int, ...]
    extended: tuple[str, ...] = ()
    middle: tuple[str, ...] = ()
    admitted: tuple[tuple[str, int, int], ...] = ()
