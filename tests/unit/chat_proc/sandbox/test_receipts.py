"""Receipts: what is signed can be verified by anybody with the public key, and nothing else can."""

import base64
import errno
import json
import os
import shutil
import subprocess
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_proc.__main__ import main
from chat_proc.sandbox.port import ConnectionRecord, FileHash, ProgramExit, RunError, RunRecord, RunRequest, RunResult
from chat_proc.sandbox.receipts import (
    BadReceipt,
    BadReceiptKey,
    ForgedReceipt,
    ReceiptSigner,
    RunPlace,
    UnknownKey,
    list_common_texts,
    read_public_keys,
    read_signing_key,
    render_canonical,
    verify_receipt,
)
from chat_proc.sandbox.results import hash_bytes
from everturn.core.clock import SystemClock
from everturn.core.identity import Principal
from everturn.core.ids import CallId, ConversationId
from everturn.core.logging import Redactor
from everturn.execution.messages import CallRecord, Posture, RunLimits

KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
CSV = b"month,amount\n"
CODE = b"print(1)"
POSTURE = Posture("bubblewrap", "bwrap 0.8", 1001, "uid 1001", "none", "1 GiB", "64", "tmpfs", "on")
PLACE = RunPlace(Principal("acme", "main", "ann"), ConversationId("conv_1"), CallId("call_1"))
REQUEST = RunRequest("exec_1", "turn_1", CODE.decode(), (), timeout_s=2.5)
RESULT = RunResult(
    ok=False,
    artifacts=(),
    error=RunError("timeout", "too slow", "program.py"),
    exit=ProgramExit("limit"),
    report_text="",
    user_out_tail="",
    runtime_err_tail="",
    limits_hit=("time",),
    duration_ms=7,
    record=RunRecord(
        hash_bytes(CODE),
        2.5,
        RunLimits(),
        POSTURE,
        environment="sha256:e",
        inputs=(FileHash("turn_1/attachments/sales-hunter2hunter2.csv", len(CSV), hash_bytes(CSV)),),
        outputs=(FileHash("outputs/größe.csv", 1, hash_bytes(b"x")),),
        calls=tuple(CallRecord(n, "mail.send", "", n > 1, "", 1, 1) for n in (1, 2)),
        refusals={"quota_calls": 3},
        connections=(ConnectionRecord("api.example.com", 443, 1, {"over_limit": 1}, 10, 20),),
    ),
)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def sign(key: Ed25519PrivateKey = KEY, result: RunResult = RESULT) -> dict:
    signer = ReceiptSigner(key, SystemClock(), Redactor(["hunter2hunter2"]))
    return signer.sign(REQUEST, result, PLACE, BEGAN)


def public_pem(key: Ed25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def private_pem(key) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


KEYS = read_public_keys([("two.pem", public_pem(OTHER) + public_pem(KEY))])


def test_a_receipt_says_what_ran_and_hides_secrets_before_it_is_signed() -> None:
    payload = verify_receipt(json.dumps({"step": "s", "receipt": sign()}).encode(), KEYS)

    assert payload["calls"] == {"mail.send": 2}
    assert payload["connections"][0] == asdict(RESULT.record.connections[0])
    assert payload["calls_failed"] == {"mail.send": 1}
    assert (payload["outcome"], payload["exit"]["by"], payload["limits_hit"]) == ("timeout", "limit", ["time"])
    assert (payload["tenant"], payload["conversation_id"], payload["timeout_ms"]) == ("acme", "conv_1", 2500)
    assert (payload["backend"], payload["executor_image"], payload["environment"]) == ("bubblewrap", None, "sha256:e")
    assert payload["inputs"][0]["path"] == "turn_1/attachments/sales-[redacted].csv"
    assert (payload["began_at"], payload["posture"]["seccomp"]) == ("2026-03-01T12:00:00.000Z", "on")
    images = replace(RESULT.record, image="sha256:i", supervisor_image="sha256:s", posture=None, environment="")
    other = sign(result=replace(RESULT, record=images))["payload"]
    assert (other["backend"], other["executor_image"], other["environment"]) == (None, "sha256:i", None)


@pytest.mark.parametrize("secret", ["everturn", "conversation", "duration_ms", "signature", "memory_bytes"])
def test_a_secret_that_every_receipt_contains_is_refused_at_once(secret: str) -> None:
    with pytest.raises(BadReceiptKey, match="Choose another secret"):
        ReceiptSigner(KEY, SystemClock(), Redactor([secret]))


def test_the_names_that_no_redaction_may_change_are_those_of_receipts() -> None:
    payload = sign()["payload"]
    found = {name for part in ("exit", "limits", "posture") for name in payload[part]}

    found |= {*payload, *payload["inputs"][0], *payload["connections"][0], *sign()}
    assert list_common_texts() == found | {payload["type"]}


@given(PLAIN)
@settings(max_examples=100, deadline=None)
def test_equal_payloads_have_one_form_which_json_reads_back(payload: object) -> None:
    text = render_canonical(payload)

    assert json.loads(text) == payload
    assert render_canonical(json.loads(json.dumps(payload))) == text


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_no_byte_of_a_receipt_can_change(data: st.DataObject) -> None:
    text = bytearray(json.dumps(receipt := sign()).encode())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= data.draw(st.integers(1, 255))

    try:
        verified = verify_receipt(bytes(text), KEYS)
    except (BadReceipt, ForgedReceipt, UnknownKey):
        return
    assert verified == receipt["payload"]  # another spelling of the same: \u00F6 for \u00f6, or a blank


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda r: r | {"payload": r["payload"] | {"outcome": "ok"}}, ForgedReceipt, "was changed"),
        (lambda r: r | {"signature": base64.b64encode(bytes(64)).decode()}, ForgedReceipt, "was changed"),
        (lambda r: r | {"key_id": sign(OTHER)["key_id"]}, ForgedReceipt, "was changed"),
        (lambda r: r | {"key_id": "\x1b[2J"}, UnknownKey, r"It names the key '\x1b[2J'; the given keys are"),
        (lambda r: r | {"signature": "%"}, BadReceipt, "base64"),
        (lambda r: r | {"payload": {"a": 0.5}}, BadReceipt, "whole number"),
        (lambda r: r["payload"], BadReceipt, "needs the fields payload, key_id and signature"),
        (lambda r: [r], BadReceipt, "needs the fields"),
        (lambda r: {"step": "call_1", "receipt": None}, BadReceipt, "needs the fields"),
    ],
)
def test_what_is_wrong_is_named(change, error, said: str) -> None:
    with pytest.raises(error) as refused:
        verify_receipt(json.dumps(change(sign())).encode(), KEYS)

    assert said in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"\xff", b"[" * 100_000, b'{"a":1,"a":2}', b"NaN"])
