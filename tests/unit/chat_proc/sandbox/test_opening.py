"""Which launcher is chosen: by what is asked for and by what answers. Bubblewrap itself is in tests/sandbox."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from scripted_broker import HANGS, POSTURE, REPORT, follow, open_broker

from chat_proc.sandbox import opening
from chat_proc.sandbox.containers import BrokerAddress
from chat_proc.sandbox.opening import LAUNCHERS, ExecutionChoice, OpenedSandbox, open_sandbox
from chat_proc.sandbox.port import RunRequest, SandboxUnavailable
from chat_proc.settings import ExecutionMode, LauncherName
from everturn.execution.broker_messages import BrokerRefusal, StartPair
from everturn.execution.messages import Finished, GatewayCall, ToolReply
from everturn.execution.profiles import choose_profiles, load_profiles
from everturn.execution.records import MessageClass

ENDED = Finished("ended", "", 5, POSTURE, REPORT)
NO_PYTHON = Path("/nowhere/bin/python")
NO_IMAGES = follow(refusal=BrokerRefusal("image_missing", "No such image: everturn/executor:latest"))


def choose(mode: ExecutionMode, folder: Path | None, python: Path | None = NO_PYTHON) -> ExecutionChoice:
    broker = None if folder is None else BrokerAddress(f"unix://{folder}/broker.sock", path=f"{folder}/broker.sock")
    return ExecutionChoice(mode, broker, python, load_profiles(""), broker_wait_s=0.05)


async def refuse(call: GatewayCall) -> ToolReply:
    return ToolReply(call.id, False)


def test_every_launcher_can_be_opened_and_auto_tries_them_in_order():
    assert tuple(LAUNCHERS) == get_args(LauncherName)


async def test_off_offers_nothing(tmp_path):
    async with open_sandbox(choose("off", tmp_path)) as opened:
        assert isinstance(opened, SandboxUnavailable)
        assert "EXECUTION_MODE=off" in opened.reason


@pytest.mark.parametrize("mode", ["auto", "containers"])
async def test_a_broker_that_answers_is_taken(tmp_path, mode):
    async with open_broker(tmp_path, follow()), open_sandbox(choose(mode, tmp_path)) as opened:
        assert isinstance(opened, OpenedSandbox)
        assert opened.sandbox.posture == POSTURE


async def test_every_offered_profile_is_booted_once(tmp_path):
    choice = replace(choose("containers", tmp_path), offered=load_profiles('{"large": {"cpus": 2}, "small": {}}'))

    async with open_broker(tmp_path, follow()) as broker, open_sandbox(choice) as opened:
        assert isinstance(opened, OpenedSandbox)

    assert list(opened.profiles) == list(choice.offered)
    assert {request.profile for request in broker.requests if isinstance(request, StartPair)} == set(choice.offered)


async def test_a_profile_that_does_not_boot_is_not_offered(tmp_path):
    works = follow()

    def answer(request: MessageClass) -> MessageClass | None:
        unknown = isinstance(request, StartPair) and request.profile == "large"
        return BrokerRefusal("unknown_profile", "large") if unknown else works(request)

    both = choose_profiles(load_profiles('{"large": {}}'), "")
    async with open_broker(tmp_path, answer):
        async with open_sandbox(replace(choose("containers", tmp_path), offered=both)) as opened:
            assert isinstance(opened, OpenedSandbox)
            assert list(opened.profiles) == ["default"]
        large = {"large": both["large"]}
        async with open_sandbox(replace(choose("containers", tmp_path), offered=large)) as refused:
            assert isinstance(refused, SandboxUnavailable)
            assert "'large'" in refused.reason


async def test_a_profile_whose_network_the_sandbox_lacks_is_not_offered(tmp_path):
    both = choose_profiles(load_profiles('{"default": {}, "open": {"network": ["api.example.com"]}}'), "")
    async with open_broker(tmp_path, follow()):
        async with open_sandbox(replace(choose("containers", tmp_path), offered=both)) as opened:
            assert isinstance(opened, OpenedSandbox)
            assert list(opened.profiles) == ["default"]
        default = {"default": both["open"]}
        async with open_sandbox(replace(choose("containers", tmp_path), offered=default)) as refused:
            assert isinstance(refused, SandboxUnavailable)
            assert "its profile has a network, and this sandbox can't give it one" in refused.reason


async def test_without_a_broker_containers_are_not_offered():
    async with open_sandbox(choose("containers", None)) as opened:
        assert isinstance(opened, SandboxUnavailable)
        assert "BROKER_URL" in opened.reason


async def test_without_images_containers_asked_for_by_name_are_not_offered(tmp_path):
    async with open_broker(tmp_path, NO_IMAGES), open_sandbox(choose("containers", tmp_path)) as opened:
        assert isinstance(opened, SandboxUnavailable)
        assert opened.remedy == "make images"


async def test_containers_asked_for_by_name_recover_when_their_broker_comes(tmp_path):
    async with open_sandbox(choose("containers", tmp_path)) as opened:
        assert isinstance(opened, OpenedSandbox)
        assert "can't be reached" in opened.why
        before = await opened.sandbox.run(RunRequest("r", "t", "pass", ()), refuse)
        async with open_broker(tmp_path, follow(), ENDED):
            after = await opened.sandbox.run(RunRequest("r", "t", "pass", ()), refuse)

    assert (before.error.code, after.ok) == ("sandbox_failed", True)


@pytest.mark.parametrize("code", ["engine_down", "busy", "start_timeout"])
async def test_configured_containers_recover_when_pairs_can_be_started(tmp_path, code):
    down = follow(refusal=BrokerRefusal(code, "not now"))

    async with asyncio.timeout(10), open_broker(tmp_path, down), open_sandbox(choose("containers", tmp_path)) as opened:
        assert isinstance(opened, OpenedSandbox)
        assert code in opened.why
        assert opened.silence


@pytest.mark.parametrize("code", ["engine_down", "start_timeout"])
async def test_a_profile_that_can_not_boot_now_is_offered(tmp_path, code):
    works = follow()

    def answer(request: MessageClass) -> MessageClass | None:
        is_large = isinstance(request, StartPair) and request.profile == "large"
        return BrokerRefusal(code, "not now") if is_large else works(request)

    large = choose_profiles(load_profiles('{"large": {}}'), "large,default")
    choice = replace(choose("containers", tmp_path), offered=large)
    async with open_broker(tmp_path, answer), open_sandbox(choice) as opened:
        assert isinstance(opened, OpenedSandbox)
        assert list(opened.profiles) == ["large", "default"]


async def test_profiles_that_wait_for_their_images_share_one_time_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(opening, "TRIALS_S", 1.0)
    works, asked = follow(), []

    def answer(request: MessageClass) -> MessageClass | None:
        if isinstance(request, StartPair) and request.profile.startswith("late"):
            asked.append(request.profile)
            return HANGS
        return works(request)

    profiles = choose_profiles(load_profiles('{"small": {"timeout_s": 9}, "late1": {}, "late2": {}, "late3": {}}'), "")
    choice = replace(choose("containers", tmp_path), offered=profiles)
    async with asyncio.timeout(2.5), open_broker(tmp_path, answer), open_sandbox(choice) as opened:
        assert isinstance(opened, OpenedSandbox)

    assert (list(opened.profiles), sorted(asked)) == (list(profiles), ["late1", "late2"])
    assert opened.profiles["small"].limits.output_files == 7
    assert opened.profiles["late1"] == profiles["late1"]


@pytest.mark.parametrize(("folder", "message"), [("none", "can't be reached"), (None, "BROKER_URL is not set")])
async def test_auto_falls_back_to_bubblewrap_and_explains_both_failures(tmp_path, folder, message):
    choice = choose("auto", tmp_path / folder if folder else None)

    async with open_sandbox(choice) as opened:
        assert isinstance(opened, SandboxUnavailable)
        assert "no sandbox environment" in opened.reason
        assert message in opened.reason


async def test_bubblewrap_asked_for_by_name_is_not_replaced_by_containers(tmp_path):
    async with open_broker(tmp_path, follow()) as broker, open_sandbox(choose("bubblewrap", tmp_path)) as opened:
        assert isinstance(opened, SandboxUnavailable)

    assert broker.requests == []


async def test_without_an_environment_for_programs_there_is_no_bubblewrap():
    async with open_sandbox(choose("bubblewrap", None, python=None)) as opened:
        assert isinstance(opened, SandboxUnavailable)
        assert (opened.reason, opened.remedy) == ("SANDBOX_PYTHON is not set.", "make setup")
