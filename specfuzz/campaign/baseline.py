"""Known, explained findings: a TOML file whose entries are reported but don't fail a run.

[[known]]
identity = "oracle/owner/phase"
system = "sglang"
versions = ">=0.5.20,<0.6"      # optional: of the system
reason = "why it is known, and where it is explained"
"""

from __future__ import annotations

import operator
import os
import re
import tomllib
from dataclasses import dataclass

from specfuzz.core.verdict import Identity
from specfuzz.errors import UsageError

_BOUND = re.compile(r"\s*(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)\s*")
_COMPARE = {
    ">=": operator.ge, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_KEYS = {"identity", "system", "versions", "reason"}
#: A file of known findings is short; what is larger is something else.
_MOST_BYTES = 1 << 18
#: Dots in one line. A key takes time and memory by the square of its parts, and ours have one part.
_MOST_DOTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One entry. bounds: (comparison, version) pairs that all must hold; empty means every version."""

    identity: Identity
    system: str
    bounds: tuple[tuple[str, tuple[int, ...]], ...]
    reason: str

    def covers(self, identity: Identity, system: str, version: str) -> bool:
        """Whether this entry explains the finding. system: as opened, e.g. `sglang`."""
        if identity != self.identity or system != self.system:
            return False
        mine = _numbers(version)
        return all(_COMPARE[sign](*_padded(mine, bound)) for sign, bound in self.bounds)


class Baseline:
    """All entries of one file; an empty one knows nothing."""

    def __init__(self, entries: tuple[Known, ...] = ()) -> None:
        """entries: in the order of the file."""
        self.entries = entries

    def reason(self, identity: Identity, system: str, version: str) -> str | None:
        """Why the finding is known, or None if it is not."""
        return next((entry.reason for entry in self.entries if entry.covers(identity, system, version)), None)


def load_baseline(path: str | None) -> Baseline:
    """The baseline in a file; raises UsageError naming the entry that can't be read."""
    if path is None:
        return Baseline()
    if os.path.exists(path) and not os.path.isfile(path):
        raise UsageError(f"the baseline `{path}` can't be read: it is not a regular file.")
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UsageError(f"the baseline `{path}` is larger than {_MOST_BYTES >> 10} kB.")
        for number, line in enumerate(data.splitlines(), start=1):
            if line.count(b".") > _MOST_DOTS:
                raise UsageError(f"the baseline `{path}`, line {number}, has more than {_MOST_DOTS} dots: break it up.")
        content = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"the baseline `{path}` can't be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # ValueError covers TOML, UTF-8 and integers beyond all bounds
        raise UsageError(f"the baseline `{path}` is not TOML: {error}.") from None
    entries = content.get("known", [])
    if set(content) - {"known"} or not isinstance(entries, list):
        raise UsageError(f"the baseline `{path}` must hold `[[known]]` entries and nothing else.")
    return Baseline(tuple(_entry(path, number, entry) for number, entry in enumerate(entries, start=1)))


def _entry(path: str, number: int, entry: object) -> Known:
    where = f"the baseline `{path}`, entry {number}"
    if not isinstance(entry, dict) or not all(isinstance(value, str) for value in entry.values()):
        raise UsageError(f"{where}: every value must be a text.")
    if unknown := sorted(set(entry) - _KEYS):
        raise UsageError(f"{where}: there is no key `{unknown[0]}`; keys: {', '.join(sorted(_KEYS))}.")
    for key in ("identity", "system", "reason"):
        if not entry.get(key, "").strip():
            raise UsageError(f"{where}: `{key}` is missing. A known finding needs identity, system and reason.")
    parts = entry["identity"].split("/")
    if len(parts) != 3:
        raise UsageError(f"{where}: `identity` must be `oracle/owner/phase`, not `{entry['identity']}`.")
    bounds = [_bound(where, text) for text in entry.get("versions", "").split(",") if text.strip()]
    return Known(identity=Identity(*parts), system=entry["system"], bounds=tuple(bounds), reason=entry["reason"])


def _bound(where: str, text: str) -> tuple[str, tuple[int, ...]]:
    match = _BOUND.fullmatch(text)
    if match is None:
        raise UsageError(f"{where}: `versions` has `{text.strip()}`, which is no bound like `>=0.5.20`.")
    return match[1], _numbers(match[2])


def _numbers(version: str) -> tuple[int, ...]:
    leading = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part[:9]) for part in leading[0].split(".")) if leading else ()


def _padded(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    length = max(len(one), len(other))
    return one + (0,) * (length - len(one)), other + (0,) * (length - len(other))
