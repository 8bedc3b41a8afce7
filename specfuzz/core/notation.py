"""One-line notation of events, for tests, reports and issue texts: `submit(a,5,12) prefill(a) prepare verify(a=3)`.

Grammar, one token per event, tokens separated by white space:
  submit(RID,PROMPT,MAX_NEW[,SHARED][,grammar=N])  prefill(RID[,N])  mix(RID[,N])  prepare  verify[(RID=A,...)]  publish
  advance(STREAM[,COUNT])  settle  finish(RID@INDEX)  abort(RID)  retract(RID)  evict(N)  idle
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from specfuzz.core.event import (
    EVENT_TYPES,
    STREAMS,
    Abort,
    Advance,
    Event,
    Evict,
    Finish,
    Idle,
    Mix,
    Prefill,
    Prepare,
    Publish,
    Retract,
    Settle,
    Submit,
    Verify,
)
from specfuzz.errors import NotationError

_USAGE = {
    "submit": "`submit(RID,PROMPT,MAX_NEW)`, then `,SHARED` and `,grammar=N` as wanted",
    "prefill": "`prefill(RID)` or `prefill(RID,N)`",
    "mix": "`mix(RID)` or `mix(RID,N)`",
    "prepare": "`prepare`",
    "verify": "`verify` or `verify(RID=ACCEPTED,...)`",
    "publish": "`publish`",
    "advance": "`advance(STREAM)` or `advance(STREAM,COUNT)`",
    "settle": "`settle`",
    "finish": "`finish(RID@INDEX)`",
    "abort": "`abort(RID)`",
    "retract": "`retract(RID)`",
    "evict": "`evict(N)`",
    "idle": "`idle`",
}
_TOKEN = re.compile(r"\s*([a-z_]+)(?:\(([^()]*)\))?(?=\s|$)")
_RID = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")
#: No count in a trace is larger; keeps a hostile text from asking for the moon.
_MOST = 1_000_000


def format_event(event: Event) -> str:
    """The event as one token."""
    match event:
        case Submit(rid, prompt_len, max_new, shared_len, grammar):
            shared = f",{shared_len}" if shared_len else ""
            return f"submit({rid},{prompt_len},{max_new}{shared}" + (f",grammar={grammar})" if grammar else ")")
        case Prefill(rid, n):
            return f"prefill({rid}" + (f",{n})" if n else ")")
        case Mix(rid, n):
            return f"mix({rid}" + (f",{n})" if n else ")")
        case Verify(accept):
            return "verify(" + ",".join(f"{rid}={run}" for rid, run in accept) + ")" if accept else "verify"
        case Advance(stream, count):
            return f"advance({stream}" + (f",{count})" if count != 1 else ")")
        case Finish(rid, at):
            return f"finish({rid}@{at})"
        case Abort(rid):
            return f"abort({rid})"
        case Retract(rid):
            return f"retract({rid})"
        case Evict(n):
            return f"evict({n})"
        case Prepare():
            return "prepare"
        case Publish():
            return "publish"
        case Settle():
            return "settle"
        case Idle():
            return "idle"
    raise NotationError(f"`{event!r}` is not an event.")


def format_events(events: Iterable[Event]) -> str:
    """The events as one line."""
    return " ".join(format_event(event) for event in events)


def parse_events(text: str) -> tuple[Event, ...]:
    """Events of one line; raises NotationError quoting the first token that can't be read."""
    events: list[Event] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise NotationError(
                f"can't read `{text[position : position + 40].strip()}` as an event; see `specfuzz explain --help`."
            )
        events.append(_parse(match[1], match[2], match[0].strip()))
        position = match.end()
    return tuple(events)


def _parse(verb: str, inside: str | None, token: str) -> Event:
    if verb not in EVENT_TYPES:
        raise NotationError(f"`{token}`: there is no event `{verb}`; events: {', '.join(EVENT_TYPES)}.")
    arguments = [argument.strip() for argument in inside.split(",")] if inside else []
    try:
        return _READERS[verb](arguments)
    except (ValueError, IndexError):
        raise NotationError(f"`{token}` doesn't have the arguments of `{verb}`; write {_USAGE[verb]}.") from None


def _rid(text: str) -> str:
    if not _RID.fullmatch(text):
        raise ValueError(text)
    return text


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 7 or int(text) > _MOST:
        raise ValueError(text)
    return int(text)


def _exactly(arguments: list[str], least: int, most: int) -> list[str]:
    if not least <= len(arguments) <= most:
        raise ValueError(len(arguments))
    return arguments


def _read_submit(a: list[str]) -> Event:
    named = a.pop() if "=" in a[-1] else "grammar=0"
    _exactly(a, 3, 4)
    name, _, length = named.partition("=")
    if name != "grammar":
        raise ValueError(name)
    return Submit(_rid(a[0]), _number(a[1]), _number(a[2]), _number(a[3]) if len(a) > 3 else 0, _number(length))


def _read_verify(a: list[str]) -> Event:
    pairs = [argument.split("=") for argument in a]
    return Verify(tuple((_rid(rid), _number(run)) for rid, run in pairs))


def _read_advance(a: list[str]) -> Event:
    _exactly(a, 1, 2)
    if a[0] not in STREAMS:
        raise ValueError(a[0])
    return Advance(a[0], _number(a[1]) if len(a) > 1 else 1)


def _read_finish(a: list[str]) -> Event:
    _exactly(a, 1, 1)
    rid, at = a[0].split("@")
    return Finish(_rid(rid), _number(at))


def _named(event_type: Callable[[str], Event]) -> Callable[[list[str]], Event]:
    return lambda a: event_type(_rid(_exactly(a, 1, 1)[0]))


def _named_upto(event_type: Callable[[str, int], Event]) -> Callable[[list[str]], Event]:
    return lambda a: event_type(_rid(_exactly(a, 1, 2)[0]), _number(a[1]) if len(a) > 1 else 0)


def _bare(event: Event) -> Callable[[list[str]], Event]:
    def read(arguments: list[str]) -> Event:
        _exactly(arguments, 0, 0)
        return event

    return read


_READERS: dict[str, Callable[[list[str]], Event]] = {
    "submit": _read_submit,
    "prefill": _named_upto(Prefill),
    "mix": _named_upto(Mix),
    "prepare": _bare(Prepare()),
    "verify": _read_verify,
    "publish": _bare(Publish()),
    "advance": _read_advance,
    "settle": _bare(Settle()),
    "finish": _read_finish,
    "abort": _named(Abort),
    "retract": _named(Retract),
    "evict": lambda a: Evict(_number(_exactly(a, 1, 1)[0])),
    "idle": _bare(Idle()),
}
