"""Types of settings' values: addresses, backends that get scores of runs, and timers that follow. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import unquote, urlencode, urlsplit

from collector_processor.assembly.assembler import AssemblerLimits
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
from collector_processor.otlp import NO_TENANT, Address, Tenant
from collector_processor.otlp.destination import checked_url

_SILENCE: Final = 1.25
"""Longest silence as a multiple of ``max_age_s``: allows for batches, and for work around such a pause."""
_PAUSES: Final = 12
"""Longest run as a multiple of ``max_age_s``, several pauses included."""
_LONGEST_RUN_S: Final = 64_800.0
"""Bound on the longest run: 18 hours, less than the day that the journal keeps a run's first spans."""


def idle_close_ms(root_grace_ms: int) -> int:
    """Return the default of ``idle_close``: services that send late also pause longer between spans."""
    return max(60_000, 6 * root_grace_ms)


def max_age_ms(root_grace_ms: int) -> int:
    """Return the default of ``max_age``, at most what the longest run allows for one pause."""
    return max(3_600_000, min(360 * root_grace_ms, int(1000 * _LONGEST_RUN_S / _SILENCE)))


def address(text: str) -> Address:
    """Read ``host:port``; an IPv6 host is written in brackets.

    Raises:
        ValueError: it is not an address.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"expected host:port, such as 127.0.0.1:4317, got {text!r}")
    return Address(host=host.strip("[]") or "0.0.0.0", port=int(port))  # noqa: S104 - ":4317" is every interface


def http_address(text: str) -> str:
    """Return the address of a page or a webhook unchanged.

    Raises:
        ValueError: it is not one, or it has a user or a fragment. The message does not contain it.
    """
    url = urlsplit(text)
    if url.scheme not in {"http", "https"} or not url.hostname or url.fragment or {*"@,"} & {*url.netloc}:
        raise ValueError("expected http://… or https://…, without a user or a fragment")
    _ = url.port  # raises if it is not one
    if not _is_one_word(text):
        raise ValueError("expected http://… or https://… in printable ASCII, without spaces")
    return text


MOST_RECEIVERS: Final = 10
"""Bound on receivers of notices: each has its own queue in the store and its own series of metrics."""
_SCHEME: Final = r"[A-Za-z][A-Za-z0-9+.-]*://"


def receiver_urls(text: str) -> tuple[str, ...]:
    """Return the URLs of receivers of notices.

    A comma separates two URLs if a scheme follows it: URLs of apprise may contain other commas.

    Raises:
        ValueError: one is not a URL, or there are too many. The message contains positions, not URLs.
    """
    urls = tuple(one.strip() for one in re.split(rf",\s*(?={_SCHEME})", text) if one.strip())
    if len(urls) > MOST_RECEIVERS:
        raise ValueError(f"expected at most {MOST_RECEIVERS} URLs, got {len(urls)}")
    for position, url in enumerate(urls, 1):
        try:
            _check_receiver(url)
        except ValueError as error:
            raise ValueError(f"URL {position}: {error}") from None
    return urls


def is_http(url: str) -> bool:
    """Return whether a receiver's URL is one of HTTP, not of apprise."""
    return url.partition("://")[0].lower() in {"http", "https"}


def _check_receiver(url: str) -> None:
    if is_http(url):
        http_address(url)
    elif not re.match(_SCHEME, url) or not _is_one_word(url):
        raise ValueError("expected https://… or a URL of apprise in printable ASCII, without spaces")


def _is_one_word(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


class WriteBack(StrEnum):
    """Time at which blame is written into the trace."""

    LATE = "late"
    HOLD = "hold"


class ExportText(StrEnum):
    """Prose on carriers and logs."""

    NONE = "none"
    REDACTED = "redacted"
    FULL = "full"


def completion_timers(root_grace_s: float, idle_close_s: float, max_age_s: float) -> AssemblerLimits:
    """Return the assembler's timers; those without a setting of their own are multiples of these."""
    return AssemblerLimits(
        root_grace_s=root_grace_s,
        idle_close_s=idle_close_s,
        absent_idle_s=10 * idle_close_s,
        max_silence_s=_SILENCE * max_age_s,
        max_age_s=max(max_age_s, min(_PAUSES * max_age_s, _LONGEST_RUN_S)),
    )


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
