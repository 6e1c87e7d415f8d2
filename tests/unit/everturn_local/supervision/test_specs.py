"""Commands and environments of the services."""

from dataclasses import replace
from pathlib import Path

from everturn_local.home import Home
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.supervision.specs import Layout, RedisUrls, Surroundings, build_specs

URLS = DatabaseUrls(superuser="s", owner="o", ingress="i", worker="w")
AROUND = Surroundings(
    Home(Path("/h")), URLS, RedisUrls("redis://i", "redis://w"), {"OPENAI_API_KEY": "k", "DATABASE_URL": "theirs"}
)


def test_each_service_gets_its_own_role_and_never_the_owner():
    specs = {spec.name: spec for spec in build_specs(AROUND, Layout("127.0.0.1", [1, 2], 2))}

    assert list(specs) == ["ingress-1", "ingress-2", "worker-1", "worker-2"]
    assert [spec.env["DATABASE_URL"] for spec in specs.values()] == ["i", "i", "w", "w"]
    assert specs["ingress-2"].env["PORT"] == "2"
    assert not any({"o", "s"} & set(spec.env.values()) for spec in specs.values())


def test_without_containers_no_service_gets_the_engine_address():
    around = replace(AROUND, env={"DOCKER_HOST": "unix:///e", "DOCKER_CERT_PATH": "/c", "PATH": "/bin"})

    specs = build_specs(around, Layout("127.0.0.1", [1], 1))

    assert [spec.name for spec in specs] == ["ingress-1", "worker-1"]
    assert not any(name.startswith(("DOCKER_", "BROKER_")) for spec in specs for name in spec.env)


def test_only_the_broker_gets_the_engine_address():
    env = {"DOCKER_HOST": "unix:///e", "EXECUTION_PROFILES": "{}", "OPENAI_API_KEY": "k", "PATH": "/bin"}

    broker, *others = build_specs(replace(AROUND, env=env), Layout("127.0.0.1", [1], 2, containers=True))

    assert (broker.name, broker.argv[-2:]) == ("broker", ["exec_supervisor", "broker"])
    assert broker.env == {
        "LOG_FORMAT": "json",
        "DOCKER_HOST": "unix:///e",
        "EXECUTION_PROFILES": "{}",
        "PATH": "/bin",
        "BROKER_SOCKET": "/h/sockets/broker.sock",
    }
    assert [spec.env.get("BROKER_URL") for spec in others] == [None, *["unix:///h/sockets/broker.sock"] * 2]
    assert not any("DOCKER_HOST" in spec.env for spec in others)


def test_services_inherit_keys_and_get_the_local_addresses():
    (worker,) = build_specs(AROUND, Layout("127.0.0.1", [], 1))

    assert worker.env["OPENAI_API_KEY"] == "k"
    assert worker.env["REDIS_URL"] == "redis://w"
    assert worker.env["OBJECTS_URL"] == "file:///h/objects"
    assert worker.log == Path("/h/logs/worker-1.log")


def test_only_the_ingress_gets_the_signing_secret_and_antivirus():
    around = replace(AROUND, signing_secret="kept", clamd_url="unix:///h/clamd.sock")

    ingress, worker = build_specs(around, Layout("127.0.0.1", [1], 1))
    theirs, _ = build_specs(replace(around, env={"SIGNING_SECRET": "theirs"}), Layout("127.0.0.1", [1], 1))

    assert (ingress.env["SIGNING_SECRET"], ingress.env["CLAMD_URL"]) == ("kept", "unix:///h/clamd.sock")
    assert not {"SIGNING_SECRET", "CLAMD_URL"} & set(worker.env)
    assert theirs.env["SIGNING_SECRET"] == "theirs"


def test_workers_load_the_bundles_of_the_home_unless_the_caller_names_others(tmp_path: Path):
    around, layout = replace(AROUND, home=Home(tmp_path)), Layout("127.0.0.1", [1], 1)

    _, without = build_specs(around, layout)
    (tmp_path / "bundles").mkdir()
    ingress, at_home = build_specs(around, layout)
    _, elsewhere = build_specs(replace(around, env={"BUNDLES_DIR": "/b"}), layout)

    assert "BUNDLES_DIR" not in without.env | ingress.env
    assert (at_home.env["BUNDLES_DIR"], elsewhere.env["BUNDLES_DIR"]) == (str(tmp_path / "bundles"), "/b")


def test_environments_of_bundles_survive_in_the_home_unless_the_caller_names_a_folder(tmp_path: Path):
    around, layout = replace(AROUND, home=Home(tmp_path)), Layout("127.0.0.1", [1], 1)

    ingress, at_home = build_specs(around, layout)
    _, elsewhere = build_specs(replace(around, env={"BUNDLE_ENVIRONMENTS_DIR": "/e"}), layout)

    assert "BUNDLE_ENVIRONMENTS_DIR" not in ingress.env
    assert at_home.env["BUNDLE_ENVIRONMENTS_DIR"] == str(tmp_path / "environments")
    assert elsewhere.env["BUNDLE_ENVIRONMENTS_DIR"] == "/e"


def test_files_lie_in_the_home_unless_the_caller_names_another_store():
    layout = Layout("127.0.0.1", [1], 1)

    at_home = build_specs(replace(AROUND, env={"OBJECTS_URL": ""}), layout)
    in_a_bucket = build_specs(replace(AROUND, env={"OBJECTS_URL": "s3://files"}), layout)

    assert {spec.env["OBJECTS_URL"] for spec in at_home} == {"file:///h/objects"}
    assert {spec.env["OBJECTS_URL"] for spec in in_a_bucket} == {"s3://files"}


def test_each_worker_and_the_broker_have_their_own_metrics_port():
    around = replace(AROUND, env={"METRICS_LISTEN": "127.0.0.1:9464"})

    broker, _, *workers = build_specs(around, Layout("127.0.0.1", [1], 3, containers=True))

    ports = [part.env["METRICS_LISTEN"] for part in (*workers, broker)]
    assert ports == [f"127.0.0.1:{port}" for port in (9464, 9465, 9466, 9467)]
    assert "METRICS_LISTEN" not in build_specs(AROUND, Layout("127.0.0.1", [1], 1))[1].env
