from specfuzz.conformance import run_conformance as run_conformance
from specfuzz.core.clock import Clock as Clock
from specfuzz.core.clock import Owner as Owner
from specfuzz.core.clock import Scope as Scope
from specfuzz.core.config import EngineConfig as EngineConfig
from specfuzz.core.oracle import oracle as oracle
from specfuzz.core.port import System as System
from specfuzz.core.verdict import Clash as Clash
from specfuzz.core.verdict import Verdict as Verdict
from specfuzz.errors import SpecfuzzError as SpecfuzzError
from specfuzz.state_machine import Profile as Profile
from specfuzz.suite.machine import machine as machine
from specfuzz.suite.run import RunResult as RunResult
from specfuzz.suite.run import run as run

__version__: str
__all__: list[str]
