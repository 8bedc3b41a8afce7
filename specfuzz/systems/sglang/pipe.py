"""The client's end of an engine process: one question at a time, each with a deadline, and no answer is trusted."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO

import msgspec

import specfuzz
from specfuzz.errors import ConfigError, EngineFault, MissingPart
from specfuzz.systems.sglang import protocol

#: Importing SGLang takes 8 to 25 seconds on a busy machine; this is when we give up.
LOAD_TIMEOUT = 180.0
#: Bytes at the end of its stderr that are searched for the last line.
_LAST_WORDS = 4096


class EngineProcess:
    """A running engine process: one request at a time, each with a deadline."""

    def __init__(self, python: Path, engine_path: str | None = None, memory_limit: int | None = None) -> None:
        """Start it and import SGLang there; raises MissingPart if that fails. memory_limit: bytes beyond the import."""
        package = Path(specfuzz.__file__).parent
        script = Path(__file__).with_name("process.py")
        try:
            with contextlib.ExitStack() as undo:  # what was opened before the failure
                self._errors: IO[bytes] = undo.enter_context(tempfile.TemporaryFile())
                self._selector = undo.enter_context(selectors.DefaultSelector())
                self._child = subprocess.Popen(
                    [str(python), "-I", str(script), str(package)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._errors,
                    env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"},
                    start_new_session=True,  # an interrupt at the terminal reaches the client, which closes the pipe
                )
                undo.pop_all()  # from here on `close` closes them
        except OSError as error:
            raise MissingPart(f"the engine's interpreter `{python}` can't be started: {error.strerror}.") from None
        assert self._child.stdin is not None and self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin, self._child.stdout
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._buffer = bytearray()
        try:
            reply = self._ask(protocol.Load(engine_path=engine_path, memory_limit=memory_limit), LOAD_TIMEOUT)
        except EngineFault as fault:
            self.close()
            raise MissingPart(f"the engine process could not start: {fault}") from fault
        except BaseException:
            self.close()
            raise
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
        """One request within `timeout` seconds; raises EngineFault (exception, hang, crash) or ConfigError.

        A step's receipt and a reset's pool are there.
        """
        reply, resets = self._ask(message, timeout), isinstance(message, protocol.Reset)
        if isinstance(reply, protocol.Failed):
            if reply.kind == "config" and resets:
                raise ConfigError(reply.message)
            raise EngineFault(reply.message)
        if not isinstance(reply, protocol.Stepped) or (reply.difference.pool if resets else reply.receipt) is None:
            raise self._nonsense(f"a `{type(reply).__name__}` that is no answer to `{type(message).__name__}`")
        return reply

    def _ask(self, message: protocol.Request, seconds: float) -> protocol.Reply:
        deadline = time.monotonic() + seconds
        try:
            if self._selector.select(0):  # nothing is due now
                self._read()
                raise self._nonsense("an answer that nobody has asked for")
            protocol.send(self._stdin, message)  # type: ignore[arg-type]
            return protocol.REPLIES.decode(self._frame(deadline, seconds))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._nonsense(f"what is no answer ({error})") from error
        except (OSError, ValueError) as error:  # ValueError: we have closed the pipe ourselves
            raise self._crash() from error
        except KeyboardInterrupt:
            self._kill()  # its answer would be taken for that to the next question
            raise

    def _frame(self, deadline: float, seconds: float) -> bytes:
        while True:
            if len(self._buffer) >= 4:
                end = 4 + int.from_bytes(self._buffer[:4], "big")
                if end - 4 > protocol.MAX_FRAME:
                    raise self._nonsense("a frame beyond the size limit")
                if len(self._buffer) > end:
                    raise self._nonsense("more than one answer")
                if len(self._buffer) == end:
                    body = bytes(self._buffer[4:])
                    self._buffer.clear()
                    return body
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                self._kill()
                raise EngineFault(
                    f"the engine did not answer within {seconds:g} seconds (`--step-timeout`)", kind="hang"
                )
            self._read()

    def _read(self) -> None:
        piece = os.read(self._stdout.fileno(), 1 << 20)
        if not piece:
            raise self._crash()
        self._buffer += piece

    def _nonsense(self, what: str) -> EngineFault:
        """Whatever it sends next would mean nothing either, so the process goes."""
        self._kill()
        return EngineFault(f"the engine process sent {what}", kind="crash", where="protocol")

    def _crash(self) -> EngineFault:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=5)  # its pipe is closed already; this is for the true exit status
        self._kill()
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _LAST_WORDS))
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
        with contextlib.suppress(OSError):
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
