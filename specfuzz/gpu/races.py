"""Find accesses that no happens-before edge orders, also when they happened to run in the right order.

Every access carries its place in the order: (stream index, its number `n` in that stream, `base`). `base[s]` is the
number of the last operation of stream `s` that is ordered before it. Index 0 is the host, whose direct reads and
writes are numbered like operations. So `a` is ordered before `b` exactly if they share a stream or
`b.base[a.index] >= a.n`.

Per (buffer, stream, read|write) only the latest access to each row is kept. That is enough: if an earlier one is
unordered with a later access of another stream, then the latest one is too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from specfuzz.errors import DeviceFault

RAW = "read-after-write"
WAR = "write-after-read"
WAW = "write-after-write"
USE_AFTER_FREE = "use-after-free"
HOST_READ = "host-read-unsynchronised"

# Accesses of one stream to one buffer before rows are sorted in: more cost memory, fewer reach no horizon in time.
RECENT_LIMIT = 64

HOST = "host"
HOST_INDEX = 0

GivenRows: TypeAlias = Any  # a list of ints, another iterable of ints, or an integer array of any shape
Rows: TypeAlias = GivenRows | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Race:
    """Two accesses to the same memory that nothing orders; `first` ran before `second` in this run, by luck.

    kind: read-after-write, write-after-read, write-after-write, use-after-free (`second` is the free, its stream the
    home of the memory) or host-read-unsynchronised (one of both is a direct read by the host).
    row: the first row that both touch; None if both touched the whole buffer, or for a free.
    """

    kind: str
    buffer: str
    row: int | None
    first: str
    first_stream: str
    second: str
    second_stream: str

    def __str__(self) -> str:
        """One line for reports."""
        where = self.buffer if self.row is None else f"{self.buffer}[{self.row}]"
        return (
            f"{self.kind} on `{where}`: `{self.first}` [{self.first_stream}] and "
            f"`{self.second}` [{self.second_stream}] are not ordered"
        )


class Stamp(Protocol):
    """Who accesses: an operation, or one direct access by the host."""

    name: str
    stream_name: str
    index: int
    n: int
    base: tuple[int, ...]


class RaceLog:
    """The races of one run; each (buffer name, pair of names, kind) is kept once, so that a loop cannot flood it."""

    __slots__ = ("_found", "_seen", "horizon")

    def __init__(self) -> None:
        # Accesses up to here are ordered before all that is still to come: they can be forgotten. Set by the device.
        self.horizon: tuple[int, ...] | None = None
        self._found: list[Race] = []
        self._seen: set[tuple[str, str, str, str]] = set()

    def add(self, kind: str, buffer: str, row: int | None, first: Stamp, second: str, second_stream: str) -> None:
        """Keep one race, unless the run has reported its like already."""
        key = (kind, buffer, first.name, second)
        if key not in self._seen:
            self._seen.add(key)
            self._found.append(
                Race(
                    kind=kind,
                    buffer=buffer,
                    row=row,
                    first=first.name,
                    first_stream=first.stream_name,
                    second=second,
                    second_stream=second_stream,
                )
            )

    def take(self) -> list[Race]:
        """The races since the last call, in the order in which they were found."""
        found, self._found = self._found, []
        return found


class _Table:
    """The latest accesses of one kind that one stream made to one buffer.

    Well ordered accesses are proven so by `latest` alone, without a look at rows. So rows wait in `recent` and are
    sorted into `rows` only when a comparison needs them or there are many; most pass the horizon before that.
    """

    __slots__ = ("index", "latest", "recent", "rows", "whole")

    def __init__(self, index: int, first: Stamp) -> None:
        self.index = index
        self.latest = first
        self.whole: Stamp | None = None
        self.rows: dict[int, Stamp] = {}
        self.recent: list[tuple[Stamp, GivenRows]] = []

    def add(self, me: Stamp, rows: GivenRows | None, horizon: tuple[int, ...] | None) -> None:
        self.latest = me
        if rows is None:
            self.whole = me  # covers all that this stream did before
            if self.rows:
                self.rows = {}
            if self.recent:
                self.recent = []
        else:
            self.recent.append((me, rows))
            if len(self.recent) > RECENT_LIMIT:
                self.sort_in(horizon)

    def sort_in(self, horizon: tuple[int, ...] | None) -> dict[int, Stamp]:
        known = self.rows
        limit = horizon[self.index] if horizon else 0
        for me, rows in self.recent:
            if me.n > limit:
                for row in row_list(rows):
                    known[row] = me
        self.recent = []
        return known


class Shadow:
    """Who touched which row of one buffer last. Holds no tensor, so it may outlive the memory."""

    __slots__ = ("_log", "_reads", "_writes", "name")

    def __init__(self, name: str, log: RaceLog) -> None:
        self.name = name
        self._log = log
        self._reads: list[_Table] = []
        self._writes: list[_Table] = []

    def read(self, me: Stamp, rows: Rows) -> None:
        """Check a read of `rows` (None: all) against the writes of other streams, then remember it."""
        if type(rows) is list and not (rows := rows[:]):
            return
        base, index = me.base, me.index
        for table in self._writes:
            other = table.index
            if table.latest.n > base[other] and other != index:
                self._compare(RAW, table, me, rows)
        for table in self._reads:
            if table.index == index:
                break
        else:
            table = _Table(index, me)
            self._reads.append(table)
        table.add(me, rows, self._log.horizon)

    def write(self, me: Stamp, rows: Rows) -> None:
        """Check a write of `rows` (None: all) against the reads and writes of other streams, then remember it."""
        if type(rows) is list and not (rows := rows[:]):
            return
        base, index = me.base, me.index
        mine = None
        for table in self._writes:
            other = table.index
            if other == index:
                mine = table
            elif table.latest.n > base[other]:
                self._compare(WAW, table, me, rows)
        for table in self._reads:
            other = table.index
            if table.latest.n > base[other] and other != index:
                self._compare(WAR, table, me, rows)
        if mine is None:
            mine = _Table(index, me)
            self._writes.append(mine)
        mine.add(me, rows, self._log.horizon)

    def _compare(self, kind: str, table: _Table, me: Stamp, given: Rows) -> None:
        rows = None if given is None else row_list(given)
        if rows is not None and not rows:
            return
        limit = me.base[table.index]
        if (kind == RAW and me.index == HOST_INDEX) or (kind == WAR and table.index == HOST_INDEX):
            kind = HOST_READ
        whole = table.whole
        if whole is not None and whole.n > limit:
            self._log.add(kind, self.name, min(rows) if rows else None, whole, me.name, me.stream_name)
        known = table.sort_in(self._log.horizon)
        for row in sorted(known) if rows is None else rows:
            first = known.get(row)
            if first is not None and first.n > limit:
                self._log.add(kind, self.name, row, first, me.name, me.stream_name)


def row_list(rows: GivenRows) -> list[int]:
    """The rows as a list of ints; an N-D array counts as its flat content. A boolean mask is refused."""
    if type(rows) is list:
        return rows
    if hasattr(rows, "tolist"):
        if "bool" in str(rows.dtype):
            raise DeviceFault(f"rows are a boolean mask of shape {tuple(rows.shape)}: pass row numbers instead.")
        flat: list[int] = rows.reshape(-1).tolist()
        return flat
    return list(rows)


class Access:
    """What a kernel gets as its first argument, to declare the rows that it touches while it runs.

    `tensor` must be one of the tensors that the kernel got for its buffers (the same object, not a view of it). Rows
    count along dimension 0 and must not be negative: row -1 would be another row than the last one. Declaring more
    than is touched makes false alarms, declaring less makes the checker blind there. Arrays of rows are looked at only
    when a comparison needs them, so they must not change afterwards (pass private ones).
    """

    __slots__ = ("_log", "operation")

    def __init__(self, log: RaceLog) -> None:
        self._log = log
        self.operation: Any = None  # the one that runs now; set by the device

    def read(self, tensor: Any, rows: Rows) -> None:
        """Declare a read of `rows`: ints, an integer array of any shape, or None for the whole buffer."""
        operation = self.operation
        for memory in operation.memories:  # like `shadow_of`, without the call: this is the hot path of the checker
            if memory.tensor is tensor:
                shadow = memory.shadow
                if shadow is None:
                    shadow = memory.shadow = Shadow(memory.name, self._log)
                shadow.read(operation, rows)
                return
        shadow_of(operation, tensor, self._log)  # raises

    def write(self, tensor: Any, rows: Rows) -> None:
        """Declare a write of `rows`: ints, an integer array of any shape, or None for the whole buffer."""
        operation = self.operation
        for memory in operation.memories:
            if memory.tensor is tensor:
                memory.version += 1
                shadow = memory.shadow
                if shadow is None:
                    shadow = memory.shadow = Shadow(memory.name, self._log)
                shadow.write(operation, rows)
                return
        shadow_of(operation, tensor, self._log)  # raises


class NoAccess(Access):
    """Declarations that nobody listens to, for check_races=False."""

    __slots__ = ()

    def read(self, tensor: Any, rows: Rows) -> None:
        """Do nothing."""

    def write(self, tensor: Any, rows: Rows) -> None:
        """Count the write, for observers."""
        for memory in self.operation.memories:
            if memory.tensor is tensor:
                memory.version += 1


def shadow_of_memory(memory: Any, log: RaceLog) -> Shadow:
    """The memory's shadow, made if it has none yet."""
    if memory.shadow is None:
        memory.shadow = Shadow(memory.name, log)
    shadow: Shadow = memory.shadow
    return shadow


def shadow_of(operation: Any, tensor: Any, log: RaceLog) -> Shadow:
    """The shadow of the buffer that reached the running kernel as `tensor`. Raises DeviceFault if there is none."""
    for memory in operation.memories:
        if memory.tensor is tensor:
            return shadow_of_memory(memory, log)
    raise DeviceFault(
        f"kernel of `{operation.name}` declared an access to a tensor that is none of its buffers: "
        "declare on the very tensor that the kernel received, not on a view or a copy."
    )
