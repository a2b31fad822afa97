"""Backends that get scores of runs, from ``BLAMESPAN_SCORES`` and the backends' own variables. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlencode, urlsplit

from collector_processor.core.credentials import (
    LANGFUSE_VARIABLES,
    MLFLOW_VARIABLES,
    PHOENIX_VARIABLES,
    Credentials,
    langfuse_credentials,
    mlflow_credentials,
    phoenix_credentials,
)
from collector_processor.core.scores import Lane, ScoreBackend, lane_of
from collector_processor.otlp import NO_TENANT, Tenant
from collector_processor.otlp.destination import checked_url

_CREDENTIALS: Final[Mapping[ScoreBackend, tuple[tuple[str, ...], Credentials]]] = {
    ScoreBackend.PHOENIX: (PHOENIX_VARIABLES, phoenix_credentials),
    ScoreBackend.MLFLOW: (MLFLOW_VARIABLES, mlflow_credentials),
    ScoreBackend.LANGFUSE: (LANGFUSE_VARIABLES, langfuse_credentials),
}
_LABELS: Final = "labels"
_EXPECTED: Final = (
    "expected BACKEND=URL,… or BACKEND@TENANT=URL,…, with BACKEND+labels to read people's scores back, of"
    f" {', '.join(ScoreBackend)}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreTarget:
    """One backend that gets the scores of one tenant's runs."""

    backend: ScoreBackend
    tenant: Tenant
    url: str
    """Without a slash at its end."""
    is_read: bool = False
    """Whether people's scores there become labels here."""
    suffix: str = ""
    """End of the names of its variables, such as ``_TEAM_A``."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """With the credentials."""

    @property
    def lane(self) -> Lane:
        """Its part of the outbox."""
        return lane_of(self.backend, self.tenant)

    @property
    def variables(self) -> Sequence[str]:
        """The variables that its credentials come from."""
        return [name + self.suffix for name in _CREDENTIALS[self.backend][0]]


def read_targets(text: str, tenant_header: str, environ: Mapping[str, str]) -> tuple[ScoreTarget, ...]:
    """Read ``phoenix=URL,phoenix+labels@team-a=URL,…``, with the credentials of each.

    Args:
        text: the setting.
        tenant_header: the header whose value names a tenant; a name with ``=`` in it, percent-encoded, is the
            tenant as it stands in the store.
        environ: where the credentials are. Those of a tenant's backend have its name at their end, so that no
            tenant's runs go to a project that another tenant's keys open.

    Raises:
        ValueError: it cannot be read; the message quotes no secret.
    """
    targets = [_target(part, tenant_header, environ) for part in text.split(",") if part.strip()]
    keys = [(target.backend, target.suffix) for target in targets]  # no two tenants share credentials
    if len(keys) != len(set(keys)):
        raise ValueError(
            "expected each backend once for each tenant, with names that differ in letters or digits"
        )
    return tuple(targets)


def _target(part: str, tenant_header: str, environ: Mapping[str, str]) -> ScoreTarget:
    given, equals, url = part.strip().partition("=")
    named, at, of = given.partition("@")
    name, plus, what = named.partition("+")
    is_known = name in [*ScoreBackend] and what == (_LABELS if plus else "")
    if not equals or not is_known or (at and not (of and tenant_header)):
        raise ValueError(_EXPECTED)
    url = checked_url(url.strip())
    parts = urlsplit(url)
    if parts.query or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("expected URLs without query and fragment; credentials are variables")
    backend, of = ScoreBackend(name), unquote(of)
    suffix = f"_{re.sub('[^A-Z0-9]+', '_', of.upper())}" if at else ""
    names, credentials = _CREDENTIALS[backend]
    headers = credentials({variable: environ.get(variable + suffix, "") for variable in names})
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise ValueError(f"expected printable ASCII in {', '.join(each + suffix for each in names)}")
    return ScoreTarget(
        backend=backend,
        tenant=(Tenant(of) if "=" in of else Tenant(urlencode([(tenant_header, of)]))) if at else NO_TENANT,
        url=url,
        is_read=bool(plus),
        suffix=suffix,
        headers=headers,
    )
