"""The agents of this installation: workers publish the bundles that they run, the ingress lists them and refuses
others."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final, Protocol

from everturn.core.identity import Principal
from everturn.core.storable import make_storable

DEFAULT_BUNDLE: Final = "default"
"""Names the agent that answers messages without a bundle, whichever that is; and the agent of the environment, unless
the operator chose another default."""
RENEW_S: Final = 10.0
"""How often a worker publishes its bundles again."""
LISTED_S: Final = 35.0
"""A bundle is listed until the newest publication of any worker is so much newer than its own: three missed renewals.
When no worker runs, all stay listed, because their turns wait for one."""
KEPT_DAYS: Final = 31
"""How long the content of a version is kept after its last publication: longer than the longest wait for an
approval."""


@dataclass(frozen=True, slots=True)
class OperationListing:
    """One operation of a bundle. Only people with one of `roles` may call it; all who may use the bundle if there are
    none. `parameters` is the JSON schema of its arguments."""

    name: str
    summary: str
    parameters: Mapping[str, Any]
    roles: tuple[str, ...] = ()
    effect: str = "irreversible"
    timeout_s: float = 30.0

    def is_open_to(self, principal: Principal) -> bool:
        """Whether this person may call it, apart from the bundle's own roles."""
        return not self.roles or any(role in principal.roles for role in self.roles)


@dataclass(frozen=True, slots=True)
class WidgetListing:
    """A page of a bundle that clients show beside its conversations. `name` is that of its folder."""

    name: str
    title: str


@dataclass(frozen=True, slots=True)
class BundleListing:
    """One version of a bundle, as people choose it. Only people with one of `roles` may use it; all if there are none.

    `error` says why newer content is refused, `problems` what does not work in the version that serves, such as an MCP
    server that is away. Without `is_ready` there is no version that can run.
    """

    id: str
    digest: str
    title: str
    description: str = ""
    icon: str = ""
    starters: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    is_default: bool = False
    is_ready: bool = True
    error: str = ""
    problems: tuple[str, ...] = ()
    operations: tuple[OperationListing, ...] = ()
    widgets: tuple[WidgetListing, ...] = ()

    def is_open_to(self, principal: Principal) -> bool:
        """Whether this person may use it."""
        return self.is_ready and (not self.roles or any(role in principal.roles for role in self.roles))


BUILT_IN: Final = BundleListing(DEFAULT_BUNDLE, "", "Everturn", is_default=True)
"""Listed until the first worker has published."""


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """The content of a version: its manifest as JSON, and its packed files.

    `widgets` are the files of its widgets once more, by their path below `widgets/`: the ingress serves them, and reads
    nothing else of a version. `load` leaves them out.
    """

    id: str
    digest: str
    manifest: str
    files: bytes
    widgets: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)


class BundleRegistry(Protocol):
    """The published bundles. They belong to the installation, not to a principal."""

    async def load_listed(self) -> tuple[BundleListing, ...]:
        """One version for each id that workers still publish, by id: the newest that can run, else the newest.
        BUILT_IN if nothing was ever published. Raises Unavailable."""
        ...

    async def load(self, bundle_id: str, digest: str | None = None) -> StoredBundle:
        """The content of this version, also if no worker publishes it any more; of the newest one for None. Raises
        NotFound, Unavailable."""
        ...

    async def load_widget_file(self, bundle_id: str, digest: str, path: str) -> bytes:
        """A file of this version's widgets, by its path below `widgets/`. Raises NotFound, Unavailable."""
        ...

    async def store(self, bundle: StoredBundle) -> None:
        """Store the content of a version before it is published. Raises Unavailable."""
        ...

    async def publish(self, listings: Sequence[BundleListing], *, withdrawn: Sequence[str] = ()) -> None:
        """Publish all bundles of a worker at once, and remove what nobody has published for KEPT_DAYS. A listing whose
        content is not stored can't run. The bundles with the ids `withdrawn` are listed only if another worker
        publishes them again. Characters that can't be stored are replaced. Raises Unavailable."""
        ...


def write_listing(listing: BundleListing) -> str:
    """What people see of it, as JSON."""
    shown = {
        "title": listing.title,
        "description": listing.description,
        "icon": listing.icon,
        "starters": listing.starters,
        "roles": listing.roles,
        "problems": listing.problems,
        "operations": [asdict(each) for each in listing.operations],
        "widgets": [[widget.name, widget.title] for widget in listing.widgets],
    }
    return json.dumps(make_storable(shown), ensure_ascii=False)


@lru_cache(512)
def read_listing(shown: str) -> Mapping[str, Any]:
    """The fields of `write_listing`, without those that only another version knows. The same text is parsed once: an
    ingress reads all listings every second."""
    fields = json.loads(shown)
    lists = {name: tuple(fields.get(name, ())) for name in ("starters", "roles", "problems")}
    operations = tuple(map(_read_operation, fields.get("operations", ())))
    widgets = tuple(WidgetListing(*each[:2]) for each in fields.get("widgets", ()))
    texts = {name: fields.get(name, "") for name in ("title", "description", "icon")}
    return {**texts, **lists, "operations": operations, "widgets": widgets}


def _read_operation(fields: Mapping[str, Any]) -> OperationListing:
    return OperationListing(
        name=fields["name"],
        summary=fields.get("summary", ""),
        parameters=fields.get("parameters", {}),
        roles=tuple(fields.get("roles", ())),
        effect=fields.get("effect", "irreversible"),
        timeout_s=fields.get("timeout_s", 30.0),
    )
