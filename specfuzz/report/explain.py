"""The three clocks side by side, event by event, with the first bad cell marked.

A block shows one request (or the pool). Its columns belong to a clock; a cell is what that clock said after the event.
The cell of the violation is where an oracle noticed. Where the same events were also recorded on a clean system, the
first cell that differs from it is where the bug began; that one is the first bad cell then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specfuzz.core.clock import Clock, Owner, Phase, Point
from specfuzz.core.event import rid_of
from specfuzz.core.language import STOP_TOKEN
from specfuzz.core.notation import format_event
from specfuzz.core.snapshot import LaunchView, Snapshot
from specfuzz.core.verdict import Violation
from specfuzz.report.recording import Moment, Recording

#: The subject of the block that isn't about a request.
POOL = "pool"
#: A clock that the system doesn't show at all, and a value that isn't there.
UNSEEN, ABSENT = "?", "-"
#: Memory that its queued writer has not reached yet; no length is that large.
UNWRITTEN, _MOST_LENGTH = "junk", 1 << 31
#: More blocks than this are left out of a report; the rest is one `explain` away.
MOST_BLOCKS = 3

Value = int | str | None
Reader = Callable[[Snapshot, str], Value]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a block. name: what SGLang calls it; told: pattern by which a formula speaks about it."""

    header: str
    clock: Clock
    name: str
    read: Reader
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One cell: row (moment), block subject, column header."""

    row: int
    subject: str
    header: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The clocks of one subject: cells[row][column] as text."""

    subject: str
    columns: tuple[Column, ...]
    cells: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockTable:
    """What `explain` prints. events, phases: one per row (phases by block subject). skipped: rows that were not legal.

    noticed: the cell where the oracle saw it. began: the first cell that differs from the clean run (None without one);
    expected: what the clean run has there. clean: name of the clean system.
    """

    events: tuple[str, ...]
    phases: tuple[dict[str, Phase], ...]
    skipped: frozenset[int]
    blocks: tuple[Block, ...]
    noticed: Place | None = None
    began: Place | None = None
    expected: str = ""
    clean: str = ""

    @property
    def first_bad(self) -> Place | None:
        """The earlier of the two marked cells."""
        return self.began or self.noticed


