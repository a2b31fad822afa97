"""Tools in a replayed run: their results come from the tape, through the gateway that replays the run.

``blamespan gateway`` and ``blamespan experiment`` set ``BLAMESPAN_TRIAL``. A decorated tool then does not
run: it asks for its recorded result. If there is none, the tool runs only if the user declared it read-only,
else ``ToolRefused`` is raised: a rerun must not book the flight a second time. Outside a trial nothing
changes. A service that answers trials and its users' requests at the same time enters each trial by
``rerun``.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any, Final, get_type_hints
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from opentelemetry.context import attach, create_key, detach, get_value, set_value

from semconv import attributes as names
from semconv.emit.content import contained, text_of
from semconv.json_text import read_json
from semconv.record import record

TRIAL_VARIABLE: Final = "BLAMESPAN_TRIAL"
"""The trial's address at the gateway, ``http://HOST:PORT/t/TRIAL``."""
_PATIENCE_S: Final = 30.0
_RESOURCE: Final = "OTEL_RESOURCE_ATTRIBUTES"
_RERUN: Final = create_key("blamespan-rerun")


@contextmanager
def rerun(environment: Mapping[str, str]) -> Iterator[None]:
    """Answer one request of ``blamespan experiment --url``: decorated tools inside return recorded results.

    Spans of `run` inside carry the trial's id, so that they do not count as production.

    Args:
        environment: The object of that name in the request's body; if empty, nothing changes.

    Raises:
        ToolRefused: The trial's gateway does not answer.
    """
    address = environment.get(TRIAL_VARIABLE, "")
    if not address:
        yield
        return
    _asked(address, {"rerun": True})  # until the gateway knows this, it answers no model call
    token = attach(set_value(_RERUN, dict(environment)))
    try:
        yield
    finally:
        detach(token)


def trial_attributes() -> dict[str, str]:
    """Return the attribute that marks a run as the current trial's; empty outside ``rerun``."""
    pairs = (pair.partition("=") for pair in _variable(_RESOURCE, "").split(","))
    return {name: value for name, _, value in pairs if name == names.TRIAL}


def _variable(name: str, default: str) -> str:
    """Return a variable of the current trial."""
    value = get_value(_RERUN)
    return str(value.get(name, default)) if isinstance(value, dict) else default


def _address() -> str:
    return _variable(TRIAL_VARIABLE, os.environ.get(TRIAL_VARIABLE, ""))


class ToolRefused(RuntimeError):  # noqa: N818 - a noun reads better where it is caught
    """Raised because a tool would really have run in a replayed run; the message says how to allow it."""


class RecordedToolError(RuntimeError):
    """The error that a tool raised in the recorded run."""


@record
class Played:
    """A recorded result."""

    value: Any


@record
class ToolPlayback:
    """Asks a trial's gateway for the results of one tool; outside a trial it lets the tool run."""

    name: str
    """The tool's name; empty to use the decorated function's."""

    def of_call(self, function: Callable[..., Any], arguments: Mapping[str, object]) -> Played | None:
        """Return the recorded result of a call; ``None`` if the tool should run.

        Raises:
            RecordedToolError: the tool failed in the recorded run.
            ToolRefused: nothing is recorded and the tool may not run, or the gateway does not answer.
        """
        address = _address()
        if not address:
            return None
        name = self.name or getattr(function, "__name__", "")
        answer = _asked(address, {"name": name, "arguments": text_of(arguments)})
        if answer.get("run") is True:
            return None
        result = answer.get("result")
        if not isinstance(result, str):
            raise ToolRefused(str(answer.get("refused") or "the gateway's answer is not understood"))
        if answer.get("failed"):
            raise RecordedToolError(result)
        return Played(value=_as_returned(result, function))

    def of_block(self) -> None:
        """Refuse a ``with tool(…)`` block in a trial: its body cannot be kept from running.

        Raises:
            ToolRefused: the gateway does not let the tool run.
        """
        address = _address()
        if address and _asked(address, {"name": self.name, "is_block": True}).get("run") is not True:
            raise ToolRefused(
                f"the body of `with tool({self.name!r})` would really run in this trial: decorate a function"
                f" with @tool({self.name!r}), or declare it read-only with --allow-tool {self.name}"
            )


def _asked(address: str, question: dict[str, Any]) -> dict[str, Any]:
    if urlsplit(address).scheme not in {"http", "https"}:
        raise ToolRefused(f"expected {TRIAL_VARIABLE} to be an http address")
    body = json.dumps(question).encode()
    headers = {"Content-Type": "application/json"}
    request = Request(f"{address}/tools", data=body, headers=headers)  # noqa: S310 - the scheme is checked
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=_PATIENCE_S) as answer:
            found = read_json(answer.read().decode())
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise ToolRefused(f"the replay gateway does not answer for a tool: {error}") from None
    return found if isinstance(found, dict) else {}


def _as_returned(result: str, function: Callable[..., Any]) -> Any:
    """Return a recorded text as the original value: by the function's annotation, else as JSON."""
    hints: dict[str, Any] = contained(lambda: get_type_hints(function), dict)
    wanted = hints.get("return", inspect.Signature.empty)
    if wanted is str:
        return result
    try:
        value = read_json(result)
    except ValueError:
        return result
    is_known = wanted not in {inspect.Signature.empty, Any}
    return value if is_known or isinstance(value, (dict, list)) else result
