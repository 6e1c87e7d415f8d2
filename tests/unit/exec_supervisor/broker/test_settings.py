"""The broker's settings: what it starts with and what it refuses."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from everturn.core.settings import split_address
from exec_supervisor.broker.settings import BrokerSettings


def test_without_any_setting_it_serves_a_socket_and_no_network(monkeypatch: pytest.MonkeyPatch):
    for name in ("BROKER_SOCKET", "BROKER_TCP", "DOCKER_HOST", "METRICS_LISTEN"):
        monkeypatch.delenv(name, raising=False)

    settings = BrokerSettings()

    assert settings.socket == Path("/run/everturn/broker.sock")
    assert (settings.tcp, settings.metrics_listen) == ("", "")
    assert settings.docker_host == "unix:///var/run/docker.sock"


def test_an_empty_engine_address_is_the_usual_one():
    assert BrokerSettings(docker_host="").docker_host == "unix:///var/run/docker.sock"


def test_a_network_listener_without_tls_is_refused():
    with pytest.raises(ValidationError, match="BROKER_TLS_DIR"):
        BrokerSettings(tcp="127.0.0.1:7000")


@pytest.mark.parametrize("address", ["7000", "localhost", ":7000", "a b:1", "host:port", "::1:7000"])
def test_an_address_needs_a_host_and_a_port(address: str):
    with pytest.raises(ValidationError):
        BrokerSettings(metrics_listen=address)


@pytest.mark.parametrize(("address", "parts"), [("localhost:0", ("localhost", 0)), ("[::1]:7000", ("::1", 7000))])
def test_an_address_is_split_at_its_port(address: str, parts: tuple[str, int]):
    assert BrokerSettings(metrics_listen=address).metrics_listen == address
    assert split_address(address) == parts


@pytest.mark.parametrize("dial", ["", "broker:7444", "broker.everturn.svc:7444", "0.0.0.0:7444", "[::]:7444"])
def test_pods_need_an_ip_address_to_which_they_connect(dial: str):
    with pytest.raises(ValidationError, match="BROKER_DIAL"):
        BrokerSettings(engine="kubernetes", dial=dial)


@pytest.mark.parametrize("dial", ["10.0.0.7:7444", "[fd00::7]:7444"])
def test_a_broker_of_pods_needs_only_its_own_address(dial: str):
    settings = BrokerSettings(engine="kubernetes", dial=dial)

    assert (settings.kubernetes_api, settings.kubernetes_namespace) == ("https://kubernetes.default.svc", "")


def test_an_owner_in_another_namespace_is_refused():
    with pytest.raises(ValidationError, match="POD_UID"):
        BrokerSettings(
            engine="kubernetes", dial="10.0.0.7:7444", kubernetes_namespace="runs", pod_name="b", pod_uid="1"
        )


def test_pods_have_one_layout_only():
    assert BrokerSettings(layout="combined").layout == "combined"
    with pytest.raises(ValidationError, match="BROKER_LAYOUT"):
        BrokerSettings(engine="kubernetes", dial="10.0.0.7:7444", layout="combined")


@pytest.mark.parametrize(
    ("setting", "text", "problem"),
    [
        ("kubernetes_node_selector", "pool", "'pool' is not a label of a node such as pool=programs"),
        ("kubernetes_node_selector", "a=b,,c=d", "an entry between commas is empty"),
        ("kubernetes_node_selector", "a=b,a=c", "a occurs twice"),
        ("kubernetes_node_selector", "Example.org/pool=a", "'Example.org/pool' in"),
        ("kubernetes_node_selector", "pool=a b", "'a b' in 'pool=a b' is not a valid label value"),
        ("kubernetes_tolerations", "=only:NoSchedule", "'' in '=only:NoSchedule' is not a valid label key"),
        ("kubernetes_tolerations", "programs=only:Never", "'Never' in .* is not a taint effect: NoSchedule"),
        ("kubernetes_tolerations", '[{"key": "programs"}]', "is not a valid label key"),
        ("kubernetes_tolerations", ",".join(["a"] * 33), "at most 32 entries"),
    ],
)
def test_a_placement_that_the_cluster_would_reject_is_refused(setting: str, text: str, problem: str):
    with pytest.raises(ValidationError, match=problem):
        BrokerSettings(**{setting: text})
