"""Receipts of sent signals, and changing them."""

import json
from typing import TYPE_CHECKING

from everturn_client import EverturnClient, Timings

if TYPE_CHECKING:
    from tests.integration.everturn_client.conftest import SmallServer

QUICK = Timings(first_delay_s=0.001, max_delay_s=0.01, give_up_s=5)


async def test_a_signal_is_read_edited_and_retracted(server: "SmallServer") -> None:
    async with EverturnClient(server.url, timings=QUICK, random=lambda: 0.5) as client:
        read = await client.signals.get("conv_1", "sig_1")
        edited = await client.signals.edit("conv_1", "sig_1", "South")
        retracted = await client.signals.retract("conv_1", "sig_1")

    assert [state.signal.state for state in (read, edited, retracted)] == ["accepted", "accepted", "retracted"]
    assert json.loads(await server.wait_for("PATCH", "/conv_1/signals/sig_1")) == {"text": "South"}
    assert edited.signal.text == "South"
