import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretStr, ValidationError
from turn_harness.programs import build_parts

from chat_proc.attachments.reader import AttachmentReader
from chat_proc.bootstrap import (
    build_battery,
    choose_encoder,
    choose_execution,
    choose_web_tools,
    name_environment,
    open_receipts,
    open_worker,
)
from chat_proc.model_choice import build_model
from chat_proc.models.cards import ModelCards
from chat_proc.models.providers import BadModelSetting
from chat_proc.models.roles import ModelChoice
from chat_proc.sandbox.containers import BadBrokerAddress, build_unseen_sandbox, parse_address
from chat_proc.sandbox.launching import SupervisedSandbox
from chat_proc.sandbox.opening import OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import SandboxUnavailable
from chat_proc.sandbox.receipts import BadReceiptKey
from chat_proc.sandbox.remote.absent import build_absent_sandbox
from chat_proc.settings import OperatorConfig, WorkerSettings
from chat_proc.tools.offered import ToolPorts, offer_tools
from chat_proc.tools.web.pages import PageReader
from chat_proc.tools.web.resolver import NameResolver
from chat_proc.worker.loop import Slots
from chat_proc.worker.presence import PresenceTask
from chat_proc.worker.readiness import StartReport
from everturn.core.settings import BadConfig
from everturn.execution.messages import RunLimits
from everturn_local.ports import load_free_port
from everturn_testing.files.artifacts import MemoryArtifacts
from everturn_testing.files.objects import MemoryObjects
from everturn_testing.in_memory_platform import MemoryPlatform
from everturn_testing.turns.conversation_reader import MemoryConversationReader
from everturn_testing.turns.timelines import MemoryTimelines

TOOL_PORTS = ToolPorts(
    MemoryObjects(),
    AttachmentReader(MemoryObjects()),
    MemoryArtifacts(MemoryPlatform()),
    MemoryConversationReader(MemoryPlatform()),
    MemoryTimelines(MemoryPlatform()),
)


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    """Addresses where nobody listens; drivers connect when they are first used."""
    return WorkerSettings(
        mode="development",
        database_url="postgresql://worker@127.0.0.1:1/none",
        redis_url="redis://127.0.0.1:1/0",
        objects_url=tmp_path.as_uri(),
        model="offline",
    )


async def test_a_worker_is_put_together_and_says_what_it_chose(settings: WorkerSettings) -> None:
    async with open_worker(settings) as (_, readiness):
        result = json.loads(readiness.line())

    assert result["ready"] is True
    assert result["model"]
    assert result["why"] == "EVERTURN_MODEL=offline"
    assert result["sandbox"] == "none"


async def test_a_worker_says_at_its_port_what_it_lacks(settings: WorkerSettings) -> None:
    port = load_free_port()

    async with (
        open_worker(settings.model_copy(update={"metrics_listen": f"127.0.0.1:{port}"})),
        httpx2.AsyncClient() as http,
    ):
        ready = await http.get(f"http://127.0.0.1:{port}/readyz")
        alive = await http.get(f"http://127.0.0.1:{port}/livez")

    parts = ready.json()["parts"]
    assert (ready.status_code, ready.json()["status"], alive.status_code) == (503, "unready", 200)
    assert [name for name, part in parts.items() if part["ok"]] == ["postgres_disk", "objects", "loops"]
    assert "Starting: not accepting turns yet." in parts["claims"]["detail"]


async def test_an_unavailable_model_prevents_the_start(settings: WorkerSettings) -> None:
    with pytest.raises(BadModelSetting):
        async with open_worker(settings.model_copy(update={"model": "nobody:knows"})):
            pass


