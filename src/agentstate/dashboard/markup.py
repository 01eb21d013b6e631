"""Owns how what models write, and bodies, are shown: markdown without HTML, code in colours. Must not trust any of it.

Invariant: what comes out has no script, style, handler, form or frame, loads nothing by itself (an image is a link that
says where it leads), and shows each character that could not be seen. However much a page has of it, it is laid out in
a few seconds at most: what is beyond that is shown plain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from agentstate.core.visible import visible

MOST_MARKDOWN = 100_000  # characters that are laid out; what is longer is shown as plain text
MOST_COLOURED = 200_000  # characters that are coloured
# Of all texts of one page. Markdown of nothing but brackets takes 50 µs a character, and no thread runs meanwhile.
_MOST_LAID_OUT, _MOST_COLOURED = 200_000, 1_000_000
_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "span",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {"a": {"href", "class"}, "span": {"class"}, "code": {"class"}, "ol": {"start"}}
_CLASSES = {"a": {"ext"}, "span": {"host", "pic"}, "code": {"code"}}
_REL = "noopener noreferrer nofollow"


@dataclass(slots=True)
class _Left:
    """What may still be laid out and coloured on a page, in characters."""

    markdown: int = _MOST_LAID_OUT
    coloured: int = _MOST_COLOURED


_left: ContextVar[_Left | None] = ContextVar("left", default=None)


@contextmanager
def one_page() -> Iterator[None]:
    """All that is laid out meanwhile is on one page."""
    before = _left.set(_Left())
    try:
        yield
    finally:
        _left.reset(before)


def markdown(text: str) -> Markup:
    """A text of a model, laid out."""
    left = _left.get() or _Left()
    if len(text) > min(MOST_MARKDOWN, left.markdown):
        return Markup('<pre class="plain">{}</pre>').format(visible(text))
    left.markdown -= len(text)
    import nh3

    made = _parser().render(visible(text))
    clean = nh3.clean(
        made, tags=_TAGS, attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        allowed_classes=None, url_schemes={"http", "https", "mailto"}, link_rel=_REL, strip_comments=True,
        attribute_filter=_kept,
    )  # fmt: skip
    return Markup(clean)  # noqa: S704 - it has just been cleaned


def _kept(tag: str, name: str, value: str) -> str | None:
    if name != "class":
        return value
    return " ".join(one for one in value.split() if one in _CLASSES.get(tag, ())) or None


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    parser.enable(["table", "strikethrough"])
    for name in ("link_open", "link_close", "image", "heading_open", "heading_close", "fence", "code_block"):
        parser.add_render_rule(name, globals()[f"_{name}"])
    return parser


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or urlsplit(url).scheme
    except ValueError:
        return "?"


def _link_open(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    url = str(tokens[at].attrs.get("href", ""))
    env.setdefault("links", []).append(url)
    return f'<a class="ext" href="{escape(url)}">'


def _link_close(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    url = env["links"].pop()
    return f'<span class="host"> ({escape(_host(url))})</span></a>'


def _image(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    """An image is not fetched: a link stands in its place."""
    url = str(tokens[at].attrs.get("src", ""))
    what = tokens[at].content or "image"
    where = "embedded" if url.startswith("data:") else _host(url)
    inside = f'<span class="pic">▣ {escape(what)}</span><span class="host"> ({escape(where)})</span>'
    return inside if url.startswith("data:") else f'<a class="ext" href="{escape(url)}">{inside}</a>'


def _heading_open(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    return f"<{_level(tokens[at].tag)}>"


def _heading_close(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    return f"</{_level(tokens[at].tag)}>"


def _level(tag: str) -> str:
    """A page's own headings stand above those of a text in it."""
    return f"h{min(6, int(tag[1]) + 2)}"


def _fence(self: Any, tokens: Any, at: int, options: Any, env: Any) -> str:
    return f'<pre><code class="code">{escape(tokens[at].content)}</code></pre>'


_code_block = _fence


def coloured(text: str, language: str = "json") -> Markup:
    """A body, in colours by classes where it is not too long for that. ``language``: a name that Pygments knows."""
    shown = visible(text)
    left = _left.get() or _Left()
    if len(shown) > min(MOST_COLOURED, left.coloured):
        return escape(shown)
    left.coloured -= len(shown)
    return Markup(_coloured(shown, language))  # noqa: S704 - the formatter escapes


def _coloured(text: str, language: str) -> str:
    from pygments import highlight  # type: ignore[import-untyped]
    from pygments.util import ClassNotFound  # type: ignore[import-untyped]

    try:
        lexer, formatter = _lexer(language), _formatter()
    except ClassNotFound:
        return str(escape(text))
    return str(highlight(text, lexer, formatter)).rstrip("\n")


@cache
def _lexer(language: str) -> Any:
    from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]

    return get_lexer_by_name(language, stripnl=False, ensurenl=False)


@cache
def _formatter() -> Any:
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]

    return HtmlFormatter(nowrap=True, classprefix="c-")
