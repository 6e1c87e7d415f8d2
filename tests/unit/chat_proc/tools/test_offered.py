"""What a worker offers, with and without a sandbox."""

import asyncio

from turn_harness.programs import build_parts

from chat_proc.sandbox.port import RunRequest, RunResult, SandboxUnavailable, ToolCaller
from chat_proc.tools.offered import offer_tools
from everturn.execution.messages import Posture


class IdleSandbox:
    """A sandbox that is only asked what it is."""

    posture = Posture(
        launcher="bubblewrap",
        runtime="bwrap 0.8",
        outer_uid=1001,
        user="uid 1001",
        network="no network",
        memory="1 GiB of memory",
        processes="64 processes",
        disk="256 MiB of disk",
        seccomp="on",
    )

    async def run(self, request: RunRequest, call_tool: ToolCaller, *, stop: asyncio.Event | None = None) -> RunResult:
        raise NotImplementedError


def test_with_a_sandbox_the_code_tool_is_offered(tool_ports) -> None:
    offered = offer_tools(tool_ports, IdleSandbox(), build_parts())

    assert offered.registry.specs[-1].tool_id == "exec_tools.execute_code_python"
    assert offered.sandbox == "bubblewrap"
    assert "; network: no network; memory: 1 GiB of memory; " in offered.posture


def test_without_a_sandbox_the_code_tool_is_not_offered(tool_ports) -> None:
    offered = offer_tools(
        tool_ports, SandboxUnavailable("bubblewrap is not installed.", "apt-get install bubblewrap"), build_parts()
    )

    offered_ids = [spec.tool_id for spec in offered.registry.specs]
    assert "exec_tools.execute_code_python" not in offered_ids
    assert {"react.read", "react.pull", "react.checkout", "react.write", "react.plan"} <= set(offered_ids)
    assert offered.sandbox == "none"
    assert "bubblewrap is not installed" in offered.posture
    assert "apt-get" in offered.sandbox_why


def test_every_tool_says_what_it_is_for(tool_ports) -> None:
    offered = offer_tools(tool_ports, IdleSandbox(), build_parts())

    assert all(spec.strategy != "unknown" for spec in offered.registry.specs)
