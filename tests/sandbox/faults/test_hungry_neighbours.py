"""F13: a program that takes all it can get ends with a typed result in time, and its neighbour notices nothing."""

import asyncio
import time
from dataclasses import dataclass

import pytest

LIMIT_S = 1.0
"""Of a program that only its limit ends."""
AMPLE_S = 20.0
"""Of one that runs into another limit first, however slow the machine is."""
SLACK_S = 3.0
"""The guarantee is the limit and one second; a busy machine gets three times that second."""

NEIGHBOUR = """
open(OUTPUT_DIR + "/sum", "w").write(str(sum(range(100_000))))
"""


@dataclass(frozen=True, slots=True)
class Hungry:
    """A program, the code of its result and the limit that its result names."""

    program: str
    code: str
    limit: str

    @property
    def timeout_s(self) -> float:
        return LIMIT_S if self.code == "timeout" else AMPLE_S


HUNGRY = {
    "out of memory": Hungry(
        "kept = []\nwhile True: kept.append(bytearray(1 << 20))",
        "memory_limit",
        "memory",
    ),
    "memory by forks": Hungry(
        """
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = bytearray(os.urandom(1 << 20)) * 60
        time.sleep(60)
os.wait()
raise SystemExit("the kernel ended one of them")
""",
        "",
        "memory",
    ),
    "fork bomb": Hungry(
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        "timeout",
        "time",
    ),
    "full disk": Hungry(
        "with open(OUTPUT_DIR + '/big', 'wb') as file:\n    while True: file.write(b'x' * (1 << 20))",
        "program_error",
        "disk",
    ),
    "no inodes left": Hungry(
        "number = 0\nwhile True:\n    number += 1\n    open(str(number), 'w').close()",
        "program_error",
        "disk",
    ),
    "200 MiB printed": Hungry(
        "line = 'x' * ((1 << 20) - 1)\nfor _ in range(200): print(line)\nwhile True: pass",
        "timeout",
        "stdout",
    ),
    "endless loop": Hungry(
        "while True: pass",
        "timeout",
        "time",
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("kind", HUNGRY)
async def test_it_ends_with_a_typed_result_in_time_and_its_neighbour_is_right(run, sandbox, kind):
    hungry = HUNGRY[kind]
    if kind == "no inodes left" and "inodes" not in sandbox.posture.disk:
        pytest.skip("this launcher can't count inodes here, and says so in its posture")
    program = "open(OUTPUT_DIR + '/early', 'w').write('early')\n" + hungry.program
    started = time.monotonic()

    starving, neighbour = await asyncio.gather(
        run(program, outputs=("early",), profile="hungry", timeout_s=hungry.timeout_s),
        run(NEIGHBOUR, outputs=("sum",), timeout_s=30),
    )

    assert not starving.ok
    assert hungry.limit in starving.limits_hit, starving.report_text
    assert not hungry.code or starving.error.code == hungry.code, starving.report_text
    assert starving.duration_ms < (hungry.timeout_s + SLACK_S) * 1000
    assert time.monotonic() - started < 60
    assert neighbour.ok, neighbour.report_text
    assert [artifact.body for artifact in neighbour.artifacts] == [b"4999950000"]


async def test_what_was_printed_beyond_the_cap_costs_nobody_memory(run):
    program = "line = 'x' * ((1 << 20) - 1)\nfor _ in range(200): print(line)\nprint('the end')"

    result = await run(program, profile="hungry", timeout_s=30)

    assert result.ok, result.report_text
    assert result.limits_hit == ("stdout",)
    assert result.user_out_tail.endswith("the end\n")
    assert len(result.user_out_tail) <= 64_000
