"""The agents that people may choose, from what workers publish: their list, and the refusal of others."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Final, cast

import structlog
from fastapi import APIRouter, Depends, Request
from pydantic import Field

from everturn.bundles.registry import DEFAULT_BUNDLE, BundleListing
from everturn.core.errors import Unavailable
from everturn.core.identity import Principal, Role
from everturn.core.ttl_cache import TtlCache
from ingress.admission.route import AdmittedRoute
from ingress.auth.gate import Me
from ingress.errors import ProblemError, unknown_bundle
from ingress.fields import JsonBody
from ingress.openapi.responses import problems

_log = structlog.get_logger(__name__)

KEEP_S: Final = 1.0
"""How old the list can be, in seconds: so long a change can take to have an effect here."""
LOAD_LIMIT_S: Final = 2.0
"""How long a request waits for the list."""
OPERATORS: Final = frozenset({Role.PRIVILEGED, Role.ADMIN})
"""Roles that also see which bundles can't be used, and why."""

MAX_NAMED: Final = 20
"""How many ids a refusal names; `GET /bundles` lists all."""

router = APIRouter(prefix="/bundles/{tenant}/{project}", route_class=AdmittedRoute, tags=["bundles"])


class WidgetOut(JsonBody):
    """A page of a bundle's author, to be shown beside the bundle's conversations."""

    name: str = Field(examples=["board"])
    """Its name in `GET /bundles/{tenant}/{project}/{bundle_id}/widgets/{name}`."""
    title: str = Field(examples=["Open tickets"])
    """The name that people see."""


class BundleOut(JsonBody):
    """An agent that the caller may choose, with its `id` as the `bundle_id` of a conversation or a message."""

    id: str = Field(examples=["support"])
    """The value of `bundle_id`."""
    title: str = Field(examples=["Support"])
    """The name that people see."""
    description: str = Field(examples=["Answers questions about orders."])
    """What it does, in one line; can be empty."""
    icon: str = Field(examples=["📦"])
    """An emoji or a few characters; can be empty."""
    starters: tuple[str, ...] = Field(examples=[["Where is my order?"]])
    """Messages to start a conversation with, which clients suggest."""
    widgets: tuple[WidgetOut, ...] = Field(examples=[[{"name": "board", "title": "Open tickets"}]])
    """Its pages for people, by name."""
    is_default: bool = Field(examples=[True])
    """Whether it answers messages that name no bundle in conversations that have none."""
    is_ready: bool = Field(examples=[True])
    """Whether it can run; callers without the role `privileged` or `admin` get only those that can."""
    error: str | None = Field(examples=[None])
    """Why its newest version is refused; null without an error, and for callers without one of these roles."""
    problems: tuple[str, ...] = Field(examples=[["mcp.crm: The server does not answer."]])
    """What does not work in the version in use, such as MCP servers; empty for callers without these roles."""


class BundleList(JsonBody):
    """All bundles that the caller may use: the default one first, then by title."""

    bundles: tuple[BundleOut, ...]
    """The bundles, the default one first, then by title."""


@dataclass(frozen=True, slots=True)
class OpenBundles:
    """The values of `bundle_id` that one person can use, with `default` if the default bundle is among them.

    If the registry could not be read, it is only `default`, and `is_complete` is false: a message to the default bundle
    must not depend on the registry.
    """

    ids: frozenset[str]
    is_complete: bool = True

    def check(self, bundle_id: str) -> None:
        """Raise the refusal of a bundle that is not one of them, for whatever reason."""
        if bundle_id not in self.ids:
            raise self._refuse("body.bundle_id is not a bundle that you can use.")

    def refuse_own(self) -> ProblemError | Unavailable:
        """The refusal of a message or event that names no bundle: that of its conversation, or the default one, is not
        one of them."""
        return self._refuse(
            "You can't use the bundle of this conversation. Name another in body.bundle_id of a message."
        )

    def _refuse(self, detail: str) -> ProblemError | Unavailable:
        if not self.is_complete:
            return Unavailable("The bundles can't be read.")
        named = f"must be one of {', '.join(sorted(self.ids)[:MAX_NAMED])}" if self.ids else "no bundle is open to you"
        more = f" or another of the {len(self.ids)} that GET /bundles lists" if len(self.ids) > MAX_NAMED else ""
        field = {"field": "body.bundle_id", "message": named + more}
        return unknown_bundle(detail, errors=[field])


