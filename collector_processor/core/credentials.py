"""Request headers of backends' APIs, from the variables that the backends' own clients read. Pure."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

Environ: TypeAlias = Mapping[str, str]

PHOENIX_VARIABLES: Final = ("PHOENIX_API_KEY",)
LANGFUSE_VARIABLES: Final = ("LANGFUSE_PUBLIC_KEY", "LANGFUSE_SECRET_KEY")
MLFLOW_VARIABLES: Final = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
Credentials: TypeAlias = Callable[[Environ], Mapping[str, str]]


def phoenix_credentials(environ: Environ) -> Mapping[str, str]:
    """Return Phoenix's header; empty without a key."""
    key = environ.get("PHOENIX_API_KEY", "").strip()
    return {"Authorization": f"Bearer {key}"} if key else {}


def langfuse_credentials(environ: Environ) -> Mapping[str, str]:
    """Return Langfuse's header; empty without both keys."""
    public, secret = (environ.get(name, "").strip() for name in LANGFUSE_VARIABLES)
    return _basic(public, secret) if public and secret else {}


def mlflow_credentials(environ: Environ) -> Mapping[str, str]:
    """Return what MLflow's own client sends: a user with a password before a token."""
    user, password = environ.get("MLFLOW_TRACKING_USERNAME", ""), environ.get("MLFLOW_TRACKING_PASSWORD", "")
    token = environ.get("MLFLOW_TRACKING_TOKEN", "").strip()
    if user and password:
        return _basic(user, password)
    return {"Authorization": f"Bearer {token}"} if token else {}


def _basic(user: str, password: str) -> Mapping[str, str]:
    """Return the header of HTTP's basic authentication (RFC 7617)."""
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
