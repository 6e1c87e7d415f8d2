"""Libraries of bundles: installed once for each content of requirements.txt, from a folder of wheels."""

import asyncio
import fcntl
import os
import shutil
import threading
import zipfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.waiting import wait_until

import everturn_sdk
from chat_proc.bundles.host import environments as environments_module
from chat_proc.bundles.host.environments import INSTALL_TIMEOUT_S, BadRequirements, Environments, check_requirements
from chat_proc.bundles.host.processes import WatchedProcess
from chat_proc.bundles.versions import OPEN_S
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.core.subprocesses import run_command

pytestmark = pytest.mark.sampled

UIDS = range(23_000, 24_000)
CODE = 'import greeting\n\n@tool(effect="pure")\ndef greet() -> str:\n    """Greets."""\n    return greeting.TEXT\n'
IDLE = 'from everturn_sdk import tool\n\n@tool(effect="pure")\ndef greet() -> str:\n    """Greets."""\n'
FILES = {
    "tools_descriptor.py": 'TOOLS_SPECS = [{"ref": "desk.py", "alias": "desk"}]',
    "desk.py": f"from everturn_sdk import tool\n{CODE}",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    folder.chmod(0o755)
    packages = {
        "greeting": ("greeting.py", 'TEXT = "hello"\n'),
        "large": ("large.py", "#" * 3 * 1024 * 1024),
        "overwriting": ("overwriting-1.0.data/data/everturn/everturn_sdk/overwritten.py", ""),
        "hooking": ("everturn.pth", "import os\n"),
        "marking": ("marking-1.0.data/data/installed", ""),
        "linking": ("linking-1.0.data/scripts/python", "#!python\n"),
    }
    for name, (path, content) in packages.items():
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(path, content)
            wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "environments"


def open_environments(
    folder: Path, wheels: Path, more: Mapping[str, str] | None = None, **changes: Any
) -> Environments:
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), **(more or {})}
    return Environments(folder, pip_settings=pip, **changes)


async def install(environments: Environments, requirements: bytes) -> Path:
    async with environments.use(requirements) as python:
        return python


async def imports(python: Path, names: str) -> bool:
    status, _, _ = await run_command([str(python), "-I", "-c", f"import {names}"], timeout_s=60)
    return status == 0


async def test_a_bundle_has_its_libraries_and_others_do_not(open_host, folder, wheels):
    environments = open_environments(folder, wheels)
    with_it = await open_host(
        files={**FILES, "requirements.txt": "greeting==1.0  # polite\n"}, environments=environments
    )

    assert (await with_it.call("greet")).text == "hello"
    with pytest.raises(Invalid, match="No module named 'greeting'"):
        await open_host(files=FILES, environments=environments)


async def test_an_environment_is_installed_once_also_for_many_at_a_time(folder, wheels):
    environments = open_environments(folder, wheels)

    pythons = await asyncio.gather(*(install(environments, b"greeting") for _ in range(3)))
    changed = (Path(pythons[0]).parents[1] / "installed").stat().st_ino
    again = await install(open_environments(folder, wheels), b"greeting")

    assert {*pythons} == {again}
    assert (again.parents[1] / "installed").stat().st_ino == changed
    assert await imports(again, "greeting, everturn_sdk, pydantic")
    assert not await imports(again, "everturn")


async def test_many_who_begin_together_use_an_environment_at_the_same_time(folder, wheels):
    """Also those who were there before it was installed need not wait until the others have ended."""
    async with asyncio.timeout(60), AsyncExitStack() as stack:
        users = [stack.enter_async_context(open_environments(folder, wheels).use(b"greeting")) for _ in range(6)]
        pythons = await asyncio.gather(*users)

    assert len({*pythons}) == 1


async def test_a_process_without_its_environment_is_an_error_of_its_calls(open_host, folder, wheels):
    environments = open_environments(folder, wheels)
    desk = await open_host(files=FILES | {"desk.py": IDLE}, environments=environments)
    shutil.rmtree((await install(environments, b"")).parents[1])
    await desk.host.close()

    async with asyncio.timeout(60):
        assert "it could not be started: " in (await desk.call("greet")).text


