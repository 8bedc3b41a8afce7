"""Trace files: what is written is read again, and whatever is wrong with a file is one sentence."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfuzz.core import notation
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import EVENT_TYPES, Abort, Submit
from specfuzz.core.receipt import Receipt
from specfuzz.core.trace import Trace, TraceStep
from specfuzz.core.verdict import Identity
from specfuzz.errors import TraceError
from specfuzz.trace import _wire, codec, dumps, load, loads, save
from tests.trace.strategies import traces

TRACE = Trace(
    config=EngineConfig(),
    steps=(
        TraceStep(event=Submit("a", 4, 3)),
        TraceStep(event=Abort("a"), receipt=Receipt(finished=(("a", "abort", None),))),
    ),
    expected=Identity("pages-conserved", "kv_allocator", "after-event"),
)
LINES = dumps(TRACE).decode().splitlines()


@given(traces())
def test_a_trace_survives_the_file_which_has_one_form(trace: Trace) -> None:
    data = dumps(trace)
    assert loads(data) == trace
    assert dumps(loads(data)) == data


@pytest.mark.parametrize("verb", EVENT_TYPES)
def test_every_event_has_the_fields_and_defaults_of_its_wire_record(verb: str) -> None:
    core, wire = EVENT_TYPES[verb], _wire._WIRE_OF[EVENT_TYPES[verb]]
    defaults = [f.default for f in dataclasses.fields(core) if f.default is not dataclasses.MISSING]
    assert tuple(f.name for f in dataclasses.fields(core)) == wire.__struct_fields__
    assert tuple(defaults) == wire.__struct_defaults__


def test_the_receipt_has_the_fields_of_its_wire_record() -> None:
    assert tuple(f.name for f in dataclasses.fields(Receipt)) == _wire.WireReceipt.__struct_fields__
    assert _wire.receipt_from_wire(_wire.WireReceipt()) == Receipt()


def test_files_and_notation_allow_the_same_request_ids() -> None:
    pattern = _wire.Rid.__metadata__[0].pattern  # type: ignore[attr-defined]
    assert pattern == rf"^{notation._RID.pattern}\Z"


# ------------------------------------------------------------------------------------------------- what is refused
def refusal(data: bytes | str) -> str:
    with pytest.raises(TraceError) as caught:
        loads(data.encode() if isinstance(data, str) else data, "bad.jsonl")
    message = str(caught.value)
    assert message.isprintable() and len(message) < 600, message
    assert message.startswith("`bad.jsonl`"), message
    return message


def with_line(number: int, line: str) -> str:
    return "\n".join([*LINES[: number - 1], line, *LINES[number:]]) + "\n"


def with_event(event: str) -> str:
    return with_line(2, '{"event":' + event + "}")


def with_config(field: str, value: str) -> str:
    old = TRACE.config.as_dict()[field]
    spelled = {True: "true", False: "false"}.get(old, old) if isinstance(old, bool) else old
    assert f'"{field}":{spelled}' in LINES[0]
    return with_line(1, LINES[0].replace(f'"{field}":{spelled}', f'"{field}":{value}'))


DEEP = "[" * 200_000

WRONG = {
    "empty": ("", "is empty"),
    "only white space": (" \n\n", "is empty"),
    "no header": ("\n".join(LINES[1:]), "not a specfuzz trace: line 1: Object missing required field `format`"),
    "some other text": ("hello\n", "not a specfuzz trace"),
    "some other json": ("[1, 2]\n", "not a specfuzz trace: line 1: Expected `object`, got `array`"),
    "some other format": ('{"format":"pcap\x1b[31m","version":1}'.replace("\x1b", "\\u001b"), "is `pcap\\x1b[31m`"),
    "header only": (LINES[0], "is truncated after line 1"),
    "no footer": ("\n".join(LINES[:-1]) + "\n", "is truncated after line 3"),
    "half a line": ("\n".join(LINES)[:-4], "is truncated after line 4"),
    "a line too few": ("\n".join([*LINES[:2], LINES[3]]), "its footer says 2 steps, and it has 1"),
    "a line twice": ("\n".join([*LINES[:2], *LINES[1:]]), "its footer says 2 steps, and it has 3"),
    "lines after the footer": ("\n".join([*LINES, LINES[1]]), "truncated after line 5"),
    "version of tomorrow": (with_line(1, LINES[0].replace('"version":1', '"version":2')), "has version 2 of the trace"),
    "version as text": (with_line(1, LINES[0].replace('"version":1', '"version":"1"')), "at `$.version`"),
    "version beyond all": (with_line(1, LINES[0].replace('"version":1', f'"version":{"9" * 5000}')), "`$.version`"),
    "unknown header field": (with_line(1, LINES[0][:-1] + ',"shoe":1}'), "line 1: Object contains unknown field `sho"),
    "unknown config field": (with_config("topk", '1,"topq":2'), "unknown field `topq` at `$.config`"),
    "config of another type": (with_config("overlap", "1"), "line 1: Expected `bool`, got `int` at `$.config.overlap`"),
    "impossible config": (with_config("spec_steps", "9"), "impossible config: `draft_token_num`=4 does not fit"),
    "huge config": (with_config("num_pages", "1000000000000"), "`$.config.num_pages`"),
    "huge pool": (
        with_config("num_pages", "1000000").replace('"page_size":1', '"page_size":64'),
        "would have 64000000",
    ),
    "expected leads out": (with_line(1, LINES[0].replace("kv_allocator", "../../etc")), "`$.expected.owner`"),
    "unknown event": (with_event('{"do":"explode"}'), "line 2: Invalid value 'explode' at `$.event.do`"),
    "no verb": (with_event('{"rid":"a"}'), "line 2: Object missing required field `do` at `$.event`"),
    "unknown event field": (with_event('{"do":"abort","rid":"a","why":1}'), "unknown field `why` at `$.event`"),
    "missing event field": (with_event('{"do":"abort"}'), "missing required field `rid` at `$.event`"),
    "number as text": (with_event('{"do":"evict","n":"7"}'), "Expected `int`, got `str` at `$.event.n`"),
    "number as float": (with_event('{"do":"evict","n":7.0}'), "Expected `int`, got `float` at `$.event.n`"),
    "number as bool": (with_event('{"do":"evict","n":true}'), "Expected `int`, got `bool` at `$.event.n`"),
    "negative number": (with_event('{"do":"evict","n":-1}'), "Expected `int` >= 0 at `$.event.n`"),
    "not a number": (with_event('{"do":"evict","n":NaN}'), "line 2: JSON is malformed"),
    "huge number": (with_event('{"do":"evict","n":1000001}'), "`$.event.n`"),
    "number of 10 000 digits": (with_event('{"do":"evict","n":' + "9" * 10_000 + "}"), "out of range at `$.event.n`"),
    "rid with a newline": (with_event('{"do":"abort","rid":"a\\n"}'), "at `$.event.rid`"),
    "rid with a path": (with_event('{"do":"abort","rid":"../a"}'), "at `$.event.rid`"),
    "rid of 65 letters": (with_event('{"do":"abort","rid":"' + "a" * 65 + '"}'), "at `$.event.rid`"),
    "rid in half a character": (with_event('{"do":"abort","rid":"\\ud800"}'), "line 2"),
    "unknown stream": (with_event('{"do":"advance","stream":"river"}'), "at `$.event.stream`"),
    "accept of three": (with_event('{"do":"verify","accept":[["a",1,2]]}'), "length 2 at `$.event.accept[0]`"),
    "deep event": (with_event('{"rid":' + DEEP), "line 2: nested too deeply"),
    "deep header": (with_line(1, '{"format":"specfuzz-trace","version":1,"x":' + DEEP), "line 1: nested too deeply"),
    "deep from the first byte": (DEEP, "not a specfuzz trace"),
    "hostile field name": (with_event('{"do":"idle","\\u001b[2J\\n":1}'), "unknown field `\\x1b[2J\\n`"),
    "receipt of another type": (with_line(2, LINES[1][:-1] + ',"receipt":{"launch":"x"}}'), "`$.receipt.launch`"),
    "unknown receipt field": (with_line(2, LINES[1][:-1] + ',"receipt":{"lunch":1}}'), "unknown field `lunch`"),
    "receipt beyond 64 bits": (with_line(2, LINES[1][:-1] + ',"receipt":{"launch":9223372036854775808}}'), "launch`"),
    "byte order mark": ("\ufeff" + "\n".join(LINES), "not a specfuzz trace"),
    "a blank line": ("\n".join([LINES[0], "", *LINES[2:]]), "line 2: Input data was truncated"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_sentence(case: str) -> None:
    data, says = WRONG[case]
    assert says in refusal(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xfe\x00a", "is not UTF-8 text: byte 0 is 0xff"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "byte 7 is NUL"),
        (LINES[0].encode("utf-16-le"), "byte 1 is NUL"),
        (b"x" * (codec.MAX_BYTES + 1), "is larger than 16 MB"),
    ],
)
def test_what_is_not_text_is_refused(data: bytes, says: str) -> None:
    assert says in refusal(data)


def test_more_steps_than_the_limit_are_refused() -> None:
    lines = [LINES[0], *['{"event":{"do":"idle"}}'] * (codec.MAX_STEPS + 1), f'{{"steps":{codec.MAX_STEPS + 1}}}']
    assert "at most 100000 are read" in refusal("\n".join(lines))


@given(st.binary(max_size=200))
def test_no_bytes_bring_another_exception(data: bytes) -> None:
    with pytest.raises(TraceError):
        loads(data)


@settings(max_examples=50)
@given(traces(), st.data())
def test_no_damage_brings_another_exception(trace: Trace, data: st.DataObject) -> None:
    whole = dumps(trace)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + data.draw(st.binary(max_size=3)) + whole[at + data.draw(st.integers(0, 30)) :]
    try:
        loads(damaged)
    except TraceError as error:
        assert "\n" not in str(error)


@settings(max_examples=50)
@given(traces(), st.data())
def test_every_cut_is_detected(trace: Trace, data: st.DataObject) -> None:
    whole = dumps(trace)
    cut = data.draw(st.integers(0, len(whole) - 2))  # the last byte is a newline, which nobody needs
    with pytest.raises(TraceError):
        loads(whole[:cut])


# ------------------------------------------------------------------------------------------------- files
def unreadable(path: str | os.PathLike[str]) -> str:
    with pytest.raises(TraceError) as caught:
        load(path)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_what_is_not_a_readable_file_is_refused(tmp_path: Path) -> None:
    assert "there is no file" in unreadable(tmp_path / "none.jsonl")
    assert "is a folder" in unreadable(tmp_path)
    assert "embedded null" in unreadable("a\0b")
    assert "can't be read: File name too long" in unreadable("a" * 5000)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "symbolic links" in unreadable(tmp_path / "loop")
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in unreadable(tmp_path / "pipe")
    assert "not a regular file" in unreadable("/dev/zero")
    assert "\\x1b" in unreadable(tmp_path / "\x1b[2J")
    assert "\\udcff" in unreadable(os.fsdecode(b"/\xff"))


def test_a_sparse_file_of_a_gigabyte_is_refused_without_reading_it(tmp_path: Path) -> None:
    with open(tmp_path / "big.jsonl", "wb") as file:
        file.truncate(1 << 30)
    assert "larger than 16 MB" in unreadable(tmp_path / "big.jsonl")


def test_a_saved_trace_can_be_loaded(tmp_path: Path) -> None:
    assert load(save(TRACE, tmp_path / "deep" / "trace.jsonl")) == TRACE


def test_a_trace_that_no_file_may_hold_is_not_written(tmp_path: Path) -> None:
    for rid in ("a b", "", "\ud800", "../x"):
        with pytest.raises(TraceError):
            save(dataclasses.replace(TRACE, steps=(TraceStep(event=Abort(rid)),)), tmp_path / "t.jsonl")
    with pytest.raises(TraceError):
        save(dataclasses.replace(TRACE, seed=1 << 200), tmp_path / "t.jsonl")
    assert list(tmp_path.iterdir()) == []
