"""The client's side of an engine process, and the same port for an SGLang that is importable right here."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import specfuzz
from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.event import Event
from specfuzz.core.receipt import Receipt
from specfuzz.core.snapshot import Snapshot
from specfuzz.errors import ConfigError, EngineFault, MissingPart
from specfuzz.systems.sglang import drives, protocol

#: Importing SGLang takes 8 to 25 seconds on a busy machine; this is when we give up.
LOAD_TIMEOUT = 180.0


def capabilities_of(config: EngineConfig, *, recording: bool) -> Capability:
    """What the adapter can do and show. Streams are no-ops on a CPU: no view can lag, and nothing watches for races."""
    drives.check_config(config)
    flags = Capability.RELAY_VIEW | Capability.DEVICE_VIEW | Capability.LAUNCH_VIEW | Capability.CONTENT_VIEW
    flags |= Capability.TREE_VIEW
    for wanted, flag in (
        (config.speculative, Capability.SPECULATIVE | Capability.DRAFT_KV | Capability.DRAFT_EXTRAS),
        (config.overlap, Capability.OVERLAP),
        (config.radix, Capability.RADIX),
        (config.page_size > 1, Capability.PAGED),
        (recording, Capability.WRITE_RECORDS),
    ):
        if wanted:
            flags |= flag
    return flags


class EngineProcess:
    """A running engine process: one request at a time, each with a deadline."""

    def __init__(self, python: Path, engine_path: str | None = None, memory_limit: int | None = None) -> None:
        """Start it and import SGLang there; raises MissingPart if that fails. memory_limit: bytes beyond the import."""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by close()
        package = Path(specfuzz.__file__).parent
        script = Path(__file__).with_name("process.py")
        try:
            self._child = subprocess.Popen(
                [str(python), "-I", str(script), str(package)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
                start_new_session=True,  # an interrupt at the terminal reaches the client, which closes the pipe
            )
        except OSError as error:
            self._errors.close()
            raise MissingPart(f"the engine's interpreter `{python}` can't be started: {error.strerror}.") from None
        assert self._child.stdin is not None and self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin, self._child.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._buffer = bytearray()
        try:
            reply = self._ask(protocol.Load(engine_path=engine_path, memory_limit=memory_limit), LOAD_TIMEOUT)
        except EngineFault as fault:
            self.close()
            raise MissingPart(f"the engine process could not start: {fault}") from fault
        if isinstance(reply, protocol.Failed):
            self.close()
            raise MissingPart(reply.message)
        if not isinstance(reply, protocol.Loaded) or reply.protocol != protocol.PROTOCOL:
            self.close()
            raise MissingPart(
                f"the engine process speaks another protocol than {protocol.PROTOCOL}; reinstall specfuzz."
            )
        self.loaded = reply

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._child.poll() is None

    def ask(self, message: protocol.Reset | protocol.Apply, timeout: float) -> protocol.Stepped:
        """One request within `timeout` seconds; raises EngineFault (exception, hang, crash) or ConfigError."""
        reply = self._ask(message, timeout)
        if isinstance(reply, protocol.Failed):
            if reply.kind == "config":
                raise ConfigError(reply.message)
            raise EngineFault(reply.message)
        assert isinstance(reply, protocol.Stepped)
        return reply

    def _ask(self, message: protocol.Request, seconds: float) -> protocol.Reply:
        deadline = time.monotonic() + seconds
        try:
            protocol.send(self._stdin, message)  # type: ignore[arg-type]
        except (BrokenPipeError, ValueError) as error:
            raise self._crash() from error
        return protocol.REPLIES.decode(self._frame(deadline, seconds))

    def _frame(self, deadline: float, seconds: float) -> bytes:
        while True:
            if len(self._buffer) >= 4:
                end = 4 + int.from_bytes(self._buffer[:4], "big")
                if end - 4 > protocol.MAX_FRAME:
                    self._kill()
                    raise EngineFault("the engine process sent a frame beyond the size limit", kind="crash")
                if len(self._buffer) >= end:
                    body = bytes(self._buffer[4:end])
                    del self._buffer[:end]
                    return body
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                self._kill()
                raise EngineFault(
                    f"the engine did not answer within {seconds:g} seconds (`--step-timeout`)", kind="hang"
                )
            piece = os.read(self._stdout.fileno(), 1 << 20)
            if not piece:
                raise self._crash()
            self._buffer += piece

    def _crash(self) -> EngineFault:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=5)  # its pipe is closed already; this is for the true exit status
        self._kill()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        last = f": {lines[-1]}" if lines else ""
        return EngineFault(f"the engine process ended with status {self._child.returncode}{last}", kind="crash")

    def _kill(self) -> None:
        if self.alive:
            self._child.kill()
        self._child.wait()

    def close(self) -> None:
        """Close the pipe, on which the process ends by itself; kill it if it doesn't. Idempotent."""
        if self._stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._kill()
        self._selector.close()
        self._stdout.close()
        self._errors.close()


