"""The conformance kit: pass or fail, clause by clause, for whoever adapts an engine or adds an algorithm."""

from specfuzz.conformance.kit import CLAUSES, run_algorithm_conformance, run_conformance
from specfuzz.conformance.report import ConformanceReport, Judged, Unjudged

__all__ = [
    "CLAUSES",
    "ConformanceReport",
    "Judged",
    "Unjudged",
    "run_algorithm_conformance",
    "run_conformance",
]
