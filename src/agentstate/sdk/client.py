"""Owns what the wrapped vendor clients share: the session on top of a vendor's own class, made on first use.

Must not: name a vendor, change what its client does otherwise, or import its package before a class is asked for.
Invariant: a copy made by ``copy()`` or ``with_options()`` belongs to the same session and run.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from agentstate.sdk import http

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True, slots=True)
class Vendor:
    """What is a vendor's own.

    ``package``: its name, to import and to install; ``missing_key``: sent as the API key where there is none;
    ``lacks_key(api_key, options, headers)``: whether neither these nor the environment hold anything to authenticate
    with; ``versioned``: its client takes a base URL that ends in ``/v1``.
    """

    package: str
    missing_key: str
    lacks_key: Callable[[Any, Mapping[str, Any], Mapping[str, Any]], bool]
    versioned: bool = True


class SessionClient:
    """The part that is equal for all vendors, in plain and async clients; stands before the vendor's class."""

    session_id: str
    run_id: str
    step_number: int
    _session_vendor: ClassVar[Vendor]

    def __init__(
        self,
        session_id: str | None = None,
        step_number: int = 0,
        base_url: Any = None,
        api_key: Any = None,
        require_approval: bool = False,
        fallback_model: str | Iterable[str] | None = None,
        *,
        default_headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        if not isinstance(fallback_model, str | None):
            fallback_model = tuple(fallback_model)  # read here and again by every copy
        where = http.target(
            session_id, step_number, base_url, require_approval=require_approval, fallback_model=fallback_model
        )
        vendor = self._session_vendor
        if vendor.lacks_key(api_key, options, default_headers or {}):
            api_key = vendor.missing_key
        self.session_id, self.run_id, self.step_number = where.session_id, where.run_id, where.step_number
        self._session_options: dict[str, Any] = {
            "session_id": where.session_id,
            "step_number": step_number,
            "require_approval": require_approval,
            "fallback_model": fallback_model,
        }
        super().__init__(  # type: ignore[call-arg]
            base_url=where.base_url if vendor.versioned else where.base_url.removesuffix("/v1"),
            api_key=api_key,
            default_headers=http.merged(where.headers, default_headers),
            **options,
        )

    # Left to the vendor's class while types are checked, whose signature is the true one.
    if not TYPE_CHECKING:

        def copy(self, *, _extra_kwargs: Mapping[str, Any] | None = None, **options: Any) -> Self:
            """The vendor's ``copy``: another client of the same session with some options changed."""
            return super().copy(_extra_kwargs={**self._session_options, **(_extra_kwargs or {})}, **options)

        with_options = copy


def define(name: str, ours: type[SessionClient], vendors: str, doc: str) -> type:
    """The client class ``name``: ``ours`` before the class ``vendors`` of its vendor's package.

    ``doc``: its docstring, in which ``{vendor}`` is replaced. Raises ``ModuleNotFoundError``, with the way to install
    the package, where that is missing.
    """
    package = ours._session_vendor.package
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise ModuleNotFoundError(
            f"{name} needs the {package} package: pip install 'agentstate-proxy[{package}]'", name=package
        ) from error
    body = {"__module__": ours.__module__, "__doc__": doc.format(vendor=vendors)}
    return type(name, (ours, getattr(module, vendors)), body)
