"""The failure report, word for word, on a scripted run; and that it fits where it is printed."""

from __future__ import annotations

import pytest

from specfuzz.report import clock_table, plain, record, render_failure, render_fault
from tests.report.scripted import BONUS, CONFIG, EVENTS, Scripted, states

GOLDEN = """\
VIOLATED one-pending-bonus [host, result_processor, steady]
formula    seqlen == kv_committed_len + 1
values     seqlen(a)=9 != kv_committed_len(a)=7 + 1
fact       event 6 appended 3 tokens to output_ids(a)
but        the same event moved kv_committed_len(a) from 5 to 7
7 events   submit(a,5,12) prefill(a) settle prepare verify(a=3) publish settle

request a                  |         host        |   relay   |      device
                 phase     | seqlen commit alloc | len token | lens saw new ops
0 submit(a,5,12) waiting   |      5      0     0 |   -     - |    -   -   -   0
1 prefill(a)     extending |      5      5     5 |   -     - |    -   -   -   4
2 settle         steady    |      6      5     5 |   5 ~004d |    -   -   -   0
3 prepare        prepared  |      6      5    13 |   5 ~004d |    5   -   -   0
4 verify(a=3)    in-flight |      6      5    13 |   5 ~004d |    5   -   -   6
5 publish        published |      6      5    13 |   8 ~bcde |    8   5   8   2
6 settle         steady    |    >9<      7    13 |   8 ~bcde |    8   5   8   0

>first bad cell<: event 6 `settle`, a, host seqlen
host: commit = kv_committed_len, alloc = kv_allocated_len
relay: len = new_seq_lens_buf, token = output_tokens_buf
device: lens = seq_lens now, saw = seq_lens at entry, new = new_seq_lens at
  exit, ops = queued operations

replay     specfuzz replay found.jsonl
source     sglang 0.5.23 batch_result_processor"""


def recorded(late: int = 7, name: str = "mutated:late"):
    return record(Scripted(states(late), name), CONFIG, EVENTS, [BONUS])


def report(width: int = 80, **more: object) -> str:
    recording = recorded()
    table = clock_table(recording, **more)
    lines = render_failure(
        recording.violations[0], recording.events, table=table, replay=["specfuzz replay found.jsonl"], width=width
    )
    return plain(lines)


def test_a_failure_reads_like_this() -> None:
    assert report() == GOLDEN


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, report(width).splitlines())) <= width


def test_the_parts_come_in_the_order_of_the_design() -> None:
    text = report()
    words = ["VIOLATED", "formula", "values", "fact", "but", "7 events", "request a", "replay", "source"]
    places = [text.index(word) for word in words]
    assert places == sorted(places)


def test_a_clean_twin_moves_the_mark_to_where_the_bug_began() -> None:
    clean = record(Scripted(states(), "reference"), CONFIG, EVENTS)
    table = clock_table(recorded(), clean=clean)
    assert table.began is not None and (table.began.row, table.began.header) == (6, "commit")
    assert ">first bad cell<: event 6 `settle`, a, host kv_committed_len: reference has 8 there" in plain(
        render_failure(recorded().violations[0], EVENTS, table=table)
    ).replace("\n  ", " ")


def test_an_engine_that_raised_is_reported_with_the_event_it_failed_in() -> None:
    recording = record(Scripted(states(), fault_at=3), CONFIG, EVENTS, [BONUS])
    assert recording.fault is not None and len(recording.events) == 4
    text = plain(render_fault(recording.fault, recording.events, table=clock_table(recording)))
    assert text.startswith("VIOLATED engine-fault [exception]\nfact       ZeroDivisionError: division by zero")
    assert "4 events   submit(a,5,12) prefill(a) settle prepare" in text


def test_an_event_that_was_not_legal_is_shown_as_such() -> None:
    events = (EVENTS[3], *EVENTS)
    recording = record(Scripted(states()), CONFIG, events, [BONUS])
    table = clock_table(recording)
    assert table.skipped == frozenset({0})
    assert recording.events == EVENTS
