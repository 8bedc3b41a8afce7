"""Global counts of speculative decoding: what a dashboard shows, beside the counts that each request keeps.

Source: sglang 0.5.23 managers/scheduler_components/metrics_reporter.py `update_spec_metrics` (behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class SchedulerMetricsReporter:
    """Sums over all rows of all processed verifies. A dead row counts as well, although nothing is settled on it."""

    spec_num_forward_ct: int = 0  # rows
    spec_num_accept_tokens: int = 0  # with the bonus of each row
    spec_num_correct_drafts: int = 0  # without

    def update_spec_metrics(self, bs: int, num_correct_drafts: int, num_accept_tokens: int) -> None:
        """Count one processed verify of bs rows."""
        self.spec_num_forward_ct += bs
        self.spec_num_correct_drafts += num_correct_drafts
        self.spec_num_accept_tokens += num_accept_tokens
