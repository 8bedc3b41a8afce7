"""`specfuzz systems install sglang`: the engine's own environment, from pinned and hashed requirements, without GPU
parts.

The environment lies in the user's cache folder (or under SPECFUZZ_ENGINES_DIR) and counts as installed only when its
marker is there, which is written last. torch comes first and by itself, because its CPU build is not on every index
and its hashes differ between them; SPECFUZZ_TORCH_SPEC and SPECFUZZ_TORCH_INDEX_URL steer it as in `./dev`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from specfuzz.errors import MissingPart
from specfuzz.systems.sglang.versions import PINNED, PYTHONS

INSTALL = "specfuzz systems install sglang"

#: The CPU build that runs the pinned release although its wheel asks for a newer one.
TORCH = "torch==2.13.0"

LOCK = Path(__file__).with_name(f"requirements-{PINNED}.txt")

_GPU_PART = re.compile(r"\s*(nvidia(?!-ml-py)|cuda|rocm|pytorch-triton)", re.IGNORECASE)

Say = Callable[[str], None]


def _to_stderr(line: str) -> None:
    with suppress(OSError):  # nobody reads it: no reason to stop
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def engines_dir() -> Path:
    """Where engine environments live: SPECFUZZ_ENGINES_DIR, else the user's cache folder."""
    named = os.environ.get("SPECFUZZ_ENGINES_DIR")
    if named:
        return _expanded(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return _expanded(cache or "~/.cache") / "specfuzz" / "engines"


def _expanded(folder: str) -> Path:
    try:
        return Path(folder).expanduser()
    except RuntimeError:  # ~ of an unknown user: the folder of that very name
        return Path(folder)


def engine_folder() -> Path:
    """The folder of the pinned release's environment, whether or not it exists."""
    return engines_dir() / f"sglang-{PINNED}"


def engine_python() -> Path | None:
    """The interpreter of the installed environment, or None if there is none or its lock is another one."""
    folder = engine_folder()
    try:
        marker = json.loads(_marker(folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    python = folder / "bin" / "python"
    known = isinstance(marker, dict) and marker.get("lock") == _lock_digest()
    return python if known and os.path.exists(python) else None


def why_not() -> str:
    """Why there is no usable environment, as one sentence."""
    folder = engine_folder()
    if not os.path.exists(folder):  # unlike Path.exists it raises nothing
        return f"there is no engine environment at {folder}."
    if not os.path.exists(_marker(folder)):
        return f"the engine environment at {folder} was not finished."
    return f"the engine environment at {folder} was built from other requirements than {LOCK.name}."


def build_python() -> str:
    """A Python that the pinned release has wheels for: this one, or one on PATH. Raises MissingPart without one."""
    if sys.version_info[:2] in PYTHONS:
        return sys.executable
    for major, minor in reversed(PYTHONS):
        found = shutil.which(f"python{major}.{minor}")
        if (
            found
            and subprocess.run([found, "-c", "import venv, ensurepip"], capture_output=True, check=False).returncode
            == 0
        ):
            return found
    here, wanted = ".".join(map(str, sys.version_info[:2])), ", ".join(f"{major}.{minor}" for major, minor in PYTHONS)
    raise MissingPart(
        f"sglang {PINNED} has no wheel for Python {here}, only for {wanted}, and none of them is on PATH. "
        f"Install one, then run `{INSTALL}` again."
    )


def install(say: Say = _to_stderr, *, force: bool = False) -> Path:
    """Build the environment unless it is there and return its interpreter. Raises MissingPart if a step fails.

    say: receives one line per step. force: build it anew even if it is complete.
    """
    folder = engine_folder()
    try:
        return _built(folder, say, force=force)
    except OSError as error:
        what = f"`{error.filename}`: {error.strerror}" if error.filename else str(error)
        raise MissingPart(
            f"the engine environment can't be built at {folder} ({what}). Name a folder that can be written in "
            f"SPECFUZZ_ENGINES_DIR, then run `{INSTALL}` again."
        ) from None


def _built(folder: Path, say: Say, *, force: bool) -> Path:
    with _one_at_a_time(folder):
        ready = engine_python()
        if ready is not None and not force:
            say(f"sglang {PINNED} is installed at {folder}")
            return ready
        python = build_python()
        say(f"making {folder} with {python}")
        shutil.rmtree(folder, ignore_errors=True)
        _run([python, "-m", "venv", str(folder)], "making the environment")
        inside = folder / "bin" / "python"
        _install_torch(inside, say)
        say(f"installing {LOCK.name} (pinned, with hashes)")
        _pip(inside, "install", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(LOCK))
        say("importing it once")
        _check(inside)
        _marker(folder).write_text(json.dumps({"lock": _lock_digest(), "version": PINNED}) + "\n", encoding="utf-8")
    say(f"sglang {PINNED} is ready ({_megabytes(folder)} MB)")
    return inside


def _install_torch(python: Path, say: Say) -> None:
    index = os.environ.get("SPECFUZZ_TORCH_INDEX_URL")
    spec = os.environ.get("SPECFUZZ_TORCH_SPEC", TORCH)
    say(f"installing the CPU build of {spec}")
    if index:
        _pip(python, "install", "--index-url", index, spec)
    elif _takes_cpu_build(python, spec):
        _pip(python, "install", spec)
    else:
        uv = shutil.which("uv")
        if uv is None:
            raise MissingPart(
                f"pip, as it is set up here, would take a GPU build of {spec}. Name an index with CPU builds in "
                f"SPECFUZZ_TORCH_INDEX_URL, or install `uv`, which finds them, and run `{INSTALL}` again."
            )
        _run(
            [uv, "pip", "install", "--quiet", "--python", str(python), "--torch-backend", "cpu", spec],
            "installing torch",
        )


def _takes_cpu_build(python: Path, spec: str) -> bool:
    """Whether pip would choose a build of torch without GPU packages; asks for metadata only."""
    report = _pip(
        python, "install", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-", spec, capture=True
    )
    try:
        metadata = json.loads(report)["install"][0]["metadata"]
    except (ValueError, LookupError):
        return False
    return "+cpu" in metadata["version"] or not any(map(_GPU_PART.match, metadata.get("requires_dist", [])))


def _check(python: Path) -> None:
    """Load the engine in its environment; every name must be where the adapter expects it."""
    from specfuzz.systems.sglang.client import EngineProcess

    EngineProcess(python).close()


def _pip(python: Path, *arguments: str, capture: bool = False) -> str:
    # The constraints of a machine carry no hashes, which pip refuses beside --require-hashes.
    environ = {**os.environ, "PIP_CONSTRAINT": "/dev/null", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}
    return _run([str(python), "-m", "pip", "-qq", *arguments], f"pip {arguments[0]}", environ=environ, capture=capture)


def _run(command: list[str], step: str, *, environ: dict[str, str] | None = None, capture: bool = False) -> str:
    done = subprocess.run(command, env=environ, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0 and not capture:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip()]
        raise MissingPart(
            f"{step} failed: {lines[-1] if lines else f'status {done.returncode}'}. Run `{INSTALL}` to try again."
        )
    return done.stdout


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_suffix(".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _marker(folder: Path) -> Path:
    return folder / "specfuzz-engine.json"


def _lock_digest() -> str:
    return sha256(LOCK.read_bytes()).hexdigest()


def _megabytes(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in folder.rglob("*") if entry.is_file() and not entry.is_symlink()) >> 20
