"""Libraries of bundles: installed once for each content of requirements.txt, from a folder of wheels."""

import asyncio
import os
import zipfile
from pathlib import Path

import pytest

from chat_proc.bundles.host.environments import BadRequirements, Environments, check_requirements
from everturn.core.errors import Invalid
from everturn.core.logging import Redactor
from everturn.core.subprocesses import run_command

CODE = 'import greeting\n\n@tool(effect="pure")\ndef greet() -> str:\n    """Greets."""\n    return greeting.TEXT\n'
FILES = {
    "tools_descriptor.py": 'TOOLS_SPECS = [{"ref": "desk.py", "alias": "desk"}]',
    "desk.py": f"from everturn_sdk import tool\n{CODE}",
}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    for name, content in (("greeting", 'TEXT = "hello"\n'), ("large", "#" * 3 * 1024 * 1024)):
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", content)
            wheel.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
            wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "environments"


def open_environments(folder: Path, wheels: Path, **changes: object) -> Environments:
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels)}
    return Environments(folder, pip_settings=pip, **changes)


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

    pythons = await asyncio.gather(*(environments.prepare(b"greeting") for _ in range(3)))
    changed = (Path(pythons[0]).parents[1] / "installed").stat().st_ino
    again = await open_environments(folder, wheels).prepare(b"greeting")

    assert {*pythons} == {again}
    assert (again.parents[1] / "installed").stat().st_ino == changed
    assert await imports(again, "greeting, everturn_sdk, pydantic")
    assert not await imports(again, "everturn")


async def test_what_can_not_be_installed_is_refused_with_the_words_of_pip(open_host, folder, wheels):
    environments = open_environments(folder, wheels, redactor=Redactor(["lost-library"]))

    with pytest.raises(Invalid) as refused:
        await open_host(files={**FILES, "requirements.txt": "lost-library==9"}, environments=environments)

    assert "pip ended with status 1." in refused.value.detail
    assert "No matching distribution found for [redacted]==9" in refused.value.detail
    assert not [path for path in folder.iterdir() if path.is_dir()]


async def test_libraries_that_are_too_large_are_refused(folder, wheels):
    environments = open_environments(folder, wheels, max_mib=2)

    with pytest.raises(BadRequirements, match=r"more than 2 MiB|status"):
        await environments.prepare(b"large")
    assert not [path for path in folder.iterdir() if path.is_dir()]


async def test_an_installation_has_a_time_limit(folder, wheels):
    with pytest.raises(BadRequirements, match=r"not installed within 0\.05 s"):
        await open_environments(folder, wheels, timeout_s=0.05).prepare(b"greeting")


async def test_a_folder_that_others_can_write_to_is_refused(folder, wheels):
    folder.mkdir()
    os.chmod(folder, 0o777)

    with pytest.raises(BadRequirements, match="belongs to another user"):
        await open_environments(folder, wheels).prepare(b"")


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
    ],
)
def test_only_names_of_packages_are_allowed(line: str):
    with pytest.raises(BadRequirements, match="line 2"):
        check_requirements(f"httpx>=0.28\n{line}\n".encode())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"# nothing\n\n",
        b"httpx>=0.28,<1\nnumpy\n",
        b"httpx[http2, brotli]==0.28.1 ; python_version >= '3.11'  # why\n",
        b"numpy==2.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n",
    ],
)
def test_usual_requirements_are_allowed(text: bytes):
    check_requirements(text)
