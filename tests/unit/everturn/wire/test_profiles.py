"""Execution profiles: the operator's document is read whole or refused with the reason."""

import json

import pytest

from everturn.errors import Invalid
from everturn.wire.execution import RunLimits
from everturn.wire.profiles import BATTERY_LIMITS, ExecutionProfile, load_profiles


def test_without_a_setting_there_are_the_default_profile_and_the_one_of_the_battery():
    profiles = load_profiles("")

    assert dict(profiles) == {"default": ExecutionProfile(), "battery": ExecutionProfile(limits=BATTERY_LIMITS)}


def test_the_battery_tries_the_images_of_the_default_profile_under_its_own_limits():
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
        '{"a": {"limits": {"memory_bytes": "1g"}}}',
        '{"a": {"network_mode": "host"}}',
        '{"a": {"network_mode": "container:x"}}',
        '{"a": {"cpus": 0}}',
        '{"a": {"warm": 33}}',
        '{"a": {"preload": ["os; x"]}}',
        '{"battery": {}}',
        json.dumps({f"p{number}": {} for number in range(33)}),
    ],
)
def test_what_can_not_be_meant_is_refused(setting):
    with pytest.raises(Invalid, match="EXECUTION_PROFILES"):
        load_profiles(setting)


def test_a_mistake_is_told_with_its_place_and_nothing_else():
    with pytest.raises(Invalid) as refused:
        load_profiles('{"big": {"cpus": "many"}, "small": {"extra": 1}}')

    assert "big.cpus: Input should be a valid number" in str(refused.value)
    assert "small.extra: Extra inputs are not permitted" in str(refused.value)
    assert "pydantic" not in str(refused.value)
