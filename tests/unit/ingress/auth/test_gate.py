"""The gate authenticates requests: one policy for every kind of credential."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.datastructures import Headers

from everturn.accounts.credentials import ApiKey
from everturn.core.identity import Principal, Role
from everturn.core.ids import ConversationId
from ingress.auth.api_keys import build_key_text
from ingress.auth.callers import Caller
from ingress.auth.gate import AuthGate
from ingress.auth.revocation import MAX_AGE_S
from ingress.errors import ProblemError

LOCAL = ("host", "localhost:8080")
MINE = ConversationId("conv_1")
MakeHeaders = Callable[..., Headers]
MakeDoor = Callable[..., Any]


def build_headers(*pairs: tuple[str, str]) -> Headers:
    return Headers(raw=[(name.encode(), value.encode()) for name, value in pairs])


async def enter(gate: AuthGate, *pairs: tuple[str, str], tenant: str = "t", project: str = "p") -> Caller:
    return await gate.authenticate(build_headers(*pairs), tenant=tenant, project=project)


async def refusal(gate: AuthGate, *pairs: tuple[str, str], tenant: str = "t", project: str = "p") -> ProblemError:
    with pytest.raises(ProblemError) as refused:
        await enter(gate, *pairs, tenant=tenant, project=project)
    return refused.value


async def make_key(door: Any, **owner: Any) -> tuple[str, tuple[str, str]]:
    text, made = build_key_text()
    who = Principal(**{"tenant": "t", "project": "p", "user_id": "ann"} | owner)
    await door.credentials.save_key(ApiKey(made.key_id, made.secret_hash, who, "", door.clock.now()))
    return made.key_id, ("authorization", f"Bearer {text}")


async def open_stream(
    gate: AuthGate, ticket: str, *pairs: tuple[str, str], conversation: str = MINE, tenant: str = "t"
) -> Caller:
    return await gate.authenticate_ticket(
        ticket, build_headers(*pairs), tenant=tenant, project="p", conversation_id=conversation
    )


async def test_in_development_a_local_request_is_dev_or_who_it_names(make_door: MakeDoor) -> None:
    gate = make_door(development=True, verifier=None).gate

    plain = await enter(gate, LOCAL)
    named = await enter(gate, LOCAL, ("x-dev-user", "ann"))

    assert (plain.principal.tenant, plain.principal.project, plain.principal.user_id) == ("t", "p", "dev")
    assert named.principal.user_id == "ann"
    assert plain.expires_at is None


async def test_a_credential_is_required_outside_development(make_door: MakeDoor) -> None:
    refused = await refusal(make_door().gate, LOCAL, ("x-dev-user", "ann"))

    assert refused.status_code == 401
    assert refused.headers and refused.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("development", [True, False])
@pytest.mark.parametrize(
    "credential",
    ["Bearer x", "Bearer", "Basic YTpi", "x", "Bearer evk_x", "Bearer evg_x.y", "Bearer evt_x.y", "Bearer evk_", "",
     "Bearer evk_0123456789abcdef_" + "a" * 43],
)  # fmt: skip
async def test_a_bad_credential_is_401_and_never_dev_or_a_guest(
    make_door: MakeDoor, development: bool, credential: str
) -> None:
    gate = make_door(development=development).gate

    assert (await refusal(gate, LOCAL, ("authorization", credential))).status_code == 401


async def test_two_credentials_are_401(make_door: MakeDoor) -> None:
    door = make_door()

    assert (await refusal(door.gate, door.bearer(), door.bearer())).status_code == 401


async def test_a_token_speaks_for_its_subject_and_not_for_the_header(make_door: MakeDoor) -> None:
    door = make_door(development=True)

    caller = await enter(door.gate, LOCAL, door.bearer(), ("x-dev-user", "bob"))

    assert caller.principal.user_id == "ann"
    assert caller.expires_at is not None


async def test_another_tenant_or_project_than_the_credentials_is_absent(make_door: MakeDoor) -> None:
    door = make_door()
    _, key = await make_key(door)
    guest = ("authorization", f"Bearer {door.guests.admit('t', 'p').token}")

    for credential in (door.bearer(tenant="t", project="p"), key, guest):
        assert (await enter(door.gate, credential)).principal.tenant == "t"
        assert (await refusal(door.gate, credential, tenant="other")).status_code == 404
        assert (await refusal(door.gate, credential, project="other")).status_code == 404
    assert (await refusal(door.gate, door.bearer(tenant="t", project=["x"]))).status_code == 404


@pytest.mark.parametrize("name", ["a:b", "{a}", "a b", "..", "*", "x" * 65, "a\x00"])
async def test_a_name_that_is_none_is_absent(make_door: MakeDoor, name: str) -> None:
    door = make_door(development=True)

    for credential in ([], [door.bearer()]):
        assert (await refusal(door.gate, LOCAL, *credential, tenant=name)).status_code == 404
        assert (await refusal(door.gate, LOCAL, *credential, project=name)).status_code == 404


async def test_no_token_of_the_issuer_can_be_a_guest(make_door: MakeDoor) -> None:
    door = make_door()
    guest = door.guests.admit("t", "p")

    assert (await refusal(door.gate, door.bearer(sub=guest.user_id))).status_code == 401


async def test_a_guest_has_only_the_role_of_guests(make_door: MakeDoor) -> None:
    door = make_door()
    guest = door.guests.admit("t", "p")

    caller = await enter(door.gate, ("authorization", f"Bearer {guest.token}"))

    assert caller.principal.user_id == guest.user_id
    assert caller.principal.roles == {Role.ANONYMOUS}


async def test_a_key_works_in_development_until_it_is_revoked(make_door: MakeDoor) -> None:
    door = make_door(development=True, verifier=None)
    key_id, credential = await make_key(door)
    caller = await enter(door.gate, LOCAL, credential)
    await door.gate.recheck(caller)

    await door.credentials.revoke_key(key_id)
    door.clock.advance(MAX_AGE_S)

    assert (await refusal(door.gate, LOCAL, credential)).status_code == 401
    with pytest.raises(ProblemError) as refused:
        await door.gate.recheck(caller)
    assert refused.value.status_code == 401


async def test_tokens_from_before_a_cutoff_are_refused(make_door: MakeDoor) -> None:
    door = make_door()
    now = int(time.time())
    await door.credentials.save_cutoff("ann")

    assert (await refusal(door.gate, door.bearer(iat=now - 5))).status_code == 401
    assert (await refusal(door.gate, door.bearer(iat=None))).status_code == 401
    assert await enter(door.gate, door.bearer(iat=now + 30))


async def test_a_caller_whose_credential_expired_meanwhile_is_refused(make_door: MakeDoor) -> None:
    door = make_door()
    caller = await enter(door.gate, door.bearer())
    await door.gate.recheck(caller)

    door.clock.advance(700)

    with pytest.raises(ProblemError) as refused:
        await door.gate.recheck(caller)
    assert refused.value.status_code == 401


async def test_a_ticket_is_valid_until_its_caller_loses_access(make_door: MakeDoor) -> None:
    door = make_door()
    key_id, key = await make_key(door)
    callers = [await enter(door.gate, credential) for credential in (door.bearer(), key)]
    tickets = [door.gate.build_ticket(caller, MINE).text for caller in callers]

    assert [await open_stream(door.gate, ticket) for ticket in tickets] == callers
    await door.credentials.revoke_key(key_id)
    door.clock.advance(MAX_AGE_S)

    assert await open_stream(door.gate, tickets[0]) == callers[0]
    with pytest.raises(ProblemError) as refused:
        await open_stream(door.gate, tickets[1])
    assert refused.value.status_code == 401


@pytest.mark.parametrize("place", [{"conversation": "conv_2"}, {"tenant": "other"}])
async def test_a_ticket_for_another_place_is_401(make_door: MakeDoor, place: dict[str, str]) -> None:
    door = make_door()
    ticket = door.gate.build_ticket(await enter(door.gate, door.bearer()), MINE).text

    with pytest.raises(ProblemError) as refused:
        await open_stream(door.gate, ticket, **place)

    assert refused.value.status_code == 401


async def test_a_ticket_beside_a_header_is_401_and_a_ticket_is_no_bearer_token(make_door: MakeDoor) -> None:
    door = make_door()
    ticket = door.gate.build_ticket(await enter(door.gate, door.bearer()), MINE).text

    with pytest.raises(ProblemError) as refused:
        await open_stream(door.gate, ticket, door.bearer())

    assert refused.value.status_code == 401
    assert (await refusal(door.gate, ("authorization", f"Bearer {ticket}"))).status_code == 401


async def test_a_ticket_of_development_mode_passes_the_same_checks_as_its_caller(make_door: MakeDoor) -> None:
    development, production = make_door(development=True), make_door()
    ticket = development.gate.build_ticket(await enter(development.gate, LOCAL), MINE).text

    assert (await open_stream(development.gate, ticket, LOCAL)).principal.user_id == "dev"
    for gate, pairs, status in (
        (production.gate, [LOCAL], 401),
        (development.gate, [("host", "evil.example")], 403),
        (development.gate, [LOCAL, ("sec-fetch-site", "cross-site")], 403),
    ):
        with pytest.raises(ProblemError) as refused:
            await open_stream(gate, ticket, *pairs)
        assert refused.value.status_code == status


async def test_guests_that_are_no_longer_accepted_lose_their_tickets(make_door: MakeDoor) -> None:
    door = make_door()
    caller = await enter(door.gate, ("authorization", f"Bearer {door.guests.admit('t', 'p').token}"))
    ticket = door.gate.build_ticket(caller, MINE).text

    with pytest.raises(ProblemError) as refused:
        await open_stream(make_door(scopes=frozenset()).gate, ticket)

    assert refused.value.status_code == 401


@pytest.mark.parametrize("token", [None, "x", "evk_x", "good"])
async def test_a_socket_from_a_strangers_page_is_403_whatever_its_token(make_door: MakeDoor, token: str) -> None:
    door = make_door(development=True, origins=frozenset({"https://chat.example"}))
    good = door.bearer()[1].removeprefix("Bearer ")
    shown = good if token == "good" else token

    with pytest.raises(ProblemError) as refused:
        await door.gate.authenticate_socket(
            shown, build_headers(LOCAL, ("origin", "https://evil.example")), tenant="t", project="p"
        )

    assert refused.value.status_code == 403


async def test_a_socket_from_a_listed_page_needs_a_good_token(make_door: MakeDoor) -> None:
    door = make_door(origins=frozenset({"https://chat.example"}))
    page = build_headers(("host", "api.example"), ("origin", "https://chat.example"))
    good = door.bearer()[1].removeprefix("Bearer ")

    assert (await door.gate.authenticate_socket(good, page, tenant="t", project="p")).principal.user_id == "ann"
    for bad in (None, "x"):
        with pytest.raises(ProblemError) as refused:
            await door.gate.authenticate_socket(bad, page, tenant="t", project="p")
        assert refused.value.status_code == 401


async def test_development_lets_guests_in_only_from_this_machine(make_door: MakeDoor) -> None:
    door = make_door(development=True)

    assert door.gate.admit_guest(build_headers(LOCAL), tenant="t", project="p").user_id
    with pytest.raises(ProblemError) as refused:
        door.gate.admit_guest(build_headers(("host", "evil.example")), tenant="t", project="p")
    assert refused.value.status_code == 403


async def test_the_owner_of_a_credential_is_known_before_its_scope(make_door: MakeDoor) -> None:
    door = make_door(scopes=frozenset({("t", "p")}))
    _, key = await make_key(door)
    guest = door.gate.admit_guest(build_headers(), tenant="t", project="p")

    owners = [
        await door.gate.load_owner(build_headers(pair))
        for pair in (door.bearer(sub="ann", tenants=["t"]), key, ("authorization", f"Bearer {guest.token}"))
    ]

    assert (owners[0].tenant, owners[0].user_id) == ("", "ann")
    assert (owners[1].tenant, owners[2].user_id) == ("t", guest.user_id)
    for bad in ([], [("authorization", "Bearer x")], [("authorization", "Basic x")], [door.bearer(sub="guest~1")]):
        with pytest.raises(ProblemError) as refused:
            await door.gate.load_owner(build_headers(*bad))
        assert refused.value.status_code == 401


async def test_a_person_is_limited_as_one_whatever_the_address_names(make_door: MakeDoor) -> None:
    door = make_door()
    here = await enter(door.gate, door.bearer())
    there = await enter(door.gate, door.bearer(), tenant="t2", project="p2")
    unknown_yet = await door.gate.load_owner(build_headers(door.bearer()))
    _, key = await make_key(door)
    program = await enter(door.gate, key)
    by_ticket = await open_stream(door.gate, door.gate.build_ticket(here, MINE).text)

    assert here.principal != there.principal
    people = {who.limited_as for who in (here.principal, there.principal, unknown_yet, by_ticket.principal)}
    assert people == {here.principal.limited_as}
    assert program.principal.limited_as not in people
    assert here.principal == program.principal
