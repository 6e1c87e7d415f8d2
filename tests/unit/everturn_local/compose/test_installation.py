"""The variables of the compose file."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from everturn_local.compose.installation import STORE_URL, NoSocket, build_variables, find_socket
from everturn_local.compose.prepare import BUNDLES, CONFIG, prepare
from everturn_local.compose.program import FILE
from everturn_local.settings import WARM_PROFILES, ComposeSettings


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment that names an engine's socket."""
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        yield {"DOCKER_HOST": f"unix://{path}"}


def test_the_variables_have_folder_port_and_engine_group(engine: dict[str, str], tmp_path: Path):
    settings = ComposeSettings(home=tmp_path, host="0.0.0.0", port=8090, workers=3)

    variables = build_variables(settings, {**engine, "REDIS_IMAGE": "registry.example/redis"})

    assert (variables["HOST"], variables["PORT"], variables["WORKERS"]) == ("0.0.0.0", "8090", "3")
    assert (variables["EVERTURN_SECRETS"], variables["EVERTURN_ENV"]) == (
        str(tmp_path / "secrets"),
        str(tmp_path / "everturn.env"),
    )
    assert variables["EVERTURN_CONFIG_FOLDER"] == str(tmp_path / "config")
    assert variables["DOCKER_GROUP"] == str(os.getgid())
    assert variables["REDIS_IMAGE"] == "registry.example/redis"
    assert variables["EXECUTION_PROFILES"] == WARM_PROFILES
    assert "OBJECTS_URL" not in variables


def test_profiles_of_the_operator_go_first_and_s3_names_the_store(engine: dict[str, str], tmp_path: Path):
    variables = build_variables(ComposeSettings(home=tmp_path, s3=True), {**engine, "EXECUTION_PROFILES": "{}"})

    assert variables["EXECUTION_PROFILES"] == "{}"
    assert variables["OBJECTS_URL"] == STORE_URL


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:2375", "unix:///nowhere/docker.sock"])
def test_the_error_names_the_address_of_a_missing_socket(address: str):
    with pytest.raises(NoSocket, match=address):
        find_socket({"DOCKER_HOST": address})


def test_a_changed_configuration_changes_its_digest(engine: dict[str, str], tmp_path: Path):
    settings = ComposeSettings(home=tmp_path)
    prepare(tmp_path, {})

    def load_digest() -> str:
        return build_variables(settings, engine)["EVERTURN_CONFIG_DIGEST"]

    first, again = load_digest(), load_digest()
    module = tmp_path / "config" / "city_tools.py"
    module.write_text("A = 1\n")
    with_module = load_digest()
    module.write_text("A = 2\n")

    changed = load_digest()
    (tmp_path / "config" / "bundles" / "desk").mkdir()
    (tmp_path / "config" / "bundles" / "desk" / "bundle.toml").write_text('id = "desk"\n')

    assert first == again
    assert len({first, with_module, changed}) == 3
    # Workers load it while they run.
    assert load_digest() == changed


def test_services_get_the_configuration_file_that_is_set():
    services = yaml.safe_load(FILE.read_text())["services"]

    for name in ("ingress", "chat-proc"):
        service = services[name]
        (mounted,) = [volume for volume in service["volumes"] if "EVERTURN_CONFIG_FOLDER" in volume]
        assert mounted.endswith(":/etc/everturn:ro")
        assert service["environment"]["EVERTURN_CONFIG"] == "/etc/everturn/everturn.toml"
        assert service["labels"] == {"everturn.config": "${EVERTURN_CONFIG_DIGEST:-}"}
    assert services["chat-proc"]["environment"]["BUNDLES_DIR"] == f"/etc/everturn/{Path(BUNDLES).name}"
    assert Path(BUNDLES).parent == Path(CONFIG).parent