async def test_what_can_not_be_installed_is_refused_with_the_words_of_pip(open_host, folder, wheels):
    environments = open_environments(folder, wheels, redactor=Redactor(["lost-library"]))

    with pytest.raises(Invalid) as refused:
        await open_host(files={**FILES, "requirements.txt": "lost-library==9"}, environments=environments)

    assert "pip ended with status 1." in refused.value.detail
    assert "No matching distribution found for [redacted]==9" in refused.value.detail

    with pytest.raises(BadRequirements) as refused:
        await install(environments, b"# Not both.\ngreeting\ngreeting!=1.0\n")

    lines = refused.value.detail.splitlines()
    assert lines[1].startswith("ERROR: Cannot install greeting and greeting!=1.0 because")
    assert "    The user requested greeting!=1.0" in lines and len(lines) <= 11
    assert not [path for path in folder.iterdir() if path.is_dir()]


async def test_libraries_that_are_too_large_are_refused(folder, wheels):
    environments = open_environments(folder, wheels, max_mib=2)

    with pytest.raises(BadRequirements, match=r"more than 2 MiB|status"):
        await install(environments, b"large")
    assert not [path for path in folder.iterdir() if path.is_dir()]


@pytest.mark.parametrize("package", ["overwriting", "hooking", "marking", "linking"])
async def test_a_wheel_changes_nothing_of_the_platform(folder, wheels, package):
    with pytest.raises(BadRequirements, match=r"a name that Everturn uses|the links of the environment"):
        await install(open_environments(folder, wheels), package.encode())

    assert not (Path(everturn_sdk.__file__).parent / "overwritten.py").exists()
    assert not [path for path in folder.iterdir() if path.is_dir()]


async def test_environments_in_use_stay_when_others_are_removed(open_host, folder, wheels):
    environments = open_environments(folder, wheels, max_kept=1)
    files = {**FILES, "requirements.txt": "greeting"}
    async with AsyncExitStack() as stack:
        await open_host(files=files, environments=environments, stack=stack)
        used = await install(environments, b"greeting")
        first = await install(environments, b"large")
        second = await install(open_environments(folder, wheels, max_kept=1), b"large==1.0")
        kept = [python.exists() for python in (used, first, second)]

    third = await install(environments, b"")

    assert kept == [True, False, True]
    assert [path.name for path in folder.glob("*/installed")] == ["installed"]
    assert third.exists()


async def test_workers_that_wait_for_an_installation_fail_with_it(folder, wheels, monkeypatch):
    begun, go_on, created = threading.Event(), threading.Event(), []
    create = environments_module._create

    def create_slowly(environment: Path) -> None:
        created.append(environment)
        begun.set()
        go_on.wait(20)
        create(environment)

    monkeypatch.setattr(environments_module, "_create", create_slowly)
    tasks = [asyncio.create_task(install(open_environments(folder, wheels), b"missing-library"))]
    await asyncio.to_thread(begun.wait, 20)
    tasks += [asyncio.create_task(install(open_environments(folder, wheels), b"missing-library")) for _ in range(2)]
    await asyncio.sleep(0.5)
    go_on.set()
    failures = await asyncio.gather(*tasks, return_exceptions=True)

    assert {type(failure) for failure in failures} == {BadRequirements}
    assert len({str(failure) for failure in failures}) == len(created) == 1 and "missing-library" in str(failures[0])
    with pytest.raises(BadRequirements):
        await install(open_environments(folder, wheels), b"missing-library")
    assert len(created) == 2, "a later use tries again"


async def test_an_installation_has_a_time_limit(folder, wheels):
    with pytest.raises(BadRequirements, match=r"not installed within 0\.05 s"):
        await install(open_environments(folder, wheels, timeout_s=0.05), b"greeting")


