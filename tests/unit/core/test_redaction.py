"""What counts as a secret is taken out of whatever it stands in, and what only looks like one stays."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.core.redaction import Redactor, is_card, is_iban

# Put together here, so that this file holds no key that could be real.
SECRETS = {
    "key": [
        "sk-" + "test-4f3a9c2b7d1e8f6a5b4c",
        "sk-" + "ant-api03-Zx81kQpw_77aaBBccDD",
        "AKIA" + "IOSFODNN7EXAMPLE",
        "AIza" + "SyA-1234567890abcdefghijklmnopqrstu",
        "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6",
        "xoxb" + "-123456789012-abcdefGHIJKL",
        "hf_" + "AbCdEfGhIjKlMnOpQrStUvWx",
        "sk_" + "test_4eC39HqLyjWDarjtT1zdp7dc",
        "https://hooks.slack.com/" + "services/T000/B000/XXXX",
    ],
    "token": [
        "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "Bearer " + "abcdef0123456789abcdef",
    ],
    "password": ["password = " + "hunter2hunter", "API_KEY=" + "a1b2c3d4e5", '"client_secret": "' + 's3cr3t-value"'],
    "email": ["jo.doe+tag@mail.example.co.uk", "o'brien@example.org"],
    "card": ["4111 1111 1111 1111", "5500-0000-0000-0004", "378282246310005"],
    "account": ["DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"],
    "ssn": ["123-45-6789"],
    "phone": ["+49 30 901820", "+1 (415) 555-2671", "(030) 1234 5678", "415-555-2671"],
}  # fmt: skip
CORE = {"password = hunter2hunter": "hunter2hunter", "API_KEY=a1b2c3d4e5": "a1b2c3d4e5"}


@pytest.mark.parametrize(("kind", "secret"), [(kind, one) for kind, found in SECRETS.items() for one in found])
def test_a_secret_is_taken_out_and_counted_by_its_kind(kind: str, secret: str) -> None:
    redactor = Redactor()
    told = redactor.text(f"Look: {secret}, and go on.")
    assert redactor.counts == {kind: 1}
    assert f"[redacted {kind}]" in told and told.startswith("Look: ") and told.endswith(", and go on.")
    last = secret.rsplit(" ", 1)[-1].rsplit("=", 1)[-1].strip('"')
    assert last not in told


def test_a_private_key_goes_with_all_its_lines_even_without_an_end() -> None:
    begin, end = "-----BEGIN RSA " + "PRIVATE KEY-----", "-----END RSA " + "PRIVATE KEY-----"
    lines = "\n".join(["MIIEowIBAAKCAQEA" * 4] * 3)
    redactor = Redactor()
    assert redactor.text(f"a {begin}\n{lines}\n{end} b") == "a [redacted private_key] b"
    assert "MIIE" not in redactor.text(f"a {begin}\n{lines}")
    assert redactor.counts == {"private_key": 2}


@pytest.mark.parametrize(
    "text",
    [
        "It was 2026-11-30 at 12:30:45, version 1.2.3.",
        "order 1234567890123456 is no card",
        "the password is wrong: try again",
        "token: the smallest unit",
        "a sk-learn model, a risk-free one",
        "call me at 10 or 11",
        "git@ is no address, nor is @mention",
        "SELECT count(*) FROM t WHERE id = 100200300",
        "commit 7019a1b2c3d4e5f60718293a4b5c6d7e8f901234",
        "uuid 123e4567-e89b-12d3-a456-426614174000",
        "https://example.com/a/b?c=d#e",
        "127.0.0.1:8080",
        "x = 3.14159265358979",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    redactor = Redactor()
    assert redactor.text(text) == text
    assert not redactor.counts


@settings(deadline=None)
@given(
    st.sampled_from([one for found in SECRETS.values() for one in found]),
    st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=60),
    st.text(alphabet=st.characters(exclude_categories=("Cs",)), max_size=60),
)
def test_no_planted_secret_is_left_in_text_or_json(secret: str, before: str, after: str) -> None:
    core = secret.rsplit("=", 1)[-1].strip(' "')
    for told in (
        Redactor().text(f"{before}\n{secret}\n{after}"),
        Redactor().json(json.dumps({"note": [f"{before} {secret} {after}"], "n": 1})),
    ):
        assert core not in told


def test_json_stays_json_and_names_tell_what_is_secret() -> None:
    redactor = Redactor()
    said = {"password": "correct horse", "n": 4111111111111111, "keep": [1, None, True, "text"], "to": "a@example.com"}
    told = json.loads(redactor.json(json.dumps(said)))
    assert told == {
        "password": "[redacted password]", "n": "[redacted card]", "keep": [1, None, True, "text"],
        "to": "[redacted email]",
    }  # fmt: skip
    untouched = '{"a":  1.50, "b": "x"}'
    assert redactor.json(untouched) is untouched


def test_a_property_of_a_schema_is_no_secret_for_its_name() -> None:
    schema = '{"type":"object","properties":{"password":{"type":"string","description":"Ask admin@example.com"}}}'
    told = json.loads(Redactor().schema(schema))
    assert told["properties"]["password"] == {"type": "string", "description": "Ask [redacted email]"}


def test_redacting_twice_changes_nothing_more() -> None:
    once = Redactor()
    text = once.text(" ".join(one for found in SECRETS.values() for one in found))
    again = Redactor()
    assert again.text(text) == text and not again.counts


@pytest.mark.parametrize(
    "text",
    [
        "a" * 2_000_000,
        "eyJ" * 700_000,
        "+1" * 700_000,
        "://" * 500_000,
        "a@" * 700_000,
        "a." * 700_000 + "@",
        "password:" * 200_000,
        "password" + " " * 1_000_000,
        "4 " * 700_000,
        "sk-" * 500_000,
        ("-----BEGIN " + "PRIVATE KEY-----") * 50_000,
        "DE89 " * 300_000,
        "(((" * 500_000,
        "Bearer " * 200_000,
        "data:image/png;base64," + "A" * 2_000_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_large_text_that_was_made_to_be_slow_is_not(text: str) -> None:
    start = time.perf_counter()
    Redactor().text(text)
    assert time.perf_counter() - start < 40  # a pattern that looks back takes hours


def test_all_that_stands_under_the_name_of_a_secret_goes_whatever_its_form() -> None:
    said = {
        "password": ["horse", {"old": "battery", "n": 1234, "set": True}],
        "token": 12345678,
        "api_key": {"v": "x7"},
    }
    told = json.dumps(Redactor().value(said))
    assert [secret for secret in ("horse", "battery", "1234", "x7") if secret in told] == []
    assert Redactor().value({"token": None, "password": ""}) == {"token": None, "password": ""}


def test_only_what_is_embedded_is_left_as_it_is() -> None:
    key = "sk-" + "a1b2c3d4e5f6g7h8i9"
    picture = "data:image/png;base64," + "Ab0+" * 100
    assert Redactor().text(picture) == picture
    for text in (f"data: the key is {key}", f'data: {{"key": "{key}"}}', f"data:text/plain;base64,AAAA {key}"):
        assert key not in Redactor().text(text)


def test_numbers_are_judged_by_their_check_digits() -> None:
    assert is_card("4111-1111-1111-1111") and not is_card("4111-1111-1111-1112") and not is_card("0000000000000000")
    assert is_iban("DE89370400440532013000") and not is_iban("DE88370400440532013000")


@pytest.mark.parametrize("number", ["4111 1111 1111 1111", "DE89 3704 0044 0532 0130 00"])
@pytest.mark.parametrize("text", ["1234 {} 99", "{} 123 AND SO ON", "7 {}", "{}-{}", "1234 5678 {} 1 2 3 4 5 6"])
def test_a_number_is_found_among_others(number: str, text: str) -> None:
    assert number not in Redactor().text(text.replace("{}", number))
