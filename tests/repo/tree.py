"""The repository as the tests of this folder see it: its files, and the package's modules as parsed trees."""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "specfuzz"
# Where there is no git (an unpacked archive), what set-up and the tools leave behind is left out by name.
LEFT_BEHIND = {".git", ".venv", ".hypothesis", "__pycache__", "build", "dist", "findings", ".specfuzz"}


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file that is, or would be, committed."""
    if (ROOT / ".git").exists():
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
        return tuple(path for name in names if name and (path := ROOT / name).is_file())
    return tuple(
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file()
        and not any(part in LEFT_BEHIND or part.endswith("_cache") for part in path.relative_to(ROOT).parts)
    )


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Path relative to the root -> parsed module, for every Python file of the package."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"), str(path))
        for path in files()
        if path.suffix == ".py" and path.is_relative_to(PACKAGE)
    }


def top_level() -> set[str]:
    """Names of the modules and packages directly below `specfuzz`."""
    parts = (Path(name).parts for name in modules())
    names = {Path(part[1]).stem for part in parts}
    return {name for name in names if not name.startswith("__")}
