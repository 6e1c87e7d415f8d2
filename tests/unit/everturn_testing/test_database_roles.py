"""The three views of one database have different names."""

from dataclasses import fields

from everturn_testing.database_roles import Roles


def test_the_views_are_those_of_the_services_and_one_behind_them() -> None:
    assert [field.name for field in fields(Roles)] == ["ingress", "worker", "superuser"]
