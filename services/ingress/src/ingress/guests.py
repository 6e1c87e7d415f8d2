"""Guest tokens, for people without an account."""

from datetime import UTC, datetime
from typing import Annotated, cast

from fastapi import APIRouter, Path, Request, Response

from everturn.core.api_model import ApiModel
from everturn.core.clock import iso
from ingress.admission.connections import load_address
from ingress.admission.route import StrictRoute
from ingress.auth.gate import AuthGate
from ingress.openapi.responses import problems

router = APIRouter(prefix="/guests/{tenant}/{project}", route_class=StrictRoute, tags=["guests"])


class GuestOut(ApiModel):
    """`token` is the guest's bearer token; anyone who has it can act as this guest. `expires_at` is UTC, RFC 3339."""

    token: str
    """The bearer token."""
    user_id: str
    """The user's id."""
    expires_at: str


@router.get("", status_code=204, responses=problems())
async def check_guests(
    request: Request,
    tenant: Annotated[str, Path(description="The tenant.", examples=["default"])],
    project: Annotated[str, Path(description="The project.", examples=["default"])],
) -> None:
    """Check whether guests are accepted here: 204 if so, otherwise 403 or 404."""
    cast(AuthGate, request.app.state.auth).check_guests(request.headers, tenant=tenant, project=project)


@router.post("", status_code=201, responses=problems(429))
async def create_guest(
    request: Request,
    response: Response,
    tenant: Annotated[str, Path(description="The tenant.", examples=["default"])],
    project: Annotated[str, Path(description="The project.", examples=["default"])],
) -> GuestOut:
    """Create a guest: a new user without an account. 403 if guests are not accepted."""
    gate = cast(AuthGate, request.app.state.auth)
    made = gate.admit_guest(request.headers, tenant=tenant, project=project, address=load_address(request))
    response.headers["Cache-Control"] = "no-store"
    expires_at = iso(datetime.fromtimestamp(made.expires_at, UTC))
    return GuestOut(token=made.token, user_id=made.user_id, expires_at=expires_at)