class _Spare:
    """Keeps one idle engine process for the next system that is opened: importing SGLang costs more than most runs.

    It holds no request, and it ends with this process, because its pipe then closes.
    """

    def __init__(self) -> None:
        self._idle: tuple[tuple[object, ...], EngineProcess] | None = None

    def take(self, python: Path, engine_path: str | None) -> EngineProcess:
        """The idle process if it is of this kind, else a new one."""
        key = self._key(python, engine_path)
        idle, self._idle = self._idle, None
        if idle is not None:
            if idle[0] == key and idle[1].alive:
                return idle[1]
            idle[1].close()
        return EngineProcess(python, engine_path)

    def give_back(self, process: EngineProcess, python: Path, engine_path: str | None) -> None:
        """Keep the process if none is kept yet, else end it."""
        if self._idle is not None or not process.alive:
            process.close()
            return
        self._idle = self._key(python, engine_path), process

    def end(self) -> None:
        """End the idle process."""
        idle, self._idle = self._idle, None
        if idle is not None:
            idle[1].close()

    @staticmethod
    def _key(*kind: object) -> tuple[object, ...]:
        return (os.getpid(), *kind)  # a forked copy of this process must not talk into our pipe


SPARE = _Spare()


class RemoteSglang:
    """The real SGLang scheduler classes in their own environment and process, behind the System port."""

    name = "sglang"

    def __init__(
        self, python: Path, *, step_timeout: float = 30.0, engine_path: str | None = None, mutant: str | None = None
    ) -> None:
        """python: interpreter of the engine environment. mutant: planted bug that every run carries, or None."""
        self._kind = (python, engine_path)
        self._timeout = step_timeout
        self._process: EngineProcess | None = SPARE.take(*self._kind)
        self._mutant = mutant
        self._snapshot: Snapshot | None = None
        if mutant is not None:
            self.name = f"sglang:{mutant}"
        self.version = self._process.loaded.version
        self._recording = self._process.loaded.recording
        self.engine_seconds = 0.0
        self.observer_seconds = 0.0

    def capabilities(self, config: EngineConfig) -> Capability:
        """What the adapter can do and show under this configuration; raises ConfigError if it can't run it."""
        return capabilities_of(config, recording=self._recording)

    def reset(self, config: EngineConfig) -> None:
        """Start a fresh engine; after a hang or a crash, in a new process."""
        drives.check_config(config)
        if self._process is None or not self._process.alive:
            if self._process is not None:
                self._process.close()
            self._process = SPARE.take(*self._kind)
        # Twice the timeout: we end a hang ourselves, unless we are gone by then.
        message = protocol.Reset(config=config, mutant=self._mutant, step_limit=2 * self._timeout)
        self._snapshot = protocol.join(None, self._process.ask(message, self._timeout).difference)

    def apply(self, event: Event) -> Receipt:
        """Run the event in the engine process; raises EngineFault if the engine raised, hung or died."""
        assert self._process is not None, "reset comes first"
        reply = self._process.ask(protocol.pack(event), self._timeout)
        assert reply.receipt is not None
        self._snapshot = protocol.join(self._snapshot, reply.difference)
        self.engine_seconds += reply.engine_seconds
        self.observer_seconds += reply.observer_seconds
        return reply.receipt

    def snapshot(self) -> Snapshot:
        """The state after the last event; it travelled with the receipt."""
        assert self._snapshot is not None, "reset comes first"
        return self._snapshot

    def close(self) -> None:
        """Give the engine process back (one idle process is kept, see `_Spare`); idempotent."""
        if self._process is not None:
            SPARE.give_back(self._process, *self._kind)
            self._process = None


class LocalSglang:
    """The same classes in this very process, for an environment in which `import sglang` works. A crash ends it all."""

    name = "sglang"

    def __init__(self, *, engine_path: str | None = None, mutant: str | None = None) -> None:
        """Imports SGLang here; raises MissingPart."""
        from specfuzz.systems.sglang.runner import Runner

        if engine_path is not None and engine_path not in sys.path:
            sys.path.insert(0, engine_path)
        if mutant is not None:
            self.name = f"sglang:{mutant}"
        self._runner = Runner()
        self._mutant = mutant
        self._snapshot: Snapshot | None = None
        self.version = self._runner.engine.version

    @property
    def engine_seconds(self) -> float:
        """Seconds spent in the engine's own code so far."""
        return self._runner.engine_seconds

    @property
    def observer_seconds(self) -> float:
        """Seconds spent taking snapshots so far."""
        return self._runner.observer_seconds

    def capabilities(self, config: EngineConfig) -> Capability:
        """What the adapter can do and show under this configuration; raises ConfigError if it can't run it."""
        return capabilities_of(config, recording=self._runner.recording)

    def reset(self, config: EngineConfig) -> None:
        """Start a fresh engine."""
        self._snapshot = self._runner.reset(config, self._mutant)

    def apply(self, event: Event) -> Receipt:
        """Run the event; raises EngineFault if the engine raised."""
        receipt, self._snapshot = self._runner.step(event)
        return receipt

    def snapshot(self) -> Snapshot:
        """The state after the last event."""
        assert self._snapshot is not None, "reset comes first"
        return self._snapshot

    def close(self) -> None:
        """Take planted bugs out of the classes; idempotent."""
        self._runner.close()