class Bundles:
    """The bundles of this installation, at most KEEP_S old."""

    def __init__(
        self, load: Callable[[], Awaitable[tuple[BundleListing, ...]]], *, monotonic: Callable[[], float]
    ) -> None:
        self._cache = TtlCache(load, keep_s=KEEP_S, monotonic=monotonic)

    async def load_list(self, principal: Principal) -> BundleList:
        """What this person may use; operators also see what can't be used. Raises Unavailable."""
        sees_all = not OPERATORS.isdisjoint(principal.roles)
        shown = [
            each
            for each in await self._load()
            # The id `default` means the default bundle, so another one with this id can't be named.
            if (each.is_open_to(principal) and (each.is_default or each.id != DEFAULT_BUNDLE))
            or (sees_all and not each.is_ready)
        ]
        shown.sort(key=lambda listing: (not listing.is_default, listing.title.casefold(), listing.id))
        return BundleList(bundles=tuple(_build_view(listing, sees_error=sees_all) for listing in shown))

    async def load_one(self, principal: Principal, bundle_id: str) -> BundleListing:
        """A bundle that this person may use; `default` is the default one. Raises a 404 problem, Unavailable."""
        is_default = bundle_id == DEFAULT_BUNDLE
        for listing in await self._load():
            if (listing.is_default if is_default else listing.id == bundle_id) and listing.is_open_to(principal):
                return listing
        raise unknown_bundle("GET /bundles lists the bundles that you can use.", status=404)

    async def load_name(self, bundle_id: str) -> str:
        """What people know a bundle by: its title and its id. Only the id while the bundles can't be read."""
        try:
            titles = {listing.id: listing.title for listing in await self._load()}
        except Unavailable:
            return bundle_id
        title = titles.get(bundle_id) or bundle_id
        return title if title == bundle_id else f"{title} ({bundle_id})"

    async def load_open(self, principal: Principal) -> OpenBundles:
        """What this person can name as a bundle."""
        try:
            listings = await self._load()
        except Unavailable as error:
            _log.warning("Could not read the bundles; only the default one is accepted", error=str(error))
            return OpenBundles(frozenset({DEFAULT_BUNDLE}), is_complete=False)
        ids = {listing.id for listing in listings if listing.is_open_to(principal)} - {DEFAULT_BUNDLE}
        # While the default changes, workers that have not restarted yet publish the earlier one.
        if all(listing.is_open_to(principal) for listing in listings if listing.is_default):
            ids.add(DEFAULT_BUNDLE)
        return OpenBundles(frozenset(ids))

    async def _load(self) -> tuple[BundleListing, ...]:
        try:
            async with asyncio.timeout(LOAD_LIMIT_S):
                return await self._cache.load()
        except TimeoutError as error:
            raise Unavailable(f"The list of bundles was not loaded in {LOAD_LIMIT_S:.0f} s.") from error


async def load_bundles(request: Request) -> Bundles:
    """The bundles of this application."""
    return cast(Bundles, request.app.state.bundles)


@router.get("", responses=problems())
async def list_bundles(me: Me, bundles: Annotated[Bundles, Depends(load_bundles)]) -> BundleList:
    """The bundles that the caller may use, the default one first."""
    return await bundles.load_list(me)


def _build_view(listing: BundleListing, *, sees_error: bool) -> BundleOut:
    return BundleOut(
        id=listing.id,
        title=listing.title or listing.id,
        description=listing.description,
        icon=listing.icon,
        starters=listing.starters,
        widgets=tuple(WidgetOut(name=widget.name, title=widget.title) for widget in listing.widgets),
        is_default=listing.is_default,
        is_ready=listing.is_ready,
        error=(listing.error or None) if sees_error else None,
        problems=listing.problems if sees_error else (),
    )
