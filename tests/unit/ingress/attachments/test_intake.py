"""How many messages with files of one user are checked at once."""

import asyncio
from typing import Any

import pytest
from uploads.checks import AllSound

from everturn.core.identity import Principal
from everturn_testing.core import SequentialIds
from ingress.attachments.antivirus import NoScan
from ingress.attachments.intake import CHECKED_AT_ONCE_OF_USER, FileCaps, IncomingFile, Intake
from ingress.errors import ProblemError
from ingress.metrics import IngressMetrics

ANN, BEN = Principal("t", "p", "ann"), Principal("t", "p", "ben")
CSV = IncomingFile("a.csv", "text/csv", b"a,b\n")


class SlowScan(NoScan):
    """Finds nothing, once it is released."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.asked = 0
        self.all_asked = asyncio.Event()

    async def scan(self, data: bytes, person: str = "") -> str:
        self.asked += 1
        if self.asked == CHECKED_AT_ONCE_OF_USER:
            self.all_asked.set()
        await self.may_end.wait()
        return await super().scan(data, person)


async def test_a_user_does_not_delay_the_checks_of_others() -> None:
    scan = SlowScan()
    nothing: Any = None
    intake = Intake(
        objects=nothing,
        antivirus=scan,
        structure=AllSound(),
        caps=FileCaps(1000, 1000, 1000, 3),
        ids=SequentialIds(),
        metrics=IngressMetrics(),
    )
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        many = [group.create_task(intake.check_files(ANN, [CSV])) for _ in range(CHECKED_AT_ONCE_OF_USER)]
        await scan.all_asked.wait()
        with pytest.raises(ProblemError) as refused:
            await intake.check_files(ANN, [CSV])
        without = await intake.check_files(ANN, [])
        other = group.create_task(intake.check_files(BEN, [CSV]))
        scan.may_end.set()

    assert refused.value.status_code == 429
    assert without == ()
    assert [file.name for task in [*many, other] for file in task.result()] == ["a.csv"] * (CHECKED_AT_ONCE_OF_USER + 1)
    assert await intake.check_files(ANN, [CSV])
