"""One program of the escape battery: what is run, and how its result is judged."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chat_proc.sandbox.battery.findings import Finding
from chat_proc.sandbox.probes.attempts import Surroundings
from everturn.ports.sandbox import RunResult, ToolCaller
from everturn.wire.execution import ArgumentRule, Capability, ToolGrant

GRANTED_TOOL: Final = "battery_tools.echo"
ONE_TOOL: Final = Capability((ToolGrant(GRANTED_TOOL, (ArgumentRule("text", max_chars=100),)),), max_calls=50)
NONCE: Final = "battery_tools._call.__self__._nonce"
"""How a program reads its own nonce: it is no secret from it."""

Judge = Callable[[RunResult], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Trial:
    """`attempts` are the pairs of group and name that `judge` is to tell of; what it leaves out counts as not held.

    With `call_tool` None tool calls are answered by an echo.
    """

    attempts: tuple[tuple[str, str], ...]
    program: str
    judge: Judge
    timeout_s: float = 20.0
    outputs: tuple[str, ...] = ()
    inputs: Mapping[str, bytes | Path] = field(default_factory=dict[str, bytes | Path])
    capability: Capability = field(default_factory=Capability)
    call_tool: ToolCaller | None = None


BuildTrials = Callable[[Surroundings], Iterable[Trial]]
