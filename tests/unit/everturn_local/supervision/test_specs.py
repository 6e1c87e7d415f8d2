"""Commands and environments of the services."""

from pathlib import Path

from everturn_local.home import Home
from everturn_local.servers.databases import DatabaseUrls
from everturn_local.supervision.specs import Layout, Surroundings, build_specs

URLS = DatabaseUrls(superuser="s", owner="o", ingress="i", worker="w")
AROUND = Surroundings(Home(Path("/h")), URLS, "redis://r", {"OPENAI_API_KEY": "k", "DATABASE_URL": "theirs"})


def test_each_service_gets_its_own_role_and_never_the_owner():
    specs = {spec.name: spec for spec in build_specs(AROUND, Layout("127.0.0.1", [1, 2], 2))}

    assert list(specs) == ["ingress-1", "ingress-2", "worker-1", "worker-2"]
    assert [spec.env["DATABASE_URL"] for spec in specs.values()] == ["i", "i", "w", "w"]
    assert specs["ingress-2"].env["PORT"] == "2"
    assert not any({"o", "s"} & set(spec.env.values()) for spec in specs.values())


def test_services_inherit_keys_and_get_the_local_addresses():
    (worker,) = build_specs(AROUND, Layout("127.0.0.1", [], 1))

    assert worker.env["OPENAI_API_KEY"] == "k"
    assert worker.env["REDIS_URL"] == "redis://r"
    assert worker.env["OBJECTS_URL"] == "file:///h/objects"
    assert worker.log == Path("/h/logs/worker-1.log")
