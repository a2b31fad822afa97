"""Labels over HTTP: what a person says of a verdict, sent by a page or a program.

A browser will send a request that changes something here for any page that asks it
to: only its answer is kept from that page. ``guard.py`` refuses what a browser says
is from elsewhere; for browsers that do not say, such a request must be JSON by its
content type, which a foreign page may not send without our leave (we give none).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import web

from analyzer.labels import Label, LabelKind, LabelRefused, Said, to_json
from analyzer.labels.labelling import Given
from collector_processor.otlp import Tenant
from collector_processor.stored import StoredVerdict
from collector_processor.stores import StoreError

_JSON: Final = "application/json"
_EXPECTED: Final = 'expected {"agent": NAME, "step": N}, either or both, or {"failed": false}\n'

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
FindOne = Callable[[web.Request], Awaitable[StoredVerdict]]
"""Returns the run that a request's path means, for the tenant that it bears; else raises a 404 or 409."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Giving labels, and reading them back."""

    give: Callable[[StoredVerdict, Said], Awaitable[Given]]
    of: Callable[[Tenant, str], Awaitable[Sequence[Label]]]


def label_routes(labels: Labels, find: FindOne) -> list[web.RouteDef]:
    """Return the routes by which labels come in."""
    return [
        web.post("/api/runs/{run_id}/label", _giving(labels, find, read_said)),
        web.post("/api/runs/{run_id}/confirm", _giving(labels, find, _always(LabelKind.CONFIRMED))),
        web.post("/api/runs/{run_id}/reject", _giving(labels, find, _always(LabelKind.REJECTED))),
    ]


def read_said(document: object) -> Said:
    """Read what a label says.

    Raises:
        ValueError: it says nothing of the kind.
    """
    if not isinstance(document, Mapping) or not document or document.keys() - {"agent", "step", "failed"}:
        raise ValueError(_EXPECTED)
    agent, step, failed = document.get("agent"), document.get("step"), document.get("failed", True)
    is_step = step is None or (isinstance(step, int) and not isinstance(step, bool))
    if not (agent is None or isinstance(agent, str)) or not is_step or not isinstance(failed, bool):
        raise ValueError(_EXPECTED)
    names_something = agent is not None or step is not None
    if names_something is not failed:
        raise ValueError(_EXPECTED)
    return Said(kind=LabelKind.CORRECTED if failed else LabelKind.NOT_A_FAILURE, agent=agent, step=step)


def _always(kind: LabelKind) -> Callable[[object], Said]:
    return lambda _document: Said(kind=kind)


def _giving(labels: Labels, find: FindOne, read: Callable[[object], Said]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        if request.content_type != _JSON:
            raise web.HTTPUnsupportedMediaType(text=f"expected Content-Type: {_JSON}\n")
        body = await request.read()  # bounded by the application
        try:
            said = read(json.loads(body) if body.strip() else None)
        except (ValueError, RecursionError):
            raise web.HTTPBadRequest(text=_EXPECTED) from None
        verdict = await find(request)
        try:
            given = await labels.give(verdict, said)
        except LabelRefused as refusal:
            raise web.HTTPUnprocessableEntity(text=f"{refusal}\n") from refusal
        except StoreError as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from error
        return web.json_response(given.to_json())

    return handle


def label_document(said: Sequence[Label]) -> Mapping[str, Any]:
    """Return what the API adds to a run: the label that counts, and the earlier ones, newest first."""
    documents = [to_json(label) for label in said]
    return {"label": documents[0] if documents else None, "earlier_labels": documents[1:]}
