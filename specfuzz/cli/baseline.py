"""`--baseline` of the verbs; what it means stands in `campaign.baseline`."""

from specfuzz.campaign.baseline import Baseline, load_baseline

__all__ = ["Baseline", "load_baseline"]
