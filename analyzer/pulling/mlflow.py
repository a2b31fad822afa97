"""MLflow: the newest traces of an experiment, then their spans, some at a time. Pure.

Spans are read from the tracking store, where servers keep them today; of older traces only the artifact
has them, and the API leaves those out.
Source: mlflow 3.17 (2026), ``server/handlers.py`` and ``store/tracking/rest_store.py``.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final
from urllib.parse import quote

from analyzer.pulling.backend import (
    Ask,
    Backend,
    Conversation,
    Found,
    Page,
    PullFailed,
    Wanted,
    batches,
    identity,
    listed,
    paged,
)
from analyzer.recordings.mlflow_traces import MLFLOW as FORMAT
from collector_processor.core.credentials import MLFLOW_VARIABLES, mlflow_credentials

_API: Final = "api/3.0/mlflow/traces"
_BY_NAME: Final = "api/2.0/mlflow/experiments/get-by-name"
_MOST: Final = 500
"""Largest page of the API."""
_DEFAULT: Final = "0"
"""The id of the experiment ``Default``."""


def pull_mlflow(wanted: Wanted) -> Conversation:
    """Ask for the newest traces of an experiment, which is given by its name, or by its id in digits."""
    experiment = yield from _experiment(wanted.project or _DEFAULT)
    asked: dict[str, Any] = {
        "locations": [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}],
        "order_by": ["timestamp_ms DESC"],
    }
    if wanted.since_ns is not None:
        asked["filter"] = f"trace.timestamp_ms >= {wanted.since_ns // 10**6}"

    def ask(token: str, left: int) -> Ask:
        size = {"max_results": min(left, _MOST), **({"page_token": token} if token else {})}
        return Ask(path=f"{_API}/search", body=asked | size)

    def read(answer: Any) -> Page:
        items = {identity(one, "trace_id"): one for one in listed(answer, "traces")}
        return Page(items=items, cursor=answer.get("next_page_token"))

    def use(traces: Mapping[str, Any]) -> Conversation:
        for batch in batches([*traces]):
            held = yield Ask(path=f"{_API}/batchGet", query=[("trace_ids", each) for each in batch])
            yield from _found(experiment, batch, listed(held, "traces"))

    yield from paged("traces", ask, read, use, wanted.limit)


def _experiment(project: str) -> Generator[Ask, Any, str]:
    if project.isascii() and project.isdigit():
        return project
    answer = yield Ask(path=_BY_NAME, query=[("experiment_name", project)])
    found = answer.get("experiment") if isinstance(answer, Mapping) else None
    if not isinstance(found, Mapping):
        raise PullFailed("unexpected answer: expected an object under 'experiment'")
    return identity(found, "experiment_id")


def _found(experiment: str, asked: Any, traces: list[Mapping[str, Any]]) -> Conversation:
    whole = [trace for trace in traces if trace.get("spans")]
    if whole:
        page = f"#/experiments/{quote(experiment, safe='')}/traces?selectedEvaluationId="
        yield Found(
            records=whole, links={each.removeprefix("tr-"): f"{page}{quote(each, safe='')}" for each in asked}
        )


MLFLOW: Final = Backend(
    name="mlflow",
    file_format=FORMAT,
    pull=pull_mlflow,
    credentials=mlflow_credentials,
    variables=MLFLOW_VARIABLES,
)
