"""Secrets as files: generated once, unreadable for others, and never silently generated again."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from chat_proc.settings import OperatorConfig, load_config
from everturn_local.compose.prepare import (
    CONFIG,
    SETTINGS,
    VARIABLES,
    NotPrepared,
    build_secrets,
    load_given,
    prepare,
    save_first_files,
    save_secrets,
    save_store_keys,
)


def read_all(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text().strip() for file in folder.iterdir()}


def test_the_first_start_makes_them_and_the_next_keeps_them(tmp_path: Path):
    folder = tmp_path / "secrets"

    save_secrets(folder, {})
    first = read_all(folder)
    save_secrets(folder, {})

    assert read_all(folder) == first
    redis = {"redis.conf", "ingress-redis-url", "worker-redis-url"}
    assert first.keys() == build_secrets().keys() | load_given(build_secrets()).keys() | redis
    assert urlsplit(first["admin-database-url"]).password == first["postgres-password"]
    check_redis(first)


def check_redis(made: dict[str, str]) -> None:
    """The server knows the operator's password and the hashes of those of the services, which are three."""
    operator, *users = made["redis.conf"].splitlines()
    passwords = {name: urlsplit(made[name]).password or "" for name in ("ingress-redis-url", "worker-redis-url")}
    assert operator == f"requirepass {urlsplit(made['redis-url']).password}"
    assert len({operator, *passwords.values()}) == 3
    for password, line in zip(passwords.values(), users, strict=True):
        assert f"#{hashlib.sha256(password.encode()).hexdigest()} " in line
        assert password not in made["redis.conf"]


def test_an_installation_of_the_version_before_gets_users_for_its_password(tmp_path: Path):
    save_secrets(tmp_path, {})
    before = (tmp_path / "redis-url").read_text()
    for name in ("ingress-redis-url", "worker-redis-url"):
        (tmp_path / name).unlink()

    save_secrets(tmp_path, {})

    assert (tmp_path / "redis-url").read_text() == before
    check_redis(read_all(tmp_path))


def test_no_two_installations_share_one():
    one, other = build_secrets(), build_secrets()

    assert not set(one.values()) & set(other.values())


def test_only_we_get_through_the_folder_and_containers_can_read_the_files(tmp_path: Path):
    folder = tmp_path / "secrets"
    folder.mkdir(mode=0o755)

    save_secrets(folder, {"ANTHROPIC_API_KEY": "sk-given"})

    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o444}


def test_a_given_key_is_kept_at_later_starts(tmp_path: Path):
    save_secrets(tmp_path, {"OPENAI_API_KEY": "sk-1"})
    save_secrets(tmp_path, {})
    assert read_all(tmp_path)["openai-api-key"] == "sk-1"

    save_secrets(tmp_path, {"OPENAI_API_KEY": "sk-2"})
    assert read_all(tmp_path)["openai-api-key"] == "sk-2"
    assert read_all(tmp_path)["anthropic-api-key"] == ""


def test_a_lost_password_is_reported_because_the_data_needs_it(tmp_path: Path):
    save_secrets(tmp_path, {})
    (tmp_path / "worker-database-url").unlink()

    for _ in range(2):
        with pytest.raises(NotPrepared, match="worker-database-url"):
            save_secrets(tmp_path, {})
    assert not (tmp_path / "worker-database-url").exists()


def test_a_killed_first_start_is_repeated_from_the_beginning(tmp_path: Path):
    save_secrets(tmp_path, {})
    for name in ("redis-url", "signing-secret"):
        (tmp_path / name).unlink()

    save_secrets(tmp_path, {})

    made = read_all(tmp_path)
    check_redis(made)


def test_an_unusable_folder_is_reported(tmp_path: Path):
    (tmp_path / "secrets").write_text("a file")

    with pytest.raises(NotPrepared, match="secrets"):
        prepare(tmp_path, {})


def test_the_store_gets_keys_unless_some_were_given(tmp_path: Path):
    save_secrets(tmp_path, {})
    save_store_keys(tmp_path)
    made = read_all(tmp_path)
    save_store_keys(tmp_path)

    assert read_all(tmp_path) == made
    assert len(made["aws-access-key-id"]) > 20
    assert made["aws-access-key-id"] != made["aws-secret-access-key"]


def test_files_of_the_operator_are_never_written_over(tmp_path: Path):
    names = (VARIABLES, SETTINGS, CONFIG)

    prepare(tmp_path, {})
    assert "GUEST_SCOPES=default/default" in (tmp_path / SETTINGS).read_text()
    assert load_config(tmp_path / CONFIG) == OperatorConfig()
    for name in names:
        (tmp_path / name).write_text(f"# {name}\n")
    prepare(tmp_path, {})

    assert [(tmp_path / name).read_text() for name in names] == [f"# {name}\n" for name in names]
    assert (tmp_path / "config" / "bundles").is_dir()


def test_the_variables_name_the_group_of_the_engines_socket(tmp_path: Path):
    socket = tmp_path / "docker.sock"
    socket.touch()

    save_first_files(tmp_path / "one", socket)
    save_first_files(tmp_path / "other", tmp_path / "absent")

    assert f"\nDOCKER_GROUP={os.getgid()}\n" in (tmp_path / "one" / VARIABLES).read_text()
    assert "\nDOCKER_GROUP=999\n" in (tmp_path / "other" / VARIABLES).read_text()


def test_the_script_needs_no_installed_package_and_keys_of_the_store_are_for_who_wants_them(
    repository: Path, tmp_path: Path
):
    shutil.copytree(repository / "deploy", tmp_path / "deploy", ignore=shutil.ignore_patterns("secrets", "__pycache__"))
    shutil.copytree(repository / "libs/common/src", tmp_path / "libs/common/src")
    command = [sys.executable, "-I", "-S", str(tmp_path / "deploy" / "prepare.py")]
    keys = tmp_path / "deploy" / "secrets" / "aws-access-key-id"

    subprocess.run(command, env={"TAVILY_API_KEY": "tvly-1", "RECEIPT_KEY": "-----\na\n-----"}, check=True)
    without = keys.read_text()
    subprocess.run([*command, "--store"], env={}, check=True)
    shutil.move(tmp_path / "deploy" / "secrets" / "redis-url", tmp_path / "lost")
    lost = subprocess.run(command, env={}, capture_output=True, text=True, check=False)

    assert (without, len(keys.read_text().strip())) == ("", 48)
    assert (keys.parent / "tavily-api-key").read_text() == "tvly-1\n"
    assert (keys.parent / "receipt-key").read_text() == "-----\na\n-----\n"
    assert (lost.returncode, lost.stderr.startswith("error: redis-url is missing in")) == (1, True)