def clock_table(
    recording: Recording, *, clean: Recording | None = None, violation: Violation | None = None
) -> ClockTable:
    """The table of a recorded run.

    clean: the same events on a system that has no bug. violation: which one to mark; default: the recording's first.
    """
    found = violation or (recording.violations[0] if recording.violations else None)
    noticed = _noticed(recording, found)
    began, expected = _began(recording, clean, noticed)
    subjects = _subjects(recording, noticed, began)
    return ClockTable(
        events=tuple(format_event(moment.event) for moment in recording.moments),
        phases=tuple(dict(moment.phases) for moment in recording.moments),
        skipped=frozenset(row for row, moment in enumerate(recording.moments) if not moment.applied),
        blocks=tuple(_block(recording, subject) for subject in subjects),
        noticed=noticed, began=began, expected=expected, clean=clean.system if clean is not None else "",
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ what each clock says
def _host(field: str) -> Reader:
    def read(snapshot: Snapshot, rid: str) -> Value:
        req = snapshot.reqs.get(rid)
        return None if req is None else getattr(req, field)

    return read


def _relay(field: str) -> Reader:
    def read(snapshot: Snapshot, rid: str) -> Value:
        if snapshot.relay is None:
            return UNSEEN
        row = snapshot.relay.rows.get(rid)
        return None if row is None else getattr(row, field)

    return read


def _peeked_seq_len(snapshot: Snapshot, rid: str) -> Value:
    for name in ("prepared", "running", "last"):
        for batch in snapshot.batches:
            if batch.name == name and rid in batch.rids and batch.seq_lens is not None:
                length = batch.seq_lens[batch.rids.index(rid)]
                return length if 0 <= length < _MOST_LENGTH else UNWRITTEN
    return None


def _newest(snapshot: Snapshot, rid: str) -> LaunchView | None:
    return next((launch for launch in reversed(snapshot.launches) if rid in launch.rids), None)


def _entered(snapshot: Snapshot, rid: str) -> Value:
    launch = _newest(snapshot, rid)
    return None if launch is None or launch.entry is None else launch.entry.seq_lens[launch.rids.index(rid)]


def _exited(snapshot: Snapshot, rid: str) -> Value:
    launch = _newest(snapshot, rid)
    return None if launch is None or launch.exit is None else launch.exit.new_seq_lens[launch.rids.index(rid)]


def _pending(snapshot: Snapshot, rid: str) -> Value:
    return UNSEEN if snapshot.device is None else snapshot.device.pending


def _pool(field: str) -> Reader:
    def read(snapshot: Snapshot, subject: str) -> Value:
        value = getattr(snapshot.pool, field)
        return len(value) if isinstance(value, tuple) else value

    return read


def _held(snapshot: Snapshot, subject: str) -> Value:
    return sum(len(req.slots) for req in snapshot.reqs.values())


REQUEST_COLUMNS = (
    Column("seqlen", Clock.HOST, "seqlen", _host("seqlen"), r"\bseqlen\b|output|finish|emitted"),
    Column("commit", Clock.HOST, "kv_committed_len", _host("kv_committed_len"), r"committed"),
    Column("alloc", Clock.HOST, "kv_allocated_len", _host("kv_allocated_len"), r"allocated|\bslots?\b|owned"),
    Column("len", Clock.RELAY, "new_seq_lens_buf", _relay("new_seq_len"), r"new_seq_len|publish|resolve"),
    Column("token", Clock.RELAY, "output_tokens_buf", _relay("output_token"), r"output_token|bonus|\btokens?\b"),
    Column("lens", Clock.DEVICE, "seq_lens now", _peeked_seq_len, r"(?<!new_)\bseq_lens\b"),
    Column("saw", Clock.DEVICE, "seq_lens at entry", _entered, r"entry|\bsaw\b|window|input"),
    Column("new", Clock.DEVICE, "new_seq_lens at exit", _exited, r"exit|new_seq_lens|accept|next_tokens"),
    Column("ops", Clock.DEVICE, "queued operations", _pending, r"pending|queued"),
)
POOL_COLUMNS = (
    Column(
        "free_pages", Clock.HOST, "pages in the free list", _pool("free_pages"), r"free_pages|free list|\bfree\b|page"
    ),
    Column("free_rows", Clock.HOST, "rows in the free list", _pool("free_rows"), r"free_rows|\brows?\b|req_pool_idx"),
    Column("held", Clock.HOST, "slots that requests name", _held, r"held|\bslots?\b"),
    Column("evictable", Clock.HOST, "tokens the tree may evict", _pool("evictable"), r"evictable|cached|tree"),
    Column("protected", Clock.HOST, "tokens the tree has locked", _pool("protected"), r"protected|lock"),
)
#: Not compared with a clean run: how much is queued says nothing about right or wrong.
_NOT_COMPARED = frozenset({"ops"})
_POOL_OWNERS = frozenset({str(Owner.KV_ALLOCATOR), str(Owner.REQ_TO_TOKEN_POOL), str(Owner.RADIX_CACHE)})
_DEFAULT_HEADER = {str(Clock.HOST): "commit", str(Clock.RELAY): "len", str(Clock.DEVICE): "lens"}
_POINT_HEADER = {str(Point.WORKER_ENTRY): "saw", str(Point.WORKER_EXIT): "new"}


def _show(value: Value, header: str) -> str:
    if value is None:
        return ABSENT
    if header == "token" and isinstance(value, int):
        return (
            "stop" if value == STOP_TOKEN else f"~{value & 0xFFFF:04x}"
        )  # the end of a 40-bit digest is telling enough
    return str(value)


def _block(recording: Recording, subject: str) -> Block:
    columns = POOL_COLUMNS if subject == POOL else REQUEST_COLUMNS
    cells = tuple(
        tuple("" if m.snapshot is None else _show(c.read(m.snapshot, subject), c.header) for c in columns)
        for m in recording.moments
    )
    return Block(subject=subject, columns=columns, cells=cells)


# --------------------------------------------------------------------------------------------------- which cell is bad
def _row_of(recording: Recording, event_index: int) -> int:
    rows = [row for row, moment in enumerate(recording.moments) if moment.applied]
    return rows[event_index] if 0 <= event_index < len(rows) else len(recording.moments) - 1


def _noticed(recording: Recording, violation: Violation | None) -> Place | None:
    if violation is None or not recording.moments:
        return None
    row = _row_of(recording, violation.event_index)
    subject = violation.rid or _likely_subject(recording.moments[row], violation)
    if subject is None:
        return None
    columns = POOL_COLUMNS if subject == POOL else REQUEST_COLUMNS
    return Place(row=row, subject=subject, header=_likely_header(violation, columns))


def _likely_subject(moment: Moment, violation: Violation) -> str | None:
    if violation.owner in _POOL_OWNERS or moment.snapshot is None:
        return POOL if moment.snapshot is not None else None
    named = [rid for rid in moment.snapshot.reqs if re.search(rf"\({re.escape(rid)}\)", _words(violation))]
    at_point = [r for launch in moment.snapshot.launches if launch.entry_now or launch.exit_now for r in launch.rids]
    candidates = [*named, *at_point, rid_of(moment.event), *moment.snapshot.reqs]
    return next((rid for rid in candidates if rid is not None), None)


def _words(violation: Violation) -> str:
    return " ".join((violation.values, violation.fact, violation.counterfact, violation.formula))


def _likely_header(violation: Violation, columns: Sequence[Column]) -> str:
    """The column of the violation's clock that its values, or else its facts, or else its formula, name first."""
    own = [column for column in columns if column.clock == violation.clock] or list(columns)
    for text in (violation.values, violation.counterfact, violation.fact, violation.formula):
        hits = [(hit.start(), column.header) for column in own if (hit := re.search(column.told, text))]
        if hits:
            return min(hits)[1]
    fallback = _POINT_HEADER.get(violation.phase) or _DEFAULT_HEADER.get(violation.clock, "")
    return fallback if any(column.header == fallback for column in own) else own[0].header


def _began(recording: Recording, clean: Recording | None, noticed: Place | None) -> tuple[Place | None, str]:
    if clean is None:
        return None, ""
    last = noticed.row if noticed is not None else len(recording.moments) - 1
    for row, (mine, theirs) in enumerate(zip(recording.moments[: last + 1], clean.moments, strict=False)):
        if mine.snapshot is None or theirs.snapshot is None:
            if mine.applied != theirs.applied:
                return None, ""  # from here on the two runs are not the same run any more
            continue
        for subject in (*mine.snapshot.reqs, POOL):
            for column in POOL_COLUMNS if subject == POOL else REQUEST_COLUMNS:
                ours, wanted = column.read(mine.snapshot, subject), column.read(theirs.snapshot, subject)
                unknown = None in (ours, wanted) or UNSEEN in (ours, wanted)
                if column.header not in _NOT_COMPARED and not unknown and ours != wanted:
                    return Place(row=row, subject=subject, header=column.header), _show(wanted, column.header)
    return None, ""


def _subjects(recording: Recording, noticed: Place | None, began: Place | None) -> list[str]:
    marked = [place.subject for place in (noticed, began) if place is not None]
    chosen = list(dict.fromkeys(marked))
    if any(subject != POOL for subject in chosen):
        return chosen
    last = next((m.snapshot for m in reversed(recording.moments) if m.snapshot is not None), None)
    return list(dict.fromkeys([*chosen, *(last.reqs if last is not None else ())]))[:MOST_BLOCKS]