async def test_a_model_without_a_price_prevents_the_start_if_prices_are_required(
    settings: WorkerSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", "local-secret")
    config = tmp_path / "everturn.toml"
    config.write_text(
        '[models]\nunpriced = "refuse"\n'
        '[models.endpoints.local]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "LOCAL_KEY"\n'
    )
    changed = settings.model_copy(update={"config": config, "model": "local:mine"})

    with pytest.raises(BadConfig, match="price of the model local:mine is unknown"):
        async with open_worker(changed):
            pass


def test_readiness_is_one_line() -> None:
    assert "\n" not in StartReport("m", "because", "none", "no\nreason", "hashed", "so", True).line()


@pytest.mark.parametrize("provider", ["offline", "scripted"])
def test_each_provider_is_loaded_when_it_is_chosen(provider: str, tmp_path: Path) -> None:
    script = tmp_path / "script.toml"
    script.write_text('[[scripts]]\nwhen = ""\n[[scripts.rounds]]\nreply = "x"\n')
    name = str(script) if provider == "scripted" else "offline"

    model = build_model(ModelChoice(provider, name, "test"), ModelCards(), {}, {})

    assert model.traits.name


async def test_without_a_python_for_programs_no_code_tool_is_offered(settings: WorkerSettings) -> None:
    async with open_sandbox(choose_execution(settings)) as sandbox:
        assert isinstance(sandbox, SandboxUnavailable)
        assert not [
            spec.tool_id for spec in offer_tools(TOOL_PORTS, sandbox, build_parts()).registry.specs if spec.takes_code
        ]


def test_a_brokers_address_that_can_not_be_used_stops_the_start(settings: WorkerSettings) -> None:
    with pytest.raises(BadBrokerAddress, match="unix:///path or tls://host:port"):
        choose_execution(settings.model_copy(update={"broker_url": "tcp://1.2.3.4:5"}))


def test_the_configured_encoder_overrides_the_environment(settings: WorkerSettings) -> None:
    config = OperatorConfig.model_validate({"models": {"roles": {"embedding": "hashed"}}})

    choice = choose_encoder(settings.model_copy(update={"embedder": "auto"}), config)

    assert choice.kind == "hashed"


async def test_a_wrong_configuration_file_stops_the_start(settings: WorkerSettings, tmp_path: Path) -> None:
    with pytest.raises(BadConfig):
        async with open_worker(settings.model_copy(update={"config": tmp_path / "none.toml"})):
            pass


def web_tools(settings: WorkerSettings) -> list[str]:
    return [tool.spec.tool_id for tool in choose_web_tools(settings, PageReader(), NameResolver())]


def test_pages_can_be_read_unless_that_is_switched_off(settings: WorkerSettings) -> None:
    assert web_tools(settings) == ["web_tools.web_fetch"]
    assert web_tools(settings.model_copy(update={"web_fetch": "off"})) == []


def test_the_web_can_be_searched_where_a_key_is_set(settings: WorkerSettings) -> None:
    keyed = settings.model_copy(update={"brave_api_key": SecretStr("k")})

    assert web_tools(keyed) == ["web_tools.web_search", "web_tools.web_fetch"]


PEM = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def test_runs_get_receipts_where_a_key_is_set(settings: WorkerSettings) -> None:
    opened = OpenedSandbox(build_unseen_sandbox(parse_address("unix:///nowhere")), "it works")
    keyed = settings.model_copy(update={"receipt_key": SecretStr(PEM)})

    assert open_receipts(settings, opened) is None
    assert open_receipts(keyed, SandboxUnavailable("No bubblewrap.")) is None
    signer = open_receipts(keyed, opened)
    assert signer is not None
    assert len(signer.key_id) == 32
    assert PEM in keyed.secrets
    with pytest.raises(BadReceiptKey):
        open_receipts(settings.model_copy(update={"receipt_key": SecretStr("k")}), opened)
    with pytest.raises(BadReceiptKey, match="Choose another secret"):
        open_receipts(keyed.model_copy(update={"brave_api_key": SecretStr("everturn")}), opened)


async def test_only_runs_in_an_environment_of_the_worker_name_it(settings: WorkerSettings, tmp_path: Path) -> None:
    keyed = settings.model_copy(update={"receipt_key": SecretStr(PEM), "sandbox_python": tmp_path / "python"})
    containers = OpenedSandbox(build_unseen_sandbox(parse_address("unix:///nowhere")), "it works")
    none = OpenedSandbox(build_absent_sandbox(SandboxUnavailable("All programs run elsewhere.")), "elsewhere")
    posture = replace(none.sandbox.posture, launcher="bubblewrap")
    local = replace(none, sandbox=SupervisedSandbox(none.sandbox.launcher, posture, RunLimits()))

    assert await name_environment(keyed, containers) is containers
    assert await name_environment(keyed, none) is none
    assert await name_environment(settings, local) is local
    with pytest.raises(SandboxUnavailable):
        await name_environment(keyed, local)


def test_the_battery_is_not_repeated_on_a_worker_without_a_sandbox(settings: WorkerSettings) -> None:
    daily = settings.model_copy(update={"battery_interval_s": 86_400})
    unavailable = SandboxUnavailable("All programs run elsewhere.")
    none = OpenedSandbox(build_absent_sandbox(unavailable), "elsewhere")

    assert build_battery(daily, none, Slots(4), cast("PresenceTask", None)) is None


def test_the_battery_is_never_repeated_all_the_time(settings: WorkerSettings) -> None:
    given = settings.model_dump()

    with pytest.raises(ValidationError, match="at least 300 seconds"):
        WorkerSettings.model_validate({**given, "battery_interval_s": 299})
    assert WorkerSettings.model_validate({**given, "battery_interval_s": 300}).battery_interval_s == 300
