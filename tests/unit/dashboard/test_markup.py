"""What is laid out and coloured of hostile texts is bounded for a whole page."""

from __future__ import annotations

from agentstate.dashboard.markup import coloured, markdown, one_page


def test_a_page_lays_out_so_much_and_shows_the_rest_plain() -> None:
    with one_page():
        shown = [markdown("**b** " * 10_000) for _ in range(6)]
        small = markdown("*i*")
    plain = [one.startswith('<pre class="plain">') for one in shown]
    assert plain == [False] * 3 + [True] * 3 and "<em>i</em>" in small
    assert "<strong>" in markdown("**b** " * 10_000), "another page begins anew"


def test_a_page_colours_so_much_and_shows_the_rest_plain() -> None:
    with one_page():
        shown = [coloured("[1]" * 60_000) for _ in range(7)]
    assert ["<span" in one for one in shown] == [True] * 5 + [False] * 2
    assert shown[-1] == "[1]" * 60_000
