"""Execution profiles: the operator's document is read whole or refused with the reason."""

import json

import pytest

from everturn.core.errors import Invalid
from everturn.execution.messages import RunLimits
from everturn.execution.profiles import (
    BATTERY_LIMITS,
    MAX_DETACHED_OUTPUT_BYTES,
    ExecutionProfile,
    choose_profiles,
    load_profiles,
)


def test_the_default_and_battery_profiles_always_exist():
    profiles = load_profiles("")

    assert dict(profiles) == {"default": ExecutionProfile(), "battery": ExecutionProfile(limits=BATTERY_LIMITS)}


def test_the_battery_uses_default_images_and_its_own_limits():
    battery = load_profiles('{"default": {"executor_image": "mine:1", "warm": 2, "preload": ["numpy"]}}')["battery"]

    assert (battery.executor_image, battery.warm, battery.preload) == ("mine:1", 0, ())
    assert battery.limits == BATTERY_LIMITS


def test_a_profile_changes_what_it_names_and_the_default_stays():
    profiles = load_profiles('{"small": {"limits": {"memory_bytes": 1000}, "warm": 2, "preload": ["numpy"]}}')

    assert profiles["small"].limits == RunLimits(memory_bytes=1000)
    assert (profiles["small"].warm, profiles["small"].preload) == (2, ("numpy",))
    assert "default" in profiles


def test_the_document_may_be_a_file(tmp_path):
    (tmp_path / "profiles.json").write_text('{"default": {"cpus": 2}}')

    assert load_profiles(str(tmp_path / "profiles.json"))["default"].cpus == 2


@pytest.mark.parametrize(
    "setting",
    [
        "/nowhere/profiles.json",
        "{",
        "[]",
        '{"a": 1}',
        '{"A": {}}',
        '{"../x": {}}',
        '{"a": {"binds": ["/:/host"]}}',
        '{"a": {"privileged": true}}',
        '{"a": {"limits": {"memory": 1}}}',
        '{"a": {"limits": {"memory_bytes": 0}}}',
        '{"a": {"limits": {"open_files": 31}}}',
        '{"a": {"limits": {"memory_bytes": "1g"}}}',
        '{"a": {"limits": {"memory_bytes": true}}}',
        '{"a": {"limits": {"cpu_s": 99999999999999999999999}}}',
        '{"a": {}, "a": {"network": ["example.com"]}}',
        '{"a":' * 20_000,
        '{"a": {"network_mode": "bridge"}}',
        '{"a": {"network": ["localhost"]}}',
        json.dumps({"a": {"network": [f"h{number}.example.com" for number in range(51)]}}),
        '{"a": {"cpus": 0}}',
        '{"a": {"warm": 33}}',
        '{"a": {"preload": ["os; x"]}}',
        '{"battery": {}}',
        json.dumps({f"p{number}": {} for number in range(33)}),
    ],
)
def test_contradictory_arguments_are_refused(setting):
    with pytest.raises(Invalid, match="EXECUTION_PROFILES"):
        load_profiles(setting)


def test_an_error_is_reported_with_its_location_only():
    with pytest.raises(Invalid) as refused:
        load_profiles('{"big": {"cpus": "many"}, "small": {"extra": 1}}')

    assert "big.cpus: Input should be a valid number" in str(refused.value)
    assert "small.extra: Extra inputs are not permitted" in str(refused.value)
    assert "pydantic" not in str(refused.value)


def test_hosts_of_a_network_get_their_port_and_the_battery_has_none():
    profiles = load_profiles(
        '{"default": {"network": ["API.Example.com.", "*.example.com:8443", "api.example.com:443"]}}'
    )

    assert profiles["default"].network == ("api.example.com:443", "*.example.com:8443")
    assert profiles["battery"].network == ()
    with pytest.raises(Invalid, match=r"default.network: .*'10.0.0.1' is not the full name of a host"):
        load_profiles('{"default": {"network": ["10.0.0.1"]}}')


def test_the_code_tool_offers_all_or_the_named_profiles():
    profiles = load_profiles('{"large": {}, "default": {}, "small": {}}')

    assert list(choose_profiles(profiles, "")) == ["default", "large", "small"]
    assert list(choose_profiles(profiles, " small, default,small")) == ["small", "default"]


@pytest.mark.parametrize("names", ["huge", "default,battery"])
def test_a_profile_that_can_not_be_offered_is_refused_with_those_that_can(names):
    with pytest.raises(Invalid, match="EXECUTION_PROFILES has: default"):
        choose_profiles(load_profiles(""), names)


def test_a_profile_denies_single_tools_and_all_of_an_alias():
    profile = load_profiles('{"x": {"denied_tools": ["web_tools.web_fetch", "lab_tools.*"]}}')["x"]

    assert profile.may_call("web_tools.web_search")
    assert not profile.may_call("web_tools.web_fetch")
    assert not profile.may_call("lab_tools.mix")
    with pytest.raises(Invalid, match="denied_tools"):
        load_profiles('{"x": {"denied_tools": ["everything"]}}')


def test_a_detached_run_has_no_more_outputs_than_its_worker_can_keep():
    limits = {"limits": {"output_bytes": MAX_DETACHED_OUTPUT_BYTES + 1}}

    assert load_profiles(json.dumps({"x": limits, "y": {"detach_after_s": 1, "engine": "fargate", **limits}}))
    with pytest.raises(Invalid, match=r"x: .*limits.output_bytes must be at most 268435456 \(256 MiB\) with detach"):
        load_profiles(json.dumps({"x": {"detach_after_s": 1, **limits}}))
