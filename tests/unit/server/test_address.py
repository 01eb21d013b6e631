"""Addresses and headers are read as agents mean them, or refused with words that say what to change."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.core.model import ReplayMode
from agentstate.engine.presence import Connection
from agentstate.engine.request import Request
from agentstate.errors import BadRequest
from agentstate.server.address import Address, read_path, read_request

SOCKET = Connection(None, None)
CHAT = "/v1/chat/completions"
# Everything that an id may be made of: no control characters, no halves of surrogate pairs.
IDS = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=256)


def read(*headers: tuple[bytes, bytes], address: Address | None = None, body: bytes = b"{}") -> Request:
    """A chat request with these headers."""
    return read_request("POST", address or Address(CHAT), "", list(headers), body, SOCKET)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (CHAT, Address(CHAT)),
        ("/", Address("/")),
        ("/s/a", Address("/", "a")),
        ("/s/a/", Address("/", "a")),
        ("/s/a/v1/models", Address("/v1/models", "a")),
        ("/s/a/r/b", Address("/", "a", "b")),
        ("/s/a/r/b" + CHAT, Address(CHAT, "a", "b")),
        ("/k/key/s/a/r/b" + CHAT, Address(CHAT, "a", "b", "key")),
        ("/k/key" + CHAT, Address(CHAT, key="key")),
        ("/s/a%2Fb%20c" + CHAT, Address(CHAT, "a/b c")),
        ("/s/%D0%BF/r/%C3%A9" + CHAT, Address(CHAT, "п", "é")),
        ("/sessions/a" + CHAT, Address("/sessions/a" + CHAT)),
        ("/r/b" + CHAT, Address("/r/b" + CHAT)),
        ("/s/a/rx" + CHAT, Address("/rx" + CHAT, "a")),
        ("/k/a%2Fb" + CHAT, Address(CHAT, key="a/b")),
    ],
)
def test_a_path_is_taken_apart(raw: str, wanted: Address) -> None:
    assert read_path(raw) == wanted


@given(IDS, IDS)
def test_any_id_survives_the_address(session: str, run: str) -> None:
    raw = f"/s/{quote(session, safe='')}/r/{quote(run, safe='')}{CHAT}"
    assert read_path(raw) == Address(CHAT, session, run)


@given(st.text(st.sampled_from("abc/%2F.-_~ ?"), max_size=40).map(lambda text: "/v1/" + text))
def test_the_rest_of_a_path_is_not_decoded(rest: str) -> None:
    assert read_path("/s/a" + rest).path == rest


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ("/s//v1", "session id is empty"),
        ("/s", "session id is empty"),
        ("/s/a/r//v1", "run id is empty"),
        ("/s/a/r", "run id is empty"),
        ("/s/%FF/v1", "not UTF-8"),
        ("/s/a%00b/v1", "control characters"),
        ("/s/a/r/b%1F/v1", "control characters"),
        ("/s/" + "a" * 257, "257 characters"),
    ],
)
def test_an_id_that_cannot_be_one_is_refused_with_the_reason(raw: str, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        read_path(raw)


def test_the_longest_id_is_taken() -> None:
    assert read_path("/s/" + "a" * 256).session == "a" * 256


def test_ids_of_the_address_win_over_those_of_the_headers() -> None:
    headers = ((b"x-agent-session-id", b"other"), (b"x-agent-run-id", b"another"))
    found = read(*headers, address=Address(CHAT, "a", "b"))
    assert (found.session, found.run) == ("a", "b")
    found = read(*headers, address=Address(CHAT, "a"))
    assert (found.session, found.run) == ("a", "another")
    assert (read(*headers).session, read(*headers).run) == ("other", "another")


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(b" padded ", "padded"), ("проект".encode(), "проект"), ("café".encode("latin-1"), "café"), (b"a b", "a b")],
)
def test_an_id_in_a_header_is_utf8_else_latin1_without_outer_blanks(value: bytes, wanted: str) -> None:
    assert read((b"x-agent-session-id", value)).session == wanted


def test_an_empty_session_header_is_a_mistake_but_an_empty_run_header_is_none() -> None:
    with pytest.raises(BadRequest, match="session id is empty"):
        read((b"x-agent-session-id", b""))
    assert read((b"x-agent-run-id", b"")).run == ""


def test_no_headers_mean_the_defaults() -> None:
    found = read()
    assert (found.session, found.run, found.hint, found.mode) == ("", "", None, ReplayMode.AUTO)
    assert (found.unique_first, found.needs_approval, found.drain, found.retry, found.retry_key) == (
        False, False, None, 0, b"",
    )  # fmt: skip


def test_our_headers_are_taken_out_and_those_of_the_agent_keep_order_and_spelling() -> None:
    found = read(
        (b"X-Custom", b"1"), (b"X-Agent-Session-Id", b"a"), (b"x-agentstate-key", b"k"),
        (b"authorization", b"Bearer x"), (b"x-custom", b"2"), (b"x-agent-unheard-of", b"3"),
    )  # fmt: skip
    assert found.headers == [("X-Custom", "1"), ("authorization", "Bearer x"), ("x-custom", "2")]


def test_headers_of_the_connection_are_not_passed_on() -> None:
    found = read(
        (b"connection", b"keep-alive, X-Hop"), (b"keep-alive", b"5"), (b"x-hop", b"1"), (b"te", b"trailers"),
        (b"transfer-encoding", b"chunked"), (b"upgrade", b"h2c"), (b"x-end", b"2"),
    )  # fmt: skip
    assert found.headers == [("x-end", "2")]


@pytest.mark.parametrize(("value", "wanted"), [(b"0", 0), (b"17", 17), (b" 4 ", 4), (b"", None), (b"007", 7)])
def test_a_step_number_is_a_whole_number(value: bytes, wanted: int | None) -> None:
    assert read((b"x-agent-step-number", value)).hint == wanted


@pytest.mark.parametrize("value", [b"-1", b"1.5", b"one", b"1e3", "²".encode(), "٣".encode(), b"1" * 16, b"0x1"])
def test_a_step_number_that_is_none_is_refused(value: bytes) -> None:
    with pytest.raises(BadRequest, match=r"x-agent-step-number.*whole number"):
        read((b"x-agent-step-number", value))


@pytest.mark.parametrize(
    ("value", "wanted"), [("true", True), ("TRUE", True), ("1", True), ("on", True), ("off", False), ("0", False)]
)
def test_a_flag_is_read_in_the_usual_spellings(value: str, wanted: bool) -> None:
    assert read((b"x-agent-drain", value.encode())).drain is wanted
    assert read((b"x-agent-require-approval", value.encode())).needs_approval is wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"x-agent-drain", b"maybe"),
        (b"x-agent-require-approval", b"please"),
        (b"x-agent-replay", b"always"),
        (b"x-agent-first-prompt", b"yes"),
    ],
)
def test_a_value_that_is_none_is_refused_by_the_headers_name(name: bytes, value: bytes) -> None:
    with pytest.raises(BadRequest, match=f"{name.decode()}.*{value.decode()}"):
        read((name, value))


def test_a_refusal_does_not_repeat_a_long_value_whole() -> None:
    with pytest.raises(BadRequest) as refusal:
        read((b"x-agent-replay", b"z" * 5000))
    assert len(refusal.value.message) < 200


@pytest.mark.parametrize(
    ("value", "wanted"), [(b"0", 0), (b"1", 1), (b" 2 ", 2), (b"x", 0), (b"-1", 0), (b"1.5", 0), (b"", 0)]
)
def test_only_a_count_of_retries_proves_a_retry(value: bytes, wanted: int) -> None:
    found = read((b"x-stainless-retry-count", value))
    assert found.retry == wanted
    assert found.headers[0][0] == "x-stainless-retry-count"  # it is the client's own and goes on


def test_an_idempotency_key_is_kept_as_a_hash_and_passed_on() -> None:
    found = read((b"Idempotency-Key", b"stainless-python-retry-1"))
    assert found.retry_key == sha256(b"stainless-python-retry-1").digest()
    assert found.headers == [("Idempotency-Key", "stainless-python-retry-1")]
