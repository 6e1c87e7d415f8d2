"""The output for the operator, and the exit status."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from everturn.core.ids import ConversationId
from everturn.lifecycle.erasure import Remains
from everturn_testing.core import SequentialIds
from ingress.operations.data import build_verify_erasure
from ingress.settings import IngressSettings

GONE = SequentialIds().conversation()


async def run(remains: Remains, conversation: str = GONE) -> int:
    @asynccontextmanager
    async def find(_: IngressSettings, conversation_id: ConversationId) -> AsyncIterator[Remains]:
        assert conversation_id == GONE
        yield remains

    settings = IngressSettings.model_construct()
    return await build_verify_erasure(find).run(settings, argparse.Namespace(conversation=conversation))


async def test_a_complete_erasure_is_reported_as_clean(capsys: pytest.CaptureFixture[str]) -> None:
    status = await run(Remains({}, False, (), ("k",)))

    assert (status, capsys.readouterr().out) == (
        0,
        f"CLEAN: nothing is left of {GONE}\n1 objects are kept for its forks\n",
    )


async def test_what_is_left_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    status = await run(Remains({"turn": 2}, True, ("key",), ()))

    assert (status, capsys.readouterr().out) == (1, f"REMAINS of {GONE}:\nturn: 2 rows\nevents\nobject key\n")


async def test_an_invalid_id_is_not_queried(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(Remains({}, False, (), ()), "conv_x") == 2
    assert capsys.readouterr().err
