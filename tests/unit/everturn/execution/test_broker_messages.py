"""What worker and broker say: a caller can name a profile and a pair, and nothing else."""

from dataclasses import fields

from everturn.execution.broker_messages import Attach, KillPair, ListPairs, RemovePair, StartPair


def test_no_request_can_express_a_mount_an_option_or_a_privilege():
    asked = {entry.name for kind in (StartPair, Attach, KillPair, RemovePair, ListPairs) for entry in fields(kind)}

    assert asked == {"profile", "run_id", "pair_id", "labels"}