@pytest.mark.parametrize(("step", "cancellations"), [("_create", 1), ("_create", 2), ("_add_sdk", 1), ("_add_sdk", 2)])
async def test_a_cancelled_installation_keeps_its_lock_until_its_thread_has_ended(
    folder, wheels, monkeypatch, step, cancellations
):
    begun, go_on = threading.Event(), threading.Event()
    work, ended = getattr(environments_module, step), []

    def work_slowly(environment: Path) -> None:
        begun.set()
        go_on.wait(20)
        try:
            work(environment)
        finally:
            ended.append(environment)

    monkeypatch.setattr(environments_module, step, work_slowly)
    first = asyncio.create_task(install(open_environments(folder, wheels), b"greeting"))
    await asyncio.to_thread(begun.wait, 20)
    monkeypatch.setattr(environments_module, step, work)
    for _ in range(cancellations):
        first.cancel()
        await asyncio.sleep(0.1)
    second = asyncio.create_task(install(open_environments(folder, wheels), b"greeting"))
    await asyncio.sleep(0.5)
    assert not ended and not second.done()
    assert first.done() == (cancellations == 2), "a caller that is cancelled twice waits for nothing more"

    go_on.set()
    python = await second

    assert len(ended) == 1 and await imports(python, "greeting, everturn_sdk")
    await asyncio.wait({first}, timeout=5)
    assert first.cancelled() and (python.parents[1] / "installed").exists()


