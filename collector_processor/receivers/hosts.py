"""By which name a client called us: a guard against browsers that were tricked (DNS rebinding).

A page of a stranger can have its own name point to 127.0.0.1 and then ask us for
anything as if we were its server. The Host header still bears the stranger's name.
Where no token is asked for, only names of this machine are answered to. Pure.
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from ipaddress import ip_address


def names_this_machine(host: str, allowed: Container[str] = ()) -> bool:
    """Tell whether a Host header (with or without port) can only mean this machine.

    An IP address names whom it reaches, and no header at all comes from no browser.
    ``allowed`` are further names, in lower case.
    """
    name = _without_port(host.strip().lower()).removesuffix(".")
    return not name or name == "localhost" or name.endswith(".localhost") or name in allowed or _is_ip(name)


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@lru_cache(maxsize=256)  # a client's header is the same at each request
def _is_ip(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
