"""The port: which configurations a system runs, what it can do under each, and why it refuses the others."""

from __future__ import annotations

from specfuzz.core.capability import Capability
from specfuzz.core.config import EngineConfig
from specfuzz.core.port import accepted_configs
from specfuzz.errors import ConfigError, UnknownName
from tests.campaign.fakes import OnlyPageOne


class Choosy(OnlyPageOne):
    """Doesn't know every algorithm either."""

    def capabilities(self, config: EngineConfig) -> Capability:
        if config.algorithm == "NONE":
            raise UnknownName("there is no algorithm `NONE`.")
        return super().capabilities(config)


PLAIN = EngineConfig()
PAGED, SYNC, NONE = PLAIN.with_(page_size=4), PLAIN.with_(overlap=False), PLAIN.with_(algorithm="NONE")


def test_configurations_are_sorted_by_whether_the_system_runs_them_in_their_order() -> None:
    accepted, refused = accepted_configs(Choosy(), [PAGED, SYNC, NONE, PLAIN])
    assert list(accepted) == [SYNC, PLAIN] and list(refused) == [PAGED, NONE]
    assert Capability.OVERLAP in accepted[PLAIN] and Capability.OVERLAP not in accepted[SYNC]


def test_a_refusal_keeps_its_reason() -> None:
    _accepted, refused = accepted_configs(Choosy(), [PAGED, NONE])
    assert isinstance(refused[PAGED], ConfigError) and "`page_size`=4" in str(refused[PAGED])
    assert isinstance(refused[NONE], UnknownName)
