"""Settings of the commands that change a database server; no serving process is given them."""

from pydantic import Field, SecretStr, ValidationError

from everturn.errors import Invalid
from everturn.settings import explain_errors
from ingress.settings import OperatorSettings


class MigrationSettings(OperatorSettings):
    """What `migrate` reads. With a superuser's address it also makes roles and database."""

    admin_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_ADMIN_URL",
        description="postgresql://... of a superuser: `migrate` uses it to create missing roles and the database, and "
        "to set the roles' passwords to those in their addresses.",
    )
    ingress_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_INGRESS_URL",
        description="With DATABASE_ADMIN_URL: the ingress's DATABASE_URL.",
    )
    worker_url: SecretStr | None = Field(
        default=None,
        validation_alias="DATABASE_WORKER_URL",
        description="With DATABASE_ADMIN_URL: the workers' DATABASE_URL.",
    )


def load_migration_settings() -> MigrationSettings:
    """Raises Invalid, which names what is missing."""
    try:
        return MigrationSettings()  # pyright: ignore[reportCallIssue] required settings come from the environment
    except ValidationError as error:
        raise Invalid(" ".join(explain_errors(error))) from error