async def test_an_installation_that_is_cancelled_twice_leaves_no_files(folder, wheels, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    create, ended = environments_module._create, []

    def create_slowly(environment: Path) -> None:
        begun.set()
        go_on.wait(20)
        create(environment)
        ended.append(environment.is_dir())

    monkeypatch.setattr(environments_module, "_create", create_slowly)
    installing = asyncio.create_task(install(open_environments(folder, wheels), b"greeting"))
    await asyncio.to_thread(begun.wait, 20)
    for _ in range(2):
        installing.cancel()
        await asyncio.sleep(0.1)
    go_on.set()

    await wait_until(lambda: ended == [True] and not [path for path in folder.iterdir() if path.is_dir()])
    assert installing.cancelled()


async def test_a_lock_that_is_opened_for_a_cancelled_caller_is_closed(folder, wheels, monkeypatch):
    begun, go_on, opened = threading.Event(), threading.Event(), []
    open_lock = environments_module._open_lock

    def open_slowly(environment: Path) -> int:
        begun.set()
        go_on.wait(20)
        opened.append(open_lock(environment))
        return opened[0]

    def is_open() -> bool:
        return any(
            os.path.realpath(f"/proc/self/fd/{one}").startswith(str(folder)) for one in os.listdir("/proc/self/fd")
        )

    monkeypatch.setattr(environments_module, "_open_lock", open_slowly)
    using = asyncio.create_task(install(open_environments(folder, wheels), b"greeting"))
    await asyncio.to_thread(begun.wait, 20)
    using.cancel()
    await asyncio.wait({using}, timeout=5)
    assert using.cancelled()
    go_on.set()

    await wait_until(lambda: opened and not is_open())


async def test_what_a_dead_worker_has_half_installed_is_removed(folder, wheels):
    for name in ("half", "held", "foreign"):
        (folder / name / "bin").mkdir(parents=True)
        if name != "foreign":
            (folder / f"{name}.lock").touch()
    folder.chmod(0o755)
    with (folder / "held.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        python = await install(open_environments(folder, wheels), b"")

    left = {path.name for path in folder.iterdir() if path.is_dir()}
    assert left == {"held", "foreign", python.parents[1].name}


async def test_reading_the_settings_of_pip_is_part_of_the_time_for_an_installation(folder, wheels, monkeypatch):
    """So that opening a bundle has time for two, of which the first is another worker's."""
    limits: list[float] = []

    class Watched(WatchedProcess):
        async def wait(self, limit_s: float) -> bool:
            limits.append(limit_s)
            return await super().wait(limit_s)

    monkeypatch.setattr(environments_module, "WatchedProcess", Watched)
    await install(open_environments(folder, wheels), b"greeting")

    assert [limit_s > 0 for limit_s in limits] == [True, True] and limits[1] < limits[0] == INSTALL_TIMEOUT_S
    assert OPEN_S > 2 * INSTALL_TIMEOUT_S


async def test_pip_reads_only_what_its_settings_name(folder, wheels, tmp_path):
    (tmp_path / "secret.txt").write_text("password\n")
    (tmp_path / "limits.txt").write_text("-c secret.txt\n")

    with pytest.raises(BadRequirements, match=r"secret\.txt") as refused:
        await install(
            open_environments(folder, wheels, more={"PIP_CONSTRAINT": str(tmp_path / "limits.txt")}), b"greeting"
        )
    assert "password" not in refused.value.detail


@pytest.mark.parametrize("uids", [range(0), UIDS])
async def test_pip_has_the_settings_of_its_configuration_files(folder, wheels, tmp_path, uids):
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nno-index = true\n[install]\nfind-links =\n  {wheels}\n  /nowhere\n")
    settings.chmod(0o600)
    environments = Environments(folder, pip_settings={"PIP_CONFIG_FILE": str(settings)}, uids=uids)

    python = await install(environments, b"greeting")

    assert await imports(python, "greeting, everturn_sdk")
    for path in (folder, *folder.rglob("*")):
        about = path.lstat()
        assert (about.st_uid, about.st_mode & 0o022 if not path.is_symlink() else 0) == (os.geteuid(), 0), path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
async def test_pip_of_a_worker_of_root_has_another_user(folder, wheels, tmp_path):
    closed = tmp_path / "limits.txt"
    closed.touch(mode=0o600)
    environments = open_environments(folder, wheels, more={"PIP_CONSTRAINT": str(closed)}, uids=UIDS)

    with pytest.raises(BadRequirements, match=r"limits\.txt"):
        await install(environments, b"greeting")


async def test_a_folder_that_others_can_write_to_is_refused(folder, wheels):
    folder.mkdir()
    os.chmod(folder, 0o777)

    with pytest.raises(BadRequirements, match="belongs to another user"):
        await install(open_environments(folder, wheels), b"")


@pytest.mark.parametrize(
    "line",
    [
        "--index-url=x",
        "-r other.txt",
        "-e .",
        "./folder",
        "/absolute.whl",
        "name @ file:///x.whl",
        "git+https://host/x",
        "https://host/x.whl",
        "name==1 --global-option=x",
        "name; extra\\\n--index-url x",
        "$(id)",
        "name==${SECRET}",
        "--hash=sha256:aa",
        "# nothing \\\n/absolute.whl",
        "# nothing \\\r\n--index-url=x",
        "name \\\n# nothing \\\n-r other.txt",
        "name\u2028-r other.txt",
        "\\\n-e .\\",
    ],
)
def test_only_names_of_packages_are_allowed(line: str):
    with pytest.raises(BadRequirements, match=r"line [234]"):
        check_requirements(f"httpx>=0.28\n{line}\n".encode())


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("", []),
        ("# nothing\n\n", []),
        ("# nothing \\\nnumpy\r\n", ["numpy"]),
        ("httpx>=0.28,<1\nnumpy\n", ["httpx>=0.28,<1", "numpy"]),
        (
            "httpx[http2, brotli]==0.28.1 ; python_version >= '3.11'\t# why\n",
            ["httpx[http2, brotli]==0.28.1 ; python_version >= '3.11'"],
        ),
        (
            "numpy==2.0 \\\r\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n",
            ["numpy==2.0 --hash=sha256:aa --hash=sha256:bb"],
        ),
        ("numpy \\", ["numpy"]),
    ],
)
def test_pip_gets_the_packages_that_were_checked(text: str, packages: list[str]):
    assert check_requirements(text.encode()) == packages
