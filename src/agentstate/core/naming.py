"""Owns the spellings of a tool's name that some client may take for the same tool. Must not know policies.

Invariant: names that differ only in what ``spellings`` takes away have a spelling in common; the name itself is one.
"""

from __future__ import annotations

from functools import lru_cache
from unicodedata import category, normalize

_SEPARATORS = ".:/"  # between a namespace and a tool
# Characters that nobody sees though their category does not say so: the fillers and selectors among Unicode's
# Default_Ignorable_Code_Point (DerivedCoreProperties.txt).
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0") | {
    chr(code) for code in (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
}


def cleaned(name: str) -> str:
    """A name in its compatible form (NFKC), without characters that nobody sees and blanks around it."""
    shown = "".join(char for char in name if char not in _UNSEEN and category(char) not in ("Cf", "Cc"))
    return normalize("NFKC", shown).strip()


def folded(name: str) -> str:
    """A name in which case does not count."""
    return normalize("NFKC", normalize("NFKC", name).casefold())


@lru_cache(1024)
def spellings(name: str) -> tuple[str, ...]:
    """A name as it is, cleaned, and less its namespaces, each with and without its case. None: it names nothing."""
    clean = cleaned(name)
    last = clean.rstrip(_SEPARATORS)
    for separator in _SEPARATORS:
        last = last.rpartition(separator)[2]
    if not clean:
        return ()
    found = (name, clean, last.strip(), folded(clean), folded(last.strip()))
    return tuple(dict.fromkeys(spelling for spelling in found if spelling))
