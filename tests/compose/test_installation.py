"""`make up` with a real engine: a turn that runs a program in containers, what survives a restart, and what is shut."""

import json
import re
import time
from pathlib import Path

import pytest
from docker.errors import ContainerError
from standins.installation import OwnInstallation

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

QUESTION = "Total revenue by region as a bar chart"
PNG = b"\x89PNG\r\n\x1a\n"
SERVERS = {"postgres", "redis", "clamav"}


def test_a_turn_runs_a_program_in_containers_and_gets_its_files(
    installation: OwnInstallation, repository: Path, tmp_path: Path
):
    token = installation.let_guest_in()

    said = installation.run_cli(
        token, "chat", QUESTION, "--file", str(repository / "docs" / "sales.csv"), "--download", str(tmp_path)
    )

    assert "highest total revenue: 920.45" in said
    assert (tmp_path / "sales.png").read_bytes().startswith(PNG)
    assert {worker["sandbox"] for worker in installation.load_readiness()["workers"]} == {"containers"}
    assert installation.load_readiness()["status"] == "ready"


def test_the_page_is_served(installation: OwnInstallation):
    page = installation.get("/")

    assert b"<script" in page
    assert b"/assets/" in page
    assert b"## react-markdown" in installation.get("/assets/licenses.txt")


def test_a_restart_keeps_the_conversation_and_down_leaves_no_container(installation: OwnInstallation):
    token = installation.let_guest_in()
    installation.run_cli(token, "chat", "Do you know what a heron is?")
    (conversation,) = set(re.findall(r"conv_[0-9a-z-]+", installation.run_cli(token, "list")))

    installation.down()
    left = installation.load_containers()
    installation.up()

    assert left == {}
    assert "heron" in installation.run_cli(token, "show", conversation)


def test_every_container_is_confined_and_the_engine_is_the_brokers_alone(installation: OwnInstallation):
    containers = installation.load_containers()

    assert containers.keys() >= {"ingress", "chat-proc", "broker", *SERVERS}
    for service, found in containers.items():
        host, config = found["HostConfig"], found["Config"]
        assert config["User"].split(":")[0] not in ("", "0", "root"), service
        assert host["ReadonlyRootfs"], service
        assert host["CapDrop"] == ["ALL"], service
        assert "no-new-privileges:true" in host["SecurityOpt"], service
        assert min(host["Memory"], host["NanoCpus"], host["PidsLimit"]) > 0, service
        assert host["LogConfig"]["Config"]["max-size"], service
        mounted = {mount["Destination"] for mount in found["Mounts"]}
        assert ("/var/run/docker.sock" in mounted) == (service == "broker"), service


def test_our_services_cannot_read_the_brokers_metrics(installation: OwnInstallation):
    page = installation.read_from("broker-metrics", "http://broker:9465/metrics")

    assert "everturn_broker_starts_total" in page
    for network in ("data", "outside", "scan"):
        with pytest.raises(ContainerError):
            installation.read_from(network, "http://broker:9465/metrics")


def test_a_failed_start_shows_the_output_of_failing_containers(installation: OwnInstallation):
    settings = installation.folder / "everturn.env"
    good = settings.read_text()

    # The workers that ran until now are still known of when it begins to wait.
    settings.write_text(f"{good}WORKER_SLOTS=0\n")
    said = installation.fail_up()
    settings.write_text(good)
    installation.up()

    assert re.search(r"chat-proc.1 (ended with 2, repeatedly|is running but not ready yet), and last output:", said)
    assert "chat-proc can't start: WORKER_SLOTS" in said
    assert not re.search(r"(ingress|postgres|broker|migrate).1 (ended|runs|was)", said)
    assert installation.load_readiness()["status"] == "ready"


def test_running_workers_load_a_bundle_that_the_operator_adds(installation: OwnInstallation):
    token = installation.let_guest_in()
    refused = installation.post_message(token, {"text": "Hello", "bundle_id": "analyst"})
    folder = installation.folder / "config" / "bundles" / "analyst"
    folder.mkdir()
    (folder / "bundle.toml").write_text('id = "analyst"\n')

    assert refused == 422
    limit_s = time.monotonic() + 60
    while (status := installation.post_message(token, {"text": "Hello", "bundle_id": "analyst"})) == 422:
        assert time.monotonic() < limit_s
        time.sleep(1)
    assert status == 202


def test_workers_read_the_secrets_of_a_bundle_and_run_what_they_install_for_it(installation: OwnInstallation):
    secrets, environments = installation.folder / "secrets/bundles/desk", "/var/lib/everturn/environments"
    secrets.mkdir()
    (secrets / "key").write_text("The key of the desk.")
    probe = f"cp /bin/true {environments}/probe && {environments}/probe && rm {environments}/probe && echo it runs"

    assert installation.run_in("chat-proc", "cat", "/run/secrets/bundles/desk/key") == "The key of the desk."
    assert installation.run_in("chat-proc", "stat", "-c", "%u %a", environments).strip() == "10001 755"
    assert installation.run_in("chat-proc", "sh", "-c", probe).strip() == "it runs"


def test_workers_have_git_with_its_part_for_https(installation: OwnInstallation):
    version = installation.run_in("chat-proc", "git", "--version")
    said = installation.run_in("chat-proc", "git", "ls-remote", "https://127.0.0.1:9/a.git")

    assert version.startswith("git version 2.")
    assert "unable to access 'https://127.0.0.1:9/a.git/': Failed to connect" in said


def test_no_secret_is_where_the_engine_shows_it(installation: OwnInstallation):
    secrets = [text for file in installation.secrets.iterdir() if file.is_file() and (text := file.read_text().strip())]

    shown = json.dumps(list(installation.load_containers().values()))

    assert len(secrets) >= 9
    assert [secret for secret in secrets if secret in shown] == []


def test_only_the_platforms_roles_can_connect(installation: OwnInstallation):
    networks = {
        service: {name.partition("_")[2] for name in found["NetworkSettings"]["Networks"]}
        for service, found in installation.load_containers().items()
    }

    assert networks["postgres"] == networks["redis"] == {"data"}
    assert {service for service, joined in networks.items() if "data" in joined} <= {
        "postgres",
        "redis",
        "ingress",
        "chat-proc",
        "migrate",
    }
