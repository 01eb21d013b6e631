"""A provider that others wrote to break clients, before the proxy: its verdict on the proxy is clean, strictly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy import Proxy

openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")
pytest.importorskip("llmock")

FILE = """
policies = []
[upstream]
idle_timeout_s = 0.4
[breaker]
failures = 0
"""
Fault = Callable[[Any], object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("chaos")


@pytest.fixture
def proxy(llmock: Any, folder: Path, request: pytest.FixtureRequest) -> Iterator[Proxy]:
    """One proxy for the module: the server behind it is one for the whole run."""
    running = getattr(request.module, "_running", None)
    if running is None:
        other = {"AGENTSTATE_ANTHROPIC_URL": llmock.base_url("anthropic")}
        running = Proxy(folder / "data", llmock.base_url(), file=FILE, retries=True, environment=other).__enter__()
        request.module._running = running
    yield running


@pytest.fixture(scope="module", autouse=True)
def _ended(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    running = request.module.__dict__.pop("_running", None)
    if running is not None:
        running.__exit__(None, None, None)


def asked(proxy: Proxy, session: str, *, stream: bool) -> str:
    """What the vendor's client makes of an answer; it does not try again itself."""
    base = f"{proxy.url}/s/{session}/r/a/v1"
    with openai.OpenAI(base_url=base, api_key="sk-test-0123456789abcdef", max_retries=0) as client:
        said = [{"role": "user", "content": f"hello {session}"}]
        if not stream:
            return str(client.chat.completions.create(model="gpt-4o", messages=said).choices[0].message.content)
        chunks = client.chat.completions.create(model="gpt-4o", messages=said, stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


MENDED: dict[str, tuple[Fault, bool]] = {
    "rate limits": (lambda mock: mock.rate_limit(times=2, retry_after=0.3), False),
    "rate limits of a stream": (lambda mock: mock.rate_limit(times=2, retry_after=0.3), True),
    "an outage that passes": (lambda mock: mock.fail(503, times=2), False),
    "errors of the server": (lambda mock: mock.fail(500, times=2), True),
    "overload": (lambda mock: mock.fail(529, times=1), False),
    "a connection that breaks": (lambda mock: mock.disconnect(after_chunks=0), True),
    "a connection that breaks after the opening": (lambda mock: mock.disconnect(after_chunks=1), True),
    "a stream that ends early": (lambda mock: mock.truncate(after_chunks=1), True),
    "a silence": (lambda mock: mock.stall(after_chunks=1, seconds=5), True),
}


@pytest.mark.parametrize("name", MENDED)
def test_the_agent_has_its_answer_and_the_provider_no_complaint(
    llmock: Any, proxy: Proxy, session: str, name: str
) -> None:
    fault, stream = MENDED[name]
    fault(llmock)
    assert asked(proxy, session, stream=stream)
    assert len(llmock.requests) > 1, "the fault did not happen"
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("name", [name for name, (_, stream) in MENDED.items() if stream])
def test_another_vendors_client_has_its_answer_too(llmock: Any, proxy: Proxy, session: str, name: str) -> None:
    MENDED[name][0](llmock)
    base = f"{proxy.url}/s/{session}/r/a"
    said = [{"role": "user", "content": f"hello {session}"}]
    with (
        anthropic.Anthropic(base_url=base, api_key="sk-test-0123456789abcdef", max_retries=0) as client,
        client.messages.stream(model="claude-sonnet-5-5", max_tokens=100, messages=said) as stream,
    ):
        assert stream.get_final_text()
    assert len(llmock.requests) > 1, "the fault did not happen"
    llmock.assert_resilient(strict=True)


def test_a_chunk_that_is_no_json_is_no_answer_and_another_one_is_asked_for(
    llmock: Any, proxy: Proxy, session: str
) -> None:
    """The whole stream is read before that is judged, so that its sender takes the second request for a new call."""
    llmock.corrupt(after_chunks=1)
    assert asked(proxy, session, stream=True)
    assert len({record.fingerprint for record in llmock.requests}) == 1
    assert len(llmock.requests) == 2
    assert not llmock.verdict().errors


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_trying_again_cannot_mend_is_told_at_once(llmock: Any, proxy: Proxy, session: str, status: int) -> None:
    llmock.fail(status, times=None)
    with pytest.raises(openai.APIStatusError) as caught:
        asked(proxy, session, stream=False)
    assert caught.value.status_code == status
    assert len(llmock.requests) == 1
    llmock.assert_resilient(strict=True)


def test_an_outage_that_does_not_pass_is_given_up_on(llmock: Any, proxy: Proxy, session: str) -> None:
    llmock.outage(status=503)
    with pytest.raises(openai.InternalServerError):
        asked(proxy, session, stream=False)
    assert len(llmock.requests) == 3
    llmock.assert_resilient(strict=True)


def test_a_wait_that_is_too_long_is_left_to_the_agent_with_the_header(llmock: Any, proxy: Proxy, session: str) -> None:
    llmock.rate_limit(times=None, retry_after=120)
    with pytest.raises(openai.RateLimitError) as caught:
        asked(proxy, session, stream=False)
    assert float(caught.value.response.headers["retry-after"]) == 120
    assert len(llmock.requests) == 1


@pytest.mark.parametrize("fault", ["truncate", "disconnect"])
def test_a_stream_that_breaks_within_its_text_is_an_error_and_whole_when_it_is_asked_again(
    llmock: Any, proxy: Proxy, session: str, fault: str
) -> None:
    getattr(llmock, fault)(after_chunks=3)
    with pytest.raises(openai.APIError):
        asked(proxy, session, stream=True)
    assert len(llmock.requests) == 1
    again = asked(proxy, session, stream=True)
    assert again
    verdict = llmock.verdict()
    assert not verdict.errors, verdict.render()
