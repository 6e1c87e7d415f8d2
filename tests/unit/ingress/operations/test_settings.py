"""Settings of the commands that change a database server."""

import pytest

from ingress.settings import load_migration_settings


def test_no_address_is_shown_where_settings_are_printed(monkeypatch: pytest.MonkeyPatch):
    names = ("DATABASE_OWNER_URL", "DATABASE_ADMIN_URL", "DATABASE_INGRESS_URL", "DATABASE_WORKER_URL")
    for name in names:
        monkeypatch.setenv(name, "postgresql://role:hidden@h/x")

    settings = load_migration_settings()

    assert "hidden" not in repr(settings)
    assert settings.admin_url is not None
    assert settings.admin_url.get_secret_value() == "postgresql://role:hidden@h/x"
