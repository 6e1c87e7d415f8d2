"""Secrets as files: generated once, unreadable for others, and never silently generated again."""

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from everturn_local.compose.secret_files import (
    GIVEN,
    SecretsUnusable,
    build_secrets,
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
    assert first.keys() == build_secrets().keys() | GIVEN.keys() | redis
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
        with pytest.raises(SecretsUnusable, match="worker-database-url"):
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

    with pytest.raises(SecretsUnusable, match="secrets"):
        save_secrets(tmp_path / "secrets", {})


def test_the_store_gets_keys_unless_some_were_given(tmp_path: Path):
    save_secrets(tmp_path, {})
    save_store_keys(tmp_path)
    made = read_all(tmp_path)
    save_store_keys(tmp_path)

    assert read_all(tmp_path) == made
    assert len(made["aws-access-key-id"]) > 20
    assert made["aws-access-key-id"] != made["aws-secret-access-key"]
