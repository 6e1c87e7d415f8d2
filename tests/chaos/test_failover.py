"""The machine of Postgres is lost under load, and its synchronous standby takes over.

`make failover TURNS=200` plays it with so many turns.
"""

import asyncio
import time

import pytest
from faults.chaos import Chaos
from faults.load import DETACHING, PATIENT, SLOTS, TURNS, Load
from faults.replicas import ReplicatedPlatform
from helpers.forks import INGRESS_BOUNDS

pytestmark = [pytest.mark.chaos, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(200 + 2 * TURNS)]

PLATFORM = ReplicatedPlatform
EXTRA_ENV = {"WORKER_SLOTS": str(SLOTS), "QUEUE_MAX": str(100 * TURNS), INGRESS_BOUNDS: "{}", **DETACHING}
TIMINGS = PATIENT
"""Impatient clients, and heartbeats for them, keep the process of many conversations too busy."""
UNCONFIRMED_S = 1.0
OUTAGE_S = 4.0
"""Until somebody promotes the standby: longer than a lease, which lasts 3 s here."""


async def test_accepted_turns_survive_the_loss_of_the_primary(chaos: Chaos) -> None:
    platform, load = chaos.platform, Load(chaos.harness, detached=True)
    assert isinstance(platform, ReplicatedPlatform)
    await load.start()

    # What is committed from now on is confirmed to nobody, and lost.
    platform.to_replica.silence()
    load.disturb()
    await asyncio.sleep(UNCONFIRMED_S)
    lost_at = time.monotonic()
    await platform.lose_primary()
    await asyncio.sleep(OUTAGE_S)
    await platform.promote()
    promoted_at = time.monotonic()
    await load.check()
    load.report("Postgres promoted", lost_at, promoted_at)
