"""The engine process: serves one specfuzz client over a pair of pipes until they close.

Run as a script by the engine environment's own Python. It loads `specfuzz` by path, so that nothing else of the
client's environment becomes importable here. Everything that the engine prints goes to stderr; stdout carries frames
only.
"""

from __future__ import annotations

import gc
import importlib.machinery
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from specfuzz.systems.sglang.protocol import Failed, Request, Stepped
    from specfuzz.systems.sglang.runner import Runner

#: Address space that may be added after the import, in bytes.
DEFAULT_HEADROOM = 2 << 30


def _adopt_specfuzz(package: str) -> None:
    """Make the folder `package` importable as `specfuzz`, and only it."""
    spec = importlib.util.spec_from_file_location(
        "specfuzz", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["specfuzz"] = module
    spec.loader.exec_module(module)
    # `specfuzz.systems` registers adapters that need the client's packages; only this folder of it is wanted here.
    systems = importlib.util.module_from_spec(importlib.machinery.ModuleSpec("specfuzz.systems", None, is_package=True))
    systems.__path__ = [os.path.join(package, "systems")]
    sys.modules["specfuzz.systems"] = systems


def _take_stdout() -> BinaryIO:
    """The real stdout as a binary stream; whatever prints from here on prints to stderr."""
    frames = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return frames


def limit_memory(headroom: int) -> None:
    """Let this process map at most `headroom` more bytes than now (no-op where the system has no such limit)."""
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
    except (ImportError, OSError):
        return
    resource.setrlimit(resource.RLIMIT_AS, (mapped + headroom, mapped + headroom))


class Server:
    """Answers requests one by one; knows the snapshot that was sent last."""

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        self._limit = 0.0
        self._runner: Runner | None = None
        self._sent: Any = None

    def answer(self, request: Request) -> Any:
        """The reply to one request; every exception becomes a `Failed`."""
        from specfuzz.errors import ConfigError, EngineFault, MissingPart
        from specfuzz.systems.sglang import protocol

        try:
            match request:
                case protocol.Load():
                    return self._load(request)
                case protocol.Reset():
                    return self._reset(request)
                case protocol.Apply():
                    return self._apply(request)
        except MissingPart as error:
            return protocol.Failed(kind="missing", message=str(error))
        except ConfigError as error:
            return protocol.Failed(kind="config", message=str(error))
        except EngineFault as error:
            return protocol.Failed(kind="engine", message=str(error))
        except MemoryError:
            return protocol.Failed(kind="engine", message="MemoryError: the engine process reached its memory limit")

    def _load(self, request: Any) -> Any:
        from specfuzz.systems.sglang.protocol import PROTOCOL, Loaded
        from specfuzz.systems.sglang.runner import Runner

        if request.engine_path is not None:
            sys.path.insert(0, request.engine_path)
        self._runner = Runner()
        gc.freeze()  # the import leaves millions of objects that no later collection needs to walk
        limit_memory(request.memory_limit or DEFAULT_HEADROOM)
        engine = self._runner.engine
        return Loaded(protocol=PROTOCOL, version=engine.version, path=engine.path, recording=self._runner.recording)

    def _reset(self, request: Any) -> Stepped | Failed:
        from specfuzz.systems.sglang import protocol

        assert self._runner is not None
        self._limit = request.step_limit
        with _Alarm(self._limit):
            snapshot = self._runner.reset(request.config, request.mutant)
        self._sent, change = snapshot, protocol.difference(None, snapshot)
        return protocol.Stepped(difference=change)

    def _apply(self, request: Any) -> Stepped | Failed:
        from specfuzz.systems.sglang import protocol

        assert self._runner is not None
        runner, engine, observer = self._runner, self._runner.engine_seconds, self._runner.observer_seconds
        with _Alarm(self._limit):
            receipt, snapshot = runner.step(protocol.unpack(request))
        change, self._sent = protocol.difference(self._sent, snapshot), snapshot
        return protocol.Stepped(
            difference=change,
            receipt=receipt,
            engine_seconds=runner.engine_seconds - engine,
            observer_seconds=runner.observer_seconds - observer,
        )


class _Alarm:
    """Ends the process when its body takes too long; the default action of SIGALRM needs no Python to run."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        import signal

        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *_exc: object) -> None:
        import signal

        signal.setitimer(signal.ITIMER_REAL, 0)


def main(package: str) -> int:
    """Serve until the client closes its end of the pipe."""
    frames = _take_stdout()
    _adopt_specfuzz(package)
    from specfuzz.systems.sglang import protocol

    server = Server()
    try:
        while (body := protocol.receive(sys.stdin.buffer)) is not None:
            protocol.send(frames, server.answer(protocol.REQUESTS.decode(body)))
    except (BrokenPipeError, KeyboardInterrupt):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
