"""What the compose file promises of networks and of its file store; what an engine makes of it is in tests/compose."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from chat_proc.models.providers import PROVIDERS
from everturn_local.compose.prepare import save_secrets
from everturn_local.compose.program import FILE
from everturn_local.compose.unhealthy import WORKERS


@pytest.fixture(scope="module")
def file() -> Any:
    return yaml.safe_load(FILE.read_text())


def test_the_broker_is_alone_on_an_internal_network(file: Any):
    joined = {name: set(service.get("networks", ())) for name, service in file["services"].items()}

    assert joined.pop("broker") == {"broker-metrics"}
    assert not [name for name, networks in joined.items() if "broker-metrics" in networks]
    assert file["networks"]["broker-metrics"] == {"internal": True}
    assert "ports" not in file["services"]["broker"]


@pytest.mark.parametrize("provider", [name for name, provider in PROVIDERS.items() if provider.keys])
def test_workers_get_the_key_of_each_provider(file: Any, provider: str):
    key = next(iter(PROVIDERS[provider].keys))
    secret = {"file": "${EVERTURN_SECRETS:-./secrets}/" + key.lower().replace("_", "-")}

    assert key in file["services"][WORKERS]["secrets"], f"add - {key} to the secrets of {WORKERS} in {FILE.name}"
    assert file["secrets"].get(key) == secret, f"add {key} to the secrets at the end of {FILE.name}"


def test_each_secret_has_its_file_before_the_first_start(file: Any, tmp_path: Path):
    save_secrets(tmp_path, {})

    assert {Path(secret["file"]).name for secret in file["secrets"].values()} <= {
        each.name for each in tmp_path.iterdir()
    }


def test_the_health_check_of_a_worker_requests_its_page(file: Any):
    worker = file["services"][WORKERS]

    assert "http://127.0.0.1:9464/livez" in worker["healthcheck"]["test"][-1]
    assert worker["environment"]["METRICS_LISTEN"] == "0.0.0.0:9464"


def test_only_the_ingress_can_be_reached_from_outside(file: Any):
    assert [name for name, service in file["services"].items() if service.get("ports")] == ["ingress"]


def test_the_optional_proxy_has_the_network_of_the_ingress_and_all_its_configuration_needs(file: Any):
    proxy, ingress = file["services"]["proxy"], file["services"]["ingress"]
    configuration, _ = proxy["volumes"][0].split(":", 1)
    placeholders = re.findall(r"\$\{(\w+)\}", (FILE.parent / configuration).read_text().partition("upstream")[2])

    assert (proxy["profiles"], proxy["network_mode"]) == (["proxy"], "service:ingress")
    assert set(placeholders) == set(proxy["environment"])
    assert proxy["environment"]["INGRESS"] == f"127.0.0.1:{ingress['environment']['PORT']}"
    assert ingress["ports"][1].endswith(f":{proxy['environment']['LISTEN']}")


@pytest.mark.parametrize(
    ("unpaired", "code", "said"), [("exit 1", 0, "serves"), ("exec sleep 60", 1, "would accept any credentials")]
)
def test_a_file_store_that_does_not_read_its_key_is_not_started(
    file: Any, unpaired: str, code: int, said: str, tmp_path: Path
):
    (command,) = file["services"]["s3"]["command"]
    rclone = tmp_path / "rclone"
    rclone.write_text(f'#!/bin/sh\nif [ "$RCLONE_AUTH_KEY" = unpaired ]; then {unpaired}; fi\necho "serves $*"\n')
    rclone.chmod(0o755)

    shell = ["/bin/sh", "-c", command.replace("$$", "$").replace("timeout 5", "timeout 0.2")]
    done = subprocess.run(shell, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False)

    assert (done.returncode, said in done.stdout) == (code, True), done


def test_a_container_that_only_shows_that_an_image_exists_has_no_network(file: Any):
    for name in ("supervisor", "executor"):
        service = file["services"][name]
        assert (service["network_mode"], service["restart"], service["read_only"]) == ("none", "no", True)
        assert file["services"]["broker"]["depends_on"][name] == {"condition": "service_completed_successfully"}
