"""Answers and events of the API that are not as documented; the rest is tested over a stand-in of a cluster."""

import json
from pathlib import Path

import pytest

from everturn.core.errors import Invalid
from exec_supervisor.broker.engine import EngineDown
from exec_supervisor.broker.kubernetes_api import ClusterAccess, KubernetesApi, VersionGone, parse_event

POD = {
    "metadata": {"name": "p", "resourceVersion": "7", "labels": None},
    "spec": {"containers": [{"name": "executor", "image": "e@sha256:1"}]},
    "status": {"phase": "Pending", "containerStatuses": None, "message": None, "later": {"field": 1}},
}


def parse(what: object, found: object):
    return parse_event(json.dumps({"type": what, "object": found}).encode())


def test_a_pod_is_read_although_fields_are_missing_null_or_new():
    event = parse("MODIFIED", POD)

    assert event.pod is not None
    assert (event.what, event.version, event.pod.get_label("x"), event.pod.statuses) == ("changed", "7", "", ())
    assert (event.pod.find_image("executor"), event.pod.find_image("supervisor")) == ("e@sha256:1", "")
    assert parse("DELETED", POD).what == "deleted"
    assert parse("A NEW KIND", POD).what == "changed"
    assert parse("BOOKMARK", {"metadata": {"resourceVersion": "9"}}).version == "9"


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"{}",
        b"{",
        b"\xff",
        b'{"type": "ADDED", "object": {}}',
        b'{"type": "BOOKMARK", "object": null}',
        b'{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}',
    ],
)
def test_an_event_that_cannot_be_read_is_an_engine_that_is_down(line: bytes):
    with pytest.raises(EngineDown):
        parse_event(line)


def test_a_version_that_is_too_old_has_an_error_of_its_own():
    with pytest.raises(VersionGone, match="too old"):
        parse("ERROR", {"code": 410, "message": "too old"})


@pytest.mark.parametrize("missing", ["token", "ca.crt", "namespace"])
def test_files_of_the_account_that_are_missing_are_named(tmp_path: Path, missing: str):
    for name in {"token", "namespace"} - {missing}:
        (tmp_path / name).write_text("x")

    with pytest.raises(Invalid, match="KUBERNETES_ACCOUNT_DIR"):
        KubernetesApi(ClusterAccess("https://localhost:1", tmp_path))
