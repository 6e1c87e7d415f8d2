"""What the operator's settings say about turns and replies."""

from pathlib import Path

import pytest
from turn_bench.programs import build_parts

from chat_proc.settings import OperatorConfig, WorkerSettings
from chat_proc.tools.offered import ToolPorts, offer_tools
from chat_proc.worker.configured import build_decision_limits, build_limits
from everturn.ports.sandbox import SandboxUnavailable
from everturn.testing.files.artifacts import MemoryArtifacts
from everturn.testing.files.objects import MemoryObjects
from everturn.testing.recall.conversation_reader import MemoryConversationReader
from everturn.testing.turns.platform import MemoryPlatform
from everturn.testing.turns.timelines import MemoryTimelines


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    return WorkerSettings(
        mode="development", database_url="postgresql://w@h/n", redis_url="redis://h/0", objects_url=tmp_path.as_uri()
    )


def build_tool_ports() -> ToolPorts:
    platform = MemoryPlatform()
    return ToolPorts(
        MemoryObjects(), MemoryArtifacts(platform), MemoryConversationReader(platform), MemoryTimelines(platform)
    )


def test_the_limits_of_a_turn_come_from_the_environment_and_the_configuration_file(settings: WorkerSettings) -> None:
    config = OperatorConfig.model_validate({"bundles": {"b": {"react": {"max_iterations": 3}}}})

    limits = build_limits(settings.model_copy(update={"max_iterations": 9}), config)

    assert (limits.rounds, limits.rounds_of_bundle) == (9, {"b": 3})


def test_what_a_reply_may_hold_follows_the_version_and_the_offered_tools(settings: WorkerSettings) -> None:
    tools = offer_tools(build_tool_ports(), SandboxUnavailable("none here"), build_parts()).registry.specs

    off = build_decision_limits(settings, tools)
    older = build_decision_limits(settings.model_copy(update={"agent_version": "v2"}), tools)
    several = build_decision_limits(settings.model_copy(update={"multi_action": "safe_fanout"}), tools)

    assert (off.fanout, off.one_thinking, older.one_thinking) == (None, False, True)
    assert several.fanout is not None
    assert several.fanout.strategies["react.read"] == "exploration"
    assert several.fanout.strategies["react.write"] == "exploitation"
    assert several.fanout.strategies["react.plan"] == "neutral"
    assert "unknown" not in several.fanout.strategies.values()
