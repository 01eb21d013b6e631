"""How pages write figures, times and texts of others."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dashboard import markup, rendering, svg
from agentstate.dashboard.conversation import streamed
from agentstate.dashboard.frame import session_path
from agentstate.dashboard.journal import _spans
from agentstate.server.dashboard_pages import inside
from tests.support import chat


@pytest.mark.parametrize(
    ("usd", "said"),
    [
        (0, "$0"), (1e-12, "$0"), (0.0012345, "$0.001234"), (0.82, "$0.82"), (1, "$1.00"), (41.2, "$41.20"),
        (4.1234, "$4.123"), (1204.5, "$1,204.50"), (-0.5, "-$0.50"), (0.00000123456, "$0.000001235"),
    ],
)  # fmt: skip
def test_money_has_four_significant_digits_and_two_decimals_at_least(usd: float, said: str) -> None:
    assert rendering.dollars(usd) == said


def test_an_unknown_price_is_a_dash_with_its_reason_and_never_nothing() -> None:
    shown = str(rendering.money(None, 'no "price"'))
    assert "—" in shown and "$" not in shown and "unknown: no &#34;price&#34;" in shown


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "—"), (0.0009, "0.9 ms"), (0.061, "61 ms"), (1.24, "1.24 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations_are_written_as_people_say_them(seconds: float | None, said: str) -> None:
    assert rendering.duration(seconds) == said


@pytest.mark.parametrize(("apart", "said"), [(0, "now"), (4, "4 s ago"), (-180, "in 3 min"), (2 * 86400, "2 d ago")])
def test_times_are_relative(apart: float, said: str) -> None:
    assert rendering.relative(1000.0 - apart, 1000.0) == said


def test_every_text_that_a_template_puts_in_is_escaped_and_shows_what_cannot_be_seen() -> None:
    made = rendering.environment().from_string("<p title='{{ text }}'>{{ text }}</p>{{ text|exact }}")
    shown = made.render(text="<b>'\u202e")
    assert shown.count("&lt;b&gt;&#39;‹U+202E›") == 2 and shown.endswith("&lt;b&gt;&#39;\u202e")
    with pytest.raises(Exception, match="nothing"):
        rendering.environment().from_string("{{ nothing }}").render()


_TAGS = "|".join(sorted(markup._TAGS))


@given(st.text(alphabet=st.sampled_from("<>&\"'()[]!`*_#-= \n:/abhijlnoprstx.\u202e"), max_size=120))
def test_whatever_a_model_writes_comes_out_as_harmless_marks(text: str) -> None:
    shown = str(markup.markdown(text))
    for tag in re.findall(r"<[^>]*>", shown):
        assert re.fullmatch(rf"</?(?:{_TAGS})(?: (?:href|class|rel|start)=\"[^\"<>]*\")*>", tag), tag
        assert not re.search(r"href=\"(?!https?:|mailto:)[^\"]*:", tag), tag
    assert "\u202e" not in shown


def test_a_text_that_is_too_long_to_be_laid_out_is_shown_plainly() -> None:
    assert str(markup.markdown("<b>" + "x" * markup.MOST_MARKDOWN)).startswith('<pre class="plain">&lt;b&gt;')


@given(st.text(min_size=1, max_size=40))
def test_every_id_has_an_address_that_is_one_part_and_no_json(key: str) -> None:
    try:
        path = session_path(key)
    except UnicodeEncodeError:
        return  # no id has half a character
    assert path.startswith("/dashboard/sessions/") and path.count("/") == 3 and not path.endswith(".json")
    assert path.isascii() and inside(path) == path


@pytest.mark.parametrize(
    "path", ["//evil", "https://evil", "/dashboardx", "/dashboard\\evil", "/dashboard/\n", "", "/"]
)
def test_no_address_leads_outside(path: str) -> None:
    assert inside(path) == "/dashboard"


def test_a_tape_says_in_words_what_it_draws() -> None:
    drawn = str(svg.tape(["paid", "replayed", "replayed", "held"], more=56))
    assert 'aria-label="the last 4 steps: 1 paid, 2 replayed, 1 held"' in drawn and drawn.count("<rect") == 4
    assert 'aria-label="no steps"' in str(svg.tape([]))


def test_the_text_of_a_stream_is_read_as_far_as_it_came() -> None:
    sent = b"".join(chat.chunks("one two three"))
    assert streamed("openai_chat", sent) == "one two three"
    assert streamed("openai_chat", sent[: sent.index(b" three") - 30]).startswith("one")
    claude = b'event: x\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"Hi"}}\n\n'
    assert streamed("anthropic_messages", claude) == "Hi"
    assert streamed("ollama_chat", b'{"message":{"content":"Hey"}}\n{"mess') == "Hey"
    gemini = b'data: {"candidates":[{"content":{"parts":[{"text":"Ho"}]}}]}\n\n'
    assert streamed("gemini", gemini) == "Ho"
    responses = b'data: {"type":"response.output_text.delta","delta":"Ha"}\n\n'
    assert streamed("openai_responses", responses) == "Ha"


class _Step:
    """As much of a step as the time line looks at."""

    def __init__(self, began: float, took: float) -> None:
        self.started_at, self.finished_at = began, began + took


def test_a_time_line_keeps_order_and_overlap_and_shortens_long_rests() -> None:
    spans = _spans([_Step(0, 1), _Step(0.5, 1), _Step(1000, 1)], True)  # type: ignore[list-item]
    # 1.5 s of work, a rest drawn as 2 s, 1 s of work.
    assert [(round(start * 4.5, 6), round(part * 4.5, 6)) for start, part in spans] == [(0, 1), (0.5, 1), (3.5, 1)]
    assert _spans([], True) == []