def test_other_files_are_no_receipts(text: bytes) -> None:
    with pytest.raises(BadReceipt):
        verify_receipt(text, KEYS)


def test_a_signed_document_of_another_type_is_no_receipt() -> None:
    payload = {"type": "everturn.other/1"}
    signature = base64.b64encode(KEY.sign(render_canonical(payload))).decode()

    with pytest.raises(BadReceipt, match="this version knows"):
        verify_receipt(json.dumps({**sign(), "payload": payload, "signature": signature}).encode(), KEYS)


def test_keys_that_can_not_be_used_say_why() -> None:
    assert read_signing_key(private_pem(KEY).strip()).public_key() == KEY.public_key()
    curve = generate_private_key(SECP256R1())
    for pem, said in [
        ("", "is no private key"),
        (public_pem(KEY), "is no private key"),
        (private_pem(curve), "Ed25519"),
    ]:
        with pytest.raises(BadReceiptKey, match=said):
            read_signing_key(pem)
    for pem, said in [
        (private_pem(KEY), "Give its public key"),
        ("x", "no public key"),
        (public_pem(KEY).replace("M", "%"), "can't be read"),
        (public_pem(curve), "not an Ed25519 key"),
    ]:
        with pytest.raises(BadReceiptKey, match=said):
            read_public_keys([("a.pem", pem)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "receipt.json").write_text(json.dumps(sign()))
    (tmp_path / "public.pem").write_text(public_pem(KEY))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "renamed.csv").write_bytes(CSV)
    return tmp_path


def verify(folder: Path, *more: str, receipt: str = "receipt.json") -> int:
    return main(["verify-receipt", f"{folder}/{receipt}", "--key", f"{folder}/public.pem", *more])


def test_the_command_compares_files_by_content(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "files" / "program.py").write_bytes(CODE)

    assert verify(folder, "--files", f"{folder}/files") == 0

    out = capsys.readouterr().out
    assert "The receipt is genuine: run exec_1 of turn turn_1 in conv_1" in out
    assert "connections         api.example.com:443 1 opened, 10 bytes sent" in out
    assert "renamed.csv: input turn_1/attachments/sales-[redacted].csv" in out
    assert "program.py: the program" in out
    assert f"not in {folder}/files: output outputs/größe.csv" in out
    (folder / "files" / "renamed.csv").write_bytes(CSV + b"x")
    assert verify(folder, "--files", f"{folder}/files") == 3
    assert "renamed.csv: NOT A FILE OF THIS RUN" in capsys.readouterr().out


def test_nothing_under_the_folder_is_passed_over(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "files" / "linked").symlink_to(folder / "elsewhere")
    (folder / "files" / "dangling").symlink_to(folder / "absent")
    os.mkfifo(folder / "files" / "pipe")

    assert verify(folder, "--files", f"{folder}/files") == 3

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if "NOT A FILE" in line] == ["dangling", "linked", "pipe"]
    (folder / "files" / "closed").mkdir()
    scan = os.scandir

    def refuse(path: str):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)  # permissions don't stop root
    assert verify(folder, "--files", f"{folder}/files") == 2
    assert "closed: Permission denied" in capsys.readouterr().err


def test_the_command_explains_what_it_can_not_verify(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.json").write_text(json.dumps(sign(OTHER)))
    signature = base64.b64encode(KEY.sign(render_canonical({"type": "everturn.execution-receipt/1"}))).decode()
    (folder / "short.json").write_text(
        json.dumps({**sign(), "payload": {"type": "everturn.execution-receipt/1"}, "signature": signature})
    )

    assert [verify(folder, receipt=name) for name in ("other.json", "absent.json", "short.json")] == [2, 2, 2]
    assert verify(folder, "--files", f"{folder}/nowhere") == 2

    errors = capsys.readouterr().err.splitlines()
    assert errors[0].startswith("verify-receipt: The receipt was signed with a key that was not given.")
    assert "absent.json: No such file" in errors[1]
    assert "a field is missing or wrong: 'calls'" in errors[2]
    assert "nowhere: No such file" in errors[3]
    (folder / "empty").mkdir()
    assert verify(folder, "--files", f"{folder}/empty") == 2
    assert "must have 1 to 10000 files; it has none" in capsys.readouterr().err


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl")
def test_openssl_verifies_a_receipt_without_our_code(folder: Path) -> None:
    receipt = sign()
    (folder / "signed").write_bytes(render_canonical(receipt["payload"]))
    (folder / "signature").write_bytes(base64.b64decode(receipt["signature"]))
    command = "openssl pkeyutl -verify -rawin -pubin -inkey public.pem -in signed -sigfile signature"

    done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, timeout=30, check=False)

    assert "Verified Successfully" in done.stdout, done.stderr
