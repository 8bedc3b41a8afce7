"""Traces as strict, versioned JSON lines: a header, one line per step, a footer with the number of steps.

Whatever is wrong with a file (truncated, foreign, too large, too deep, not text, not a file) ends in a TraceError of
one sentence that names the file, the line and the JSON path; never in another exception, and never in half a trace.
"""

from __future__ import annotations

import os
import stat
from typing import Any, TypeVar

import msgspec

from specfuzz.core.config import EngineConfig
from specfuzz.core.trace import FORMAT_VERSION, Trace, TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import ConfigError, TraceError
from specfuzz.trace._wire import (
    FORMAT,
    Footer,
    Header,
    Line,
    Marker,
    WireConfig,
    WireIdentity,
    event_from_wire,
    event_to_wire,
    receipt_from_wire,
    receipt_to_wire,
)

#: A trace of the largest number of steps with long receipts fits well below this.
MAX_BYTES = 16 * 1024 * 1024
MAX_STEPS = 100_000
#: A pool of more KV slots would only cost memory; the largest that a search draws has a few thousand.
MAX_POOL_TOKENS = 1 << 22

T = TypeVar("T")

_MARKER = msgspec.json.Decoder(Marker)
_HEADER = msgspec.json.Decoder(Header)
_LINE = msgspec.json.Decoder(Line)
_FOOTER = msgspec.json.Decoder(Footer)
_ENCODER = msgspec.json.Encoder()


def dumps(trace: Trace) -> bytes:
    """The trace as the bytes of a file; raises TraceError if it holds what no file may hold (a hostile rid, say)."""
    expected = None if trace.expected is None else WireIdentity(*trace.expected)
    header = Header(
        format=FORMAT, version=FORMAT_VERSION, system=trace.system, config=WireConfig(**trace.config.as_dict()),
        engine_version=trace.version, expected=expected, seed=trace.seed, note=trace.note,
    )  # fmt: skip
    lines: list[Any] = [header]
    lines += [Line(event_to_wire(step.event), receipt_to_wire(step.receipt)) for step in trace.steps]
    lines.append(Footer(len(trace.steps)))
    try:
        data = _ENCODER.encode_lines(lines)
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        raise TraceError(f"the trace can't be written: {error}.") from None
    loads(data, "the trace")  # what is written can be read again, or it isn't written
    return data


def loads(data: bytes, name: str = "the trace") -> Trace:
    """The trace in the bytes of a file; name: what messages call it. Raises TraceError."""
    name = f"`{name}`" if name != "the trace" else name
    _check_text(data, name)
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    header, config = _header(lines[0], name)
    try:
        footer = _FOOTER.decode(lines[-1])
    except (msgspec.MsgspecError, RecursionError):
        raise TraceError(
            f'{name} is truncated after line {len(lines)}: its last line is not the footer `{{"steps": …}}`.'
        ) from None
    found = len(lines) - 2
    if found > MAX_STEPS:
        raise TraceError(f"{name} has {found} steps; at most {MAX_STEPS} are read.")
    if footer.steps != found:
        raise TraceError(f"{name} is truncated or edited: its footer says {footer.steps} steps, and it has {found}.")
    steps = []
    for number, line in enumerate(lines[1:-1], start=2):
        wire = _decode(_LINE, line, name, number)
        steps.append(TraceStep(event=event_from_wire(wire.event), receipt=receipt_from_wire(wire.receipt)))
    expected = header.expected
    return Trace(
        config=config, steps=tuple(steps), system=header.system, version=header.engine_version, seed=header.seed,
        expected=None if expected is None else Identity(expected.oracle, expected.owner, expected.phase),
        note=header.note,
    )  # fmt: skip


def load(path: str | os.PathLike[str]) -> Trace:
    """The trace in a file; raises TraceError."""
    return loads(_read(path), os.fspath(path))


def _check_text(data: bytes, name: str) -> None:
    if len(data) > MAX_BYTES:
        raise TraceError(f"{name} is larger than {MAX_BYTES >> 20} MB, the most that a trace may have.")
    if not data.strip():
        raise TraceError(f"{name} is empty.")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TraceError(f"{name} is not UTF-8 text: byte {error.start} is 0x{data[error.start]:02x}.") from None
    if (at := data.find(b"\0")) >= 0:
        raise TraceError(f"{name} is not a trace: byte {at} is NUL.")


def _header(line: bytes, name: str) -> tuple[Header, EngineConfig]:
    try:
        marker = _MARKER.decode(line)
    except RecursionError:
        raise TraceError(f"{name} line 1: nested too deeply.") from None
    except msgspec.MsgspecError as error:
        raise TraceError(f"{name} is not a specfuzz trace: line 1: {_reason(error)}.") from None
    if marker.format != FORMAT:
        raise TraceError(f"{name} is not a specfuzz trace: its format is `{marker.format}` instead of `{FORMAT}`.")
    if marker.version != FORMAT_VERSION:
        what = "Use a newer specfuzz" if marker.version > FORMAT_VERSION else "No released specfuzz wrote it"
        raise TraceError(
            f"{name} has version {marker.version} of the trace format, and this specfuzz reads version "
            f"{FORMAT_VERSION}. {what}."
        )
    header: Header = _decode(_HEADER, line, name, 1)
    settings = msgspec.structs.asdict(header.config)
    try:
        config = EngineConfig(**settings)
    except ConfigError as error:
        raise TraceError(f"{name} line 1: impossible config: {error}") from None
    if config.pool_tokens > MAX_POOL_TOKENS:
        raise TraceError(
            f"{name} line 1: `num_pages`={config.num_pages} times `page_size`={config.page_size} is a pool of "
            f"{config.pool_tokens} tokens; at most {MAX_POOL_TOKENS} are opened."
        )
    return header, config


def _decode(decoder: msgspec.json.Decoder[T], line: bytes, name: str, number: int) -> T:
    try:
        return decoder.decode(line)
    except RecursionError:
        raise TraceError(f"{name} line {number}: nested too deeply.") from None
    except msgspec.MsgspecError as error:
        raise TraceError(f"{name} line {number}: {_reason(error)}.") from None


def _reason(error: Exception) -> str:
    """msgspec's words as the end of a sentence."""
    return str(error).replace(" - at `", " at `")


def _read(path: str | os.PathLike[str]) -> bytes:
    name = f"`{os.fspath(path)}`"
    try:
        # Non-blocking: opening a named pipe without a writer would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        raise TraceError(f"there is no file {name}.") from None
    except (OSError, ValueError) as error:
        raise TraceError(f"{name} can't be read: {getattr(error, 'strerror', None) or error}.") from None
    try:
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind):
            raise TraceError(f"{name} is {'a folder' if stat.S_ISDIR(kind) else 'not a regular file'}.")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise TraceError(f"{name} can't be read: {error.strerror}.") from None
    finally:
        os.close(descriptor)
