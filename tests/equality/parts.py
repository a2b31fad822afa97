"""Hashes of the service's results for a run, one for each part, with default settings and no model.

Each run is analysed as the service does, and again as if triage had found a failure. Carriers and evaluation
logs are decoded from the sent bytes, with the default carriers and with ``BLAMESPAN_CARRIERS=all``. ``now``
is fixed; durations and the version of the rules, which changes with every file, are left out. Records are
hashed with the names of their fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from hashlib import blake2b
from typing import Any, Final

from analyzer.analyses.composition import carrier_policy, kept_texts, open_analyst, open_cleaner
from analyzer.inquiry.verdict import analysis_of
from analyzer.issues.labels.kept_run import Clean, pack, unpack
from analyzer.signals.triage import triage
from collector_processor.core.analysis import Analysis
from collector_processor.core.runs import CleanRun, Run
from collector_processor.otlp import NO_TENANT, Signal
from collector_processor.rebuild.decode import decode, decode_logs
from collector_processor.rebuild.redaction import omit
from collector_processor.settings import load_settings
from collector_processor.writeback.annotate import CarrierPolicy
from collector_processor.writeback.carriers import unpack_place
from collector_processor.writeback.outgoing import Decision, WriteBack, write_back
from semconv import attributes as names
from semconv.model import Status, Trajectory

PARTS: Final = ("steps", "triage", "ranking", "carriers", "logs", "kept", "prose")
"""``prose`` is every reason, fix and explanation; no other part contains any."""
_SAID: Final = ("reason", "fix", "error")
_WRITTEN: Final = tuple(vars(names)[name] for name in vars(names) if name.endswith(("_FIX", "_EXPLANATION")))
"""Keys with prose: in a verdict's JSON, in carriers and in evaluation logs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    analyses: tuple[Callable[[Trajectory], Analysis | None], ...]
    clean: CleanRun
    kept: Clean
    policies: tuple[CarrierPolicy, ...]


def open_line() -> Line:
    """Return the service with default settings; the environment is not read."""
    settings = load_settings({})
    analyst = open_analyst(settings)
    return Line(
        analyses=(analyst.unasked, lambda run: analysis_of(analyst.attributor.at_once(run), run)),
        clean=open_cleaner(settings),
        kept=kept_texts(settings),
        policies=tuple(carrier_policy(each) for each in (settings, load_settings({}, carriers="all"))),
    )


def hashes_of(runs: Iterable[Run], line: Line) -> dict[str, str]:
    """Return one hash for each of ``PARTS`` over all runs; the order of attributes does not matter."""
    clean = [replace(run, trajectory=line.clean(run.trajectory)) for run in runs]
    told = [_parts(run, analyse(run.trajectory), line) for run in clean for analyse in line.analyses]
    texts = {part: json.dumps([each[part] for each in told], sort_keys=True) for part in PARTS}
    return {part: blake2b(text.encode(), digest_size=16).hexdigest() for part, text in texts.items()}


def _parts(run: Run, analysis: Analysis | None, line: Line) -> dict[str, Any]:
    assert analysis is not None, "analysed without a model"
    decision = Decision(
        run=run,
        attribution=replace(analysis.attribution, rules=""),
        document=analysis.document,
        previous=None,
        tenant=NO_TENANT,
        now_ns=1_900_000_000_000_000_000,
    )
    backs = [write_back(decision, policy) for policy in line.policies]
    told = {key: value for key, value in json.loads(analysis.document).items() if key != "duration_s"}
    ranking, verdict = told.pop("ranking"), replace(backs[0].verdict, document="")
    packed = pack(run.trajectory, omit if analysis.attribution.status is Status.NO_FAILURE else line.kept)
    prose: list[Any] = []
    return {
        "steps": _plain(run.trajectory),
        "triage": _without_prose(_plain((triage(run.trajectory), told, verdict)), _SAID, prose),
        "ranking": _plain(ranking),
        "carriers": _without_prose(_plain([_sent(back, Signal.TRACES) for back in backs]), _WRITTEN, prose),
        "logs": _without_prose(_plain([_sent(back, Signal.LOGS) for back in backs]), _WRITTEN, prose),
        "kept": _plain((packed and unpack(packed), backs[0].place and unpack_place(backs[0].place.packed))),
        "prose": prose,
    }


def _sent(back: WriteBack, signal: Signal) -> list[Any]:
    bodies = [sent.body for sent in back.outgoing if sent.signal is signal]
    return [decode(body).spans if signal is Signal.TRACES else decode_logs(body) for body in bodies]


def _without_prose(value: Any, keys: Collection[str], prose: list[Any]) -> Any:
    """Return a plain value without ``keys``, whose values are appended to ``prose`` in order."""
    if isinstance(value, dict):
        prose += [[key, value[key]] for key in keys if key in value]
        return {key: _without_prose(each, keys, prose) for key, each in value.items() if key not in keys}
    return [_without_prose(each, keys, prose) for each in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Return a value as JSON that includes its type and is the same on every machine."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():  # more digits would depend on the machine's ``exp``
            return ["float", f"{value:.12g}"]
        case bytes():
            return ["bytes", value.hex()]
        case Mapping():
            return {key: _plain(each) for key, each in value.items()}
        case tuple() | list():
            return [_plain(each) for each in value]
        case _:
            compared = (field.name for field in fields(value) if field.compare)
            return {name: _plain(getattr(value, name)) for name in compared}
