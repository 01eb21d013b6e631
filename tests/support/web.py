"""Owns a browser without scripts: cookies, pages, forms as they stand on a page. Must not follow anything by itself.

Invariant: what it sends is what a browser would send for that page, ``Origin`` and ``Sec-Fetch-Site`` included; every
wait is bounded.
"""

from __future__ import annotations

import http.client
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

BOUND_S = 20.0


@dataclass
class Field:
    """A field or button of a form."""

    name: str
    value: str
    kind: str


@dataclass
class HtmlForm:
    """A form as it stands on a page. ``fields``: what is sent with it; ``buttons``: each with its name and value."""

    action: str
    method: str
    fields: list[Field] = field(default_factory=list)
    buttons: list[Field] = field(default_factory=list)


class _Reader(HTMLParser):
    """Collects forms, links, texts."""

    def __init__(self) -> None:
        super().__init__()
        self.forms: list[HtmlForm] = []
        self.by_id: dict[str, HtmlForm] = {}
        self.loose: list[tuple[str, Field]] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self._area: Field | None = None
        self._select = ""
        self._chosen: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        if tag == "form":
            made = HtmlForm(given.get("action", "").partition("#")[0], given.get("method", "get").lower())
            self.forms.append(made)
            if given.get("id"):
                self.by_id[given["id"]] = made
        elif tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "input" and given.get("name"):
            kind = given.get("type", "text")
            if kind not in ("checkbox", "radio") or "checked" in given:
                self._put(given, Field(given["name"], given.get("value", "on" if kind == "checkbox" else ""), kind))
        elif tag == "button" and given.get("type", "submit") == "submit":
            self._put(given, Field(given.get("name", ""), given.get("value", ""), "button"))
        elif tag == "textarea":
            self._area = Field(given.get("name", ""), "", "textarea")
            self._put(given, self._area)
        elif tag == "select":
            self._select, self._chosen = given.get("name", ""), None
        elif tag == "option" and self._select and (self._chosen is None or "selected" in given):
            self._chosen = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea" and self._area is not None:
            self._area.value = self._area.value.removeprefix("\n")
            self._area = None
        elif tag == "select" and self._select:
            self._put({}, Field(self._select, self._chosen or "", "select"))
            self._select = ""

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._area is not None:
            self._area.value += data

    def _put(self, given: dict[str, str], made: Field) -> None:
        if given.get("form"):
            self.loose.append((given["form"], made))
        elif self.forms:
            _into(self.forms[-1], made)


def _into(form: HtmlForm, made: Field) -> None:
    (form.buttons if made.kind == "button" else form.fields).append(made)


@dataclass
class PageSeen:
    """An answer: ``location`` where it leads on, ``html`` what it shows."""

    status: int
    headers: dict[str, list[str]]
    html: str
    url: str

    def __post_init__(self) -> None:
        reader = _Reader()
        reader.feed(self.html)
        for owner, made in reader.loose:
            if owner in reader.by_id:
                _into(reader.by_id[owner], made)
        self.forms, self.links, self.tags = reader.forms, reader.links, reader.tags
        self.text = " ".join(" ".join(reader.texts).split())

    @property
    def location(self) -> str:
        return (self.headers.get("location") or [""])[0]

    def header(self, name: str) -> str:
        return ", ".join(self.headers.get(name, []))

    def form(self, action: str) -> HtmlForm:
        """The form that posts to an address which ends so; fails with those there are."""
        found = [form for form in self.forms if form.action.partition("?")[0].endswith(action)]
        assert found, f"no form for {action}; there are {[form.action for form in self.forms]}"
        return found[0]


class Web:
    """One person's browser. ``headers``: sent with every request."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self.cookies: dict[tuple[str, str], str] = {}
        self.headers: dict[str, str] = {}

    def log_in(self, token: str) -> Web:
        """By the login form."""
        done = self.submit(self.get("/dashboard/login").form("/login"), token=token)
        assert done.status == 303, (done.status, done.text)
        return self

    def get(self, path: str) -> PageSeen:
        """One page; nothing is followed."""
        return self.send("GET", path)

    def follow(self, page: PageSeen) -> PageSeen:
        """The page that an answer leads to."""
        assert page.status == 303, (page.status, page.text[:2000])
        return self.get(page.location)

    def submit(self, form: HtmlForm, button: str = "", **values: Any) -> PageSeen:
        """Send a form. ``button``: the value of the button that is pressed, where there are several; ``values``: what
        is typed; ``None`` leaves a field out, a list sends it several times."""
        pairs = [(one.name, one.value) for one in form.fields if one.name not in values]
        for name, value in values.items():
            pairs += [(name, str(part)) for part in (value if isinstance(value, list) else [value]) if part is not None]
        pressed = next((one for one in form.buttons if one.value == button), None)
        assert pressed is not None or not button, f"no button {button}; there are {form.buttons}"
        if pressed is not None and pressed.name:
            pairs.append((pressed.name, pressed.value))
        if form.method == "get":
            return self.get(form.action + "?" + urlencode(pairs))
        return self.send("POST", form.action, urlencode(pairs))

    def send(self, method: str, path: str, body: str = "", headers: dict[str, str] | None = None) -> PageSeen:
        """One request with the cookies that are for it."""
        target = urlsplit(urljoin(self.url, path))
        where = target.path + (f"?{target.query}" if target.query else "")
        sent = {"host": urlsplit(self.url).netloc, "sec-fetch-site": "same-origin", **self.headers}
        if method != "GET":
            sent |= {"origin": self.url, "content-type": "application/x-www-form-urlencoded"}
        jar = [f"{name}={value}" for (name, under), value in self.cookies.items() if target.path.startswith(under)]
        if jar:
            sent["cookie"] = "; ".join(jar)
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=BOUND_S)
        try:
            connection.request(method, where, body.encode() if method != "GET" else None, {**sent, **(headers or {})})
            answer = connection.getresponse()
            found: dict[str, list[str]] = {}
            for name, value in answer.getheaders():
                found.setdefault(name.lower(), []).append(value)
            html = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        for cookie in found.get("set-cookie", []):
            self._keep(cookie)
        return PageSeen(answer.status, found, html, where)

    def _keep(self, cookie: str) -> None:
        first, *rest = [part.strip() for part in cookie.split(";")]
        name, _, value = first.partition("=")
        said = {part.partition("=")[0].lower(): part.partition("=")[2] for part in rest}
        key = (name, said.get("path", "/"))
        if said.get("max-age") == "0":
            self.cookies.pop(key, None)
        else:
            self.cookies[key] = value
