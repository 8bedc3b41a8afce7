"""Runs the kit: opens the subject, chooses configurations, judges clause by clause within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from specfuzz.conformance import algorithm, lifecycle, liveness, looking, receipts, texts, views
from specfuzz.conformance.clauses import Answer, Clause, Evidence, broken
from specfuzz.conformance.report import ConformanceReport, Judged, Unjudged
from specfuzz.core.config import EngineConfig
from specfuzz.core.port import OpenOptions, System, accepted_configs, open_system
from specfuzz.core.registry import Registry
from specfuzz.errors import ConfigError, SpecfuzzError, UsageError
from specfuzz.reference.algorithms import ALGORITHMS

#: The contract of a system, in the order in which it is judged and reported.
CLAUSES: tuple[Clause, ...] = (
    *lifecycle.FIRST, *looking.CLAUSES, *receipts.CLAUSES, *views.CLAUSES, *texts.CLAUSES, *liveness.CLAUSES,
    receipts.every_legal_event_is_answered, *lifecycle.LAST,
)  # fmt: skip
#: Seconds after which no more walks are made than one per configuration; far more than a quick system needs.
MAX_TIME = 12.0


def run_conformance(
    system: str | System | Callable[[], System],
    config: EngineConfig | None = None,
    *,
    clauses: Sequence[str] = (),
    options: OpenOptions | None = None,
    max_time: float = MAX_TIME,
    seed: int = 1,
) -> ConformanceReport:
    """Check a system against the contract of the port; `run_conformance(MySystem).must_pass()` tests an adapter.

    system: its name as on the command line, a class or function that opens one, or an opened one. config: the only
    configuration to run (its twins without overlap and without drafts are compared with it); None takes a spread of
    those that the system accepts. clauses: names, none means all. max_time: seconds for collecting evidence. seed: of
    the first walk. Raises ConfigError if the system runs none of the configurations, MissingPart, UnknownName.
    """
    opener, name, given = _opener(system, options or OpenOptions())
    return _judge(opener, name, given, (config,) if config is not None else _spread(), CLAUSES, clauses, max_time, seed)


def run_algorithm_conformance(
    name: str,
    *,
    clauses: Sequence[str] = (),
    options: OpenOptions | None = None,
    max_time: float = MAX_TIME,
    seed: int = 1,
    open_engine: Callable[[], System] | None = None,
) -> ConformanceReport:
    """Check an algorithm of the reference: its own clauses, then those of a system that runs it.

    open_engine: opens the reference that runs it; None opens a plain one. Raises UnknownName.
    """
    ALGORITHMS.get(name)
    opener = open_engine or (lambda: open_system("reference", options or OpenOptions()))
    return _judge(opener, name, None, _spread_of(name), (*algorithm.CLAUSES, *CLAUSES), clauses, max_time, seed)


def _opener(
    system: str | System | Callable[[], System], options: OpenOptions
) -> tuple[Callable[[], System], str, System | None]:
    if isinstance(system, str):
        spec = system
        return (lambda: open_system(spec, options)), spec, None
    if not isinstance(system, type) and isinstance(system, System):
        opened: System = system
        return (lambda: opened), opened.name, opened
    if not callable(system):
        raise UsageError(f"`{system!r:.80}` is no system: give its name, a class or function that opens one, or one.")
    return system, getattr(system, "__name__", ""), None


def _judge(
    opener: Callable[[], System],
    name: str,
    given: System | None,
    configs: Sequence[EngineConfig],
    declared: Sequence[Clause],
    chosen: Sequence[str],
    max_time: float,
    seed: int,
) -> ConformanceReport:
    known: Registry[Clause] = Registry("clause")
    for one in declared:
        known.register(one.name, one)
    wanted = {known.get(text).name for text in chosen} or set(known.names())
    evidence = Evidence(opener, configs, given=given, deadline=time.monotonic() + max_time, seed=seed)
    judged, unjudged = [], []
    try:
        accepted, refused = accepted_configs(evidence.system, configs)
        if not accepted:
            first = next(iter(refused.values()))
            raise ConfigError(f"`{evidence.system.name}` runs none of the configurations of the kit: {first}")
        evidence.configs = tuple(accepted)
        for one in (one for one in declared if one.name in wanted):
            answer = _answer(one, evidence)
            if answer.passed is None:
                unjudged.append(Unjudged(name=one.name, because=answer.because))
            else:
                judged.append(Judged(name=one.name, passed=answer.passed, because=answer.because))
        return ConformanceReport(
            subject=name or evidence.system.name, version=evidence.system.version, configs=evidence.configs,
            clauses=tuple(judged), not_applicable=tuple(unjudged), events=evidence.events,
        )  # fmt: skip
    finally:
        evidence.close()


def _answer(one: Clause, evidence: Evidence) -> Answer:
    """The judge's answer; what a system shows may be such that a judge can't even read it."""
    try:
        return one.judge(evidence)
    except SpecfuzzError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return broken(f"what the system shows can't be read: {type(error).__name__}: {error}")


def _spread() -> tuple[EngineConfig, ...]:
    """Every ability in some configuration, the plainest first; "tight" pools and few rows force refusals."""
    plain = EngineConfig()
    return (
        plain,
        plain.with_(page_size=4),
        plain.with_(overlap=False),
        plain.with_(overlap=False, page_size=4, radix=False),
        plain.with_(algorithm="NONE"),
        plain.with_(algorithm="NONE", overlap=False, page_size=4),
        plain.with_(num_pages=TIGHT_TOKENS, max_reqs=2),
        plain.with_(needs_cpu_seq_lens=False),
        plain.with_(mixed_chunk=True),
        plain.with_(chunked_prefill=True),
        plain.with_(mixed_chunk=True, chunked_prefill=True, page_size=4),
        plain.with_(grammar=True),
        plain.with_(topk=4, draft_token_num=8),
        plain.with_(topk=4, draft_token_num=8, page_size=4, overlap=False),
    )


#: A pool for one request at its longest, its reserve included, and hardly more.
TIGHT_TOKENS = 60


def _spread_of(algorithm_name: str) -> tuple[EngineConfig, ...]:
    """Overlap on and off, pages of 1 and 4 tokens, few rows, no mirror; branches where the algorithm has them."""
    plain = EngineConfig(algorithm=algorithm_name)
    chains = tuple(plain.with_(overlap=overlap, page_size=size) for overlap in (True, False) for size in (1, 4))
    branches = tuple(config.with_(topk=4, draft_token_num=8) for config in chains) if plain.speculative else ()
    return (
        *chains,
        plain.with_(num_pages=TIGHT_TOKENS, max_reqs=2),
        plain.with_(needs_cpu_seq_lens=False),
        plain.with_(mixed_chunk=True, chunked_prefill=True),
        plain.with_(grammar=True),
        *branches,
    )
