"""Attempts on the gateway: denied by ours, and no wonder but for its checks: one that answers all is found out."""

import asyncio
import json
import struct

import pytest

from chat_proc.selftest.probes.attempts import Surroundings, try_one
from chat_proc.selftest.probes.gateway import GATEWAY, TIMEOUTS


def test_all_are_denied_in_the_sandbox(check_all_held):
    check_all_held(GATEWAY, TIMEOUTS)


async def answer_all(reader, writer):
    """Takes whatever comes for a frame and grants it."""
    while await reader.read(1 << 20):
        body = json.dumps({"kind": "reply", "ok": True}).encode()
        writer.write(struct.pack(">I", len(body)) + body)
        await writer.drain()
    writer.close()


LEFT_OUT = ("pass open file descriptors", "make ten thousand connections")
"""No wrong answer reveals the first; for the second a lax server would have to be faster than its queue is long."""


@pytest.mark.parametrize("name", [name for name in GATEWAY.attempts if name not in LEFT_OUT])
async def test_a_gateway_that_grants_all_is_found_out(tmp_path, name):
    place = str(tmp_path / "lax.sock")
    around = Surroundings("", "", 0, "", "", (), "a.b", ("other", "ended"), "mine", place)
    async with await asyncio.start_unix_server(answer_all, place, backlog=1000):
        held, detail = await asyncio.to_thread(try_one, GATEWAY.attempts[name], around)

    assert not held, detail
