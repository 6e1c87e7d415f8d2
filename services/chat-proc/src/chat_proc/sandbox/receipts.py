"""Signed receipts of runs: what ran, where, with which protections and with which files; and how they are verified.

A receipt is `{"payload", "key_id", "signature"}`. The signature is Ed25519 over the payload as JSON in the one form of
RFC 8785: names sorted, no blanks, UTF-8. A payload has no number with a fraction, so every language writes it alike.
"""

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Final, cast

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from chat_proc.sandbox.port import ConnectionRecord, FileHash, ProgramExit, RunRecord, RunRequest, RunResult
from everturn.core.clock import Clock, iso
from everturn.core.errors import Invalid
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId
from everturn.core.logging import Redactor
from everturn.execution.messages import Posture, RunLimits

RECEIPT_TYPE: Final = "everturn.execution-receipt/1"
RECEIPT_KEY: Final = "RECEIPT_KEY"
MAX_KEYS: Final = 100
"""Public keys that one verification can use."""
_KEY_ID_CHARS: Final = 32
_PUBLIC: Final = re.compile(r"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", re.DOTALL)
_FIELDS: Final = frozenset({"payload", "key_id", "signature"})


class BadReceiptKey(Invalid):
    """A key for receipts can't be used."""


class BadReceipt(Invalid):
    """The file is not a receipt of a run."""


class UnknownKey(Invalid):
    """The receipt was signed with a key that was not given."""


class ForgedReceipt(Invalid):
    """The signature does not match the receipt: it was changed, or this key never signed it."""


PublicKeys = Mapping[str, Ed25519PublicKey]
"""By key id: the first 32 hexadecimal digits of the SHA-256 of the key in DER."""


def read_signing_key(pem: str) -> Ed25519PrivateKey:
    """The private key of the setting RECEIPT_KEY. Raises BadReceiptKey."""
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadReceiptKey(
            f"{RECEIPT_KEY} is no private key in PEM without a password. Make one: openssl genpkey -algorithm ed25519."
        ) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BadReceiptKey(f"{RECEIPT_KEY} must be an Ed25519 key. Make one: openssl genpkey -algorithm ed25519.")
    return key


def read_public_keys(pems: Iterable[tuple[str, str]]) -> PublicKeys:
    """The keys in some texts, each with its name for errors; a text can have several. Raises BadReceiptKey."""
    keys: dict[str, Ed25519PublicKey] = {}
    for name, text in pems:
        if "PRIVATE KEY" in text:
            raise BadReceiptKey(f"{name} has a private key. Give its public key: openssl pkey -in FILE -pubout.")
        found = _PUBLIC.findall(text)
        if not found:
            raise BadReceiptKey(f"{name} has no public key in PEM.")
        for pem in found:
            try:
                key = load_pem_public_key(pem.encode())
            except (ValueError, UnsupportedAlgorithm) as error:
                raise BadReceiptKey(f"{name} has a public key that can't be read.") from error
            if not isinstance(key, Ed25519PublicKey):
                raise BadReceiptKey(f"{name} has a public key that is not an Ed25519 key.")
            keys[find_key_id(key)] = key
    if len(keys) > MAX_KEYS:
        raise BadReceiptKey(f"There are {len(keys)} public keys; at most {MAX_KEYS} can be used at once.")
    return keys


def find_key_id(key: Ed25519PublicKey) -> str:
    """The id of a key, which is the same wherever it is computed."""
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()[:_KEY_ID_CHARS]


