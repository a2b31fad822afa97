"""``python -m benchmarks.accuracy.right_runs``: how many runs are accused without a model.

The runs are written by hand, by authors who had not read the rules; a file is named by the day it was written
and stays as it was. Its first result stands in docs/accuracy.md. Each run goes through OTLP/JSON with the
GenAI conventions, as ``blamespan attribute`` reads it, and is judged alone. A wrong run may name its culprit:
the agent, and the place of the step in ``steps``.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from analyzer.analyses.composition import open_analyst
from analyzer.inquiry.intervals import wilson
from analyzer.recordings.uploads import read_runs
from collector_processor.settings import load_settings
from semconv.model import Blame

_HERE: Final = Path(__file__).parent
_START_NS: Final = 1_790_000_000_000_000_000
_SECOND_NS: Final = 1_000_000_000


def spans_of(run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a run's spans as OTLP/JSON: the root first."""
    trace = hashlib.md5(run["id"].encode(), usedforsecurity=False).hexdigest()
    root = f"{1:016x}"
    error = run.get("root_error_type", "")
    yield _span(trace, root, "", f"invoke_workflow {run['domain']}", 0, len(run["steps"]) + 1, error) | {
        "attributes": _attributes(
            {
                "gen_ai.operation.name": "invoke_workflow",
                "gen_ai.workflow.name": run["domain"],
                "gen_ai.input.messages": _messages([{"role": "user", "text": run["task"]}]),
                **({"gen_ai.output.messages": _messages([_said(run["output"])])} if run["output"] else {}),
            }
        )
    }
    for place, step in enumerate(run["steps"]):
        error = step.get("error_type") or step.get("error", "")
        span = _span(trace, f"{place + 2:016x}", root, "", place + 1, place + 2, error, step.get("error", ""))
        name, attributes = _content(step)
        yield span | {"name": name, "attributes": _attributes(attributes)}


def _content(step: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    agent = step["agent"]
    match step["kind"]:
        case "tool":
            return f"execute_tool {step['tool']}", {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.agent.name": agent,
                "gen_ai.tool.name": step["tool"],
                "gen_ai.tool.call.id": step.get("call_id", ""),
                "gen_ai.tool.call.arguments": json.dumps(step.get("arguments", {}), ensure_ascii=False),
                **({} if step.get("error") else {"gen_ai.tool.call.result": _text(step.get("result", ""))}),
            }
        case "handoff":
            return f"handoff {step['to']}", {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.agent.name": agent,
                "gen_ai.tool.name": f"transfer_to_{step['to']}",
                "gen_ai.tool.call.arguments": "{}",
                "gen_ai.tool.call.result": "transferred",
            }
        case _:
            answer = _said(step.get("said", "")) | {"calls": step.get("calls", [])}
            return "chat model", {
                "gen_ai.operation.name": "chat",
                "gen_ai.agent.name": agent,
                "gen_ai.input.messages": _messages(step.get("heard", [])),
                "gen_ai.output.messages": _messages([answer]),
                **({"gen_ai.system_instructions": step["instructions"]} if step.get("instructions") else {}),
                **_offered(step.get("tools", [])),
            }


def _offered(lines: list[str]) -> dict[str, str]:
    tools = [{"type": "function", "name": line.partition(":")[0], "description": line} for line in lines]
    return {"gen_ai.tool.definitions": json.dumps(tools, ensure_ascii=False)} if tools else {}


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "text": text}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _messages(messages: list[dict[str, Any]]) -> str:
    return json.dumps([_message(message) for message in messages], ensure_ascii=False)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    text = _text(message.get("text", ""))
    if message["role"] == "tool":
        parts: list[dict[str, Any]] = [{"type": "tool_call_response", "response": text}]
    else:
        parts = [{"type": "text", "content": text}] if text else []
    parts += [{"type": "tool_call", **call} for call in message.get("calls", [])]
    named = {"name": message["name"]} if message.get("name") else {}
    return {"role": message["role"], "parts": parts} | named


def _span(  # noqa: PLR0917 - the fields of a span
    trace: str, span: str, parent: str, name: str, start: int, end: int, error: str, message: str = ""
) -> dict[str, Any]:
    exception = {"exception.type": error.partition(":")[0], "exception.message": message or error}
    return {
        "traceId": trace,
        "spanId": span,
        "parentSpanId": parent,
        "name": name,
        "startTimeUnixNano": str(_START_NS + start * _SECOND_NS),
        "endTimeUnixNano": str(_START_NS + end * _SECOND_NS - 1),
        "status": {"code": 2, "message": message or error} if error else {},
        "events": [{"name": "exception", "attributes": _attributes(exception)}] if error else [],
    }


def _attributes(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


def judged(runs: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str, Blame | None, int]]:
    """Yield each run with its status, any blame, and the place of the blamed step in ``steps`` (or -1)."""
    analyst = open_analyst(load_settings({}, directory=_HERE, precision=0.0))
    for run in runs:
        body = {"resourceSpans": [{"scopeSpans": [{"spans": list(spans_of(run))}]}]}
        (trajectory,) = read_runs([json.dumps(body).encode()], lambda each: each)
        analysis = analyst.unasked(trajectory)
        assert analysis is not None
        verdict = analysis.attribution.verdict
        blame = verdict if isinstance(verdict, Blame) else None
        span = trajectory.steps[blame.step].span_id if blame else None
        yield run, analysis.attribution.status, blame, int(span, 16) - 2 if span else -1


def runs_of(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the runs of a file, in order."""
    yield from map(json.loads, gzip.decompress(file.read_bytes()).splitlines())


def main() -> None:
    """Judge all runs of the files, and print those accused and a line a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(_HERE.glob("*.jsonl.gz")))
    for file in parser.parse_args().files:
        counts: Counter[str] = Counter()
        agents = steps = 0
        for run, status, blame, step in judged(runs_of(file)):
            counts[status] += 1
            if blame:
                print(f"{run['id']} {run['language']} {run['kind']}: {status}: {blame.reason}")
                agents += blame.agent == run.get("culprit")
                steps += step == run.get("culprit_step")
        total, accused = counts.total(), counts["attributed"] + counts["suspected"]
        share = wilson(accused, total)
        print(
            f"{file.name}: {accused} of {total} accused [{share.low:.1%}, {share.high:.1%}], "
            f"{agents} with the right agent, {steps} with the right step; {dict(counts)}"
        )


if __name__ == "__main__":
    main()
