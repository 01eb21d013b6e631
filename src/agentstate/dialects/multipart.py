"""Owns reading the forms in which files and their requests are sent (``multipart/…``). Must not change them.

Invariant: a field that a provider finds in a form is found here, whatever its place; what is no form has no fields.
"""

from __future__ import annotations

import re

_BOUNDARY = re.compile(r"""boundary\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;,]+)""", re.IGNORECASE)
# Whole parameters one after the other: a file may be called ``a; name=b``.
_PARAMETER = re.compile(rb"""([\w*-]+)\s*=\s*("(?:[^"\\\r\n]|\\.)*"|[^\s;,]+)""")
_BLANK_LINE = re.compile(rb"\r?\n[ \t]*\r?\n")


def fields(content_type: str, body: bytes) -> list[tuple[str, bytes]]:
    """(name, content) of each field, files among them; empty: it is no form."""
    found = _BOUNDARY.search(content_type)
    if not content_type.lstrip().lower().startswith("multipart/") or found is None:
        return []
    boundary = _unquoted(found[1])
    named = []
    for part in body.split(b"--" + boundary.encode("utf-8", "replace"))[1:]:
        head = _BLANK_LINE.search(part)
        if head is None:
            continue
        parameters = _PARAMETER.finditer(part, 0, head.start())
        name = next((one[2] for one in parameters if one[1].lower() == b"name"), b"").decode("utf-8", "replace")
        named.append((_unquoted(name), part[head.end() :].removesuffix(b"\n").removesuffix(b"\r")))
    return named


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[:1] == '"' else text