def render_canonical(payload: object) -> bytes:
    """The bytes that are signed. Raises ValueError for a value that has no single form."""
    _check_plain(payload)
    return json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _check_plain(value: object) -> None:
    match value:
        case None | bool() | int() | str():
            return
        case dict():
            for name, item in cast("dict[object, object]", value).items():
                if not isinstance(name, str):
                    raise ValueError("a name is not a text")
                _check_plain(item)
        case list():
            for item in cast("list[object]", value):
                _check_plain(item)
        case _:
            raise ValueError(f"a value is neither text, whole number, list nor object: {type(value).__name__}")


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Whose run it is."""

    principal: Principal
    conversation_id: ConversationId
    call_id: CallId


class ReceiptSigner:
    """Signs what a run was. `redactor` removes secrets before the signature, since nothing may change after it."""

    def __init__(self, key: Ed25519PrivateKey, clock: Clock, redactor: Redactor) -> None:
        """Raises BadReceiptKey if a secret occurs in what all receipts have in common."""
        if any(redactor.redact(text) != text for text in list_common_texts()):
            raise BadReceiptKey(
                "A secret in the settings occurs in the type or in the name of a field of every receipt, so none could "
                "be verified. Choose another secret, which is no common word."
            )
        self._key = key
        self._clock = clock
        self._redactor = redactor
        self.key_id = find_key_id(key.public_key())

    def now(self) -> datetime:
        """When a run begins or ends, in UTC."""
        return self._clock.now()

    def sign(self, request: RunRequest, result: RunResult, place: RunPlace, began_at: datetime) -> dict[str, Any]:
        """The receipt of a run that has just ended. Takes about a millisecond for 40 files, and several for 200."""
        payload = self._redactor.redact_value(build_payload(request, result, place, began_at, self.now()))
        signature = self._key.sign(render_canonical(payload))
        return {"payload": payload, "key_id": self.key_id, "signature": base64.b64encode(signature).decode()}


def is_unknown(result: RunResult) -> bool:
    """Whether the sandbox was lost after its start: nobody knows what the program did, so nothing is signed."""
    return result.exit.by == "sandbox" and result.record.posture is None


def build_payload(
    request: RunRequest, result: RunResult, place: RunPlace, began_at: datetime, ended_at: datetime
) -> dict[str, Any]:
    """What a receipt says. Hashes are SHA-256 in hexadecimal, sizes are in bytes. `calls` are those that the gateway
    let through, by tool; `refusals` those that it did not, by code."""
    record = result.record
    return {
        "type": RECEIPT_TYPE,
        "run_id": request.execution_id,
        "tenant": place.principal.tenant,
        "project": place.principal.project,
        "conversation_id": place.conversation_id,
        "turn_id": request.turn_id,
        "call_id": place.call_id,
        "profile": request.profile,
        "backend": record.posture.launcher if record.posture else None,
        "executor_image": record.image or None,
        "supervisor_image": record.supervisor_image or None,
        "environment": record.environment or None,
        "program_sha256": record.program_sha256,
        "inputs": [asdict(file) for file in record.inputs],
        "outputs": [asdict(file) for file in record.outputs],
        "began_at": iso(began_at),
        "ended_at": iso(ended_at),
        "duration_ms": result.duration_ms,
        "timeout_ms": round(record.timeout_s * 1000),
        "outcome": result.error.code if result.error else "ok",
        "exit": asdict(result.exit),
        "limits": asdict(record.limits),
        "limits_hit": list(result.limits_hit),
        "calls": dict(Counter(call.tool_id for call in record.calls)),
        "calls_failed": dict(Counter(call.tool_id for call in record.calls if not call.ok)),
        "refusals": dict(record.refusals),
        "connections": [asdict(connection) for connection in record.connections],
        "posture": asdict(record.posture) if record.posture else None,
    }


def list_common_texts() -> frozenset[str]:
    """The type and the names of fields, which no redaction may change."""
    record = RunRecord("", 0, RunLimits(), posture=None)
    result = RunResult(False, (), None, ProgramExit("not_run"), "", "", "", (), 0, record)
    place = RunPlace(Principal("", "", ""), ConversationId(""), CallId(""))
    payload = build_payload(RunRequest("", "", "", ()), result, place, datetime.now(UTC), datetime.now(UTC))
    parts = (
        field.name for kind in (ConnectionRecord, FileHash, ProgramExit, RunLimits, Posture) for field in fields(kind)
    )
    return frozenset({RECEIPT_TYPE, *_FIELDS, *payload, *parts})


def verify_receipt(data: bytes, keys: PublicKeys) -> dict[str, Any]:
    """The payload of a receipt, or of a step of the API that has one, if one of these keys signed it.

    Raises BadReceipt, UnknownKey, ForgedReceipt.
    """
    receipt = _parse(data)
    key_id = receipt["key_id"]
    try:
        signature = base64.b64decode(receipt["signature"], validate=True)
        signed = render_canonical(receipt["payload"])
    except ValueError as error:
        raise BadReceipt(f"{error}.".capitalize()) from error
    key = keys.get(key_id)
    if key is None:
        raise UnknownKey(f"It names the key {key_id[:100]!a}; the given keys are {', '.join(sorted(keys))}.")
    try:
        key.verify(signature, signed)
    except InvalidSignature as error:
        raise ForgedReceipt from error
    if receipt["payload"].get("type") != RECEIPT_TYPE:
        raise BadReceipt(f"Its type is {receipt['payload'].get('type')!a:.100}; this version knows {RECEIPT_TYPE}.")
    return receipt["payload"]


def _parse(data: bytes) -> dict[str, Any]:
    """The three fields of a receipt with the right types. Raises BadReceipt."""
    try:
        found: object = json.loads(data, object_pairs_hook=_build_object)
    except (ValueError, RecursionError) as error:
        raise BadReceipt(f"It is not JSON that can be read: {error}.") from error
    step = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    receipt: object = step if step.keys() >= _FIELDS else step.get("receipt")
    match receipt:
        case {"payload": dict(), "key_id": str(), "signature": str()}:
            return cast("dict[str, Any]", receipt)
        case _:
            raise BadReceipt(
                "It needs the fields payload, key_id and signature, or must be a step with a field receipt that has "
                "them."
            )


def _build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Readers disagree about which of two equal names counts, so there must be none."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found
