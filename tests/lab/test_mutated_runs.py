"""Faulty runs that the benchmark makes of right ones: one change each, blamed on the step that has it."""

from __future__ import annotations

from typing import Any

from benchmarks.accuracy.mutated_runs.__main__ import mutants_of

_ORDER = {
    "id": "FB-0712",
    "metres": 125,
    "price": 43.5,
    "ready": "2026-05-21 14:30",
    "mail": "a@mill.example",
}


def a_run(answer: str) -> dict[str, Any]:
    call = {"id": "call_1", "name": "order_fabric", "arguments": {"code": "CT-077", "metres": 125}}
    return {
        "id": "made-1",
        "domain": "tailor",
        "language": "en",
        "kind": "plain",
        "task": "Order 125 metres of CT-077.",
        "output": answer,
        "steps": [
            {"agent": "buyer", "kind": "llm", "said": "", "calls": [call]},
            {
                "agent": "buyer",
                "kind": "tool",
                "tool": "order_fabric",
                "call_id": "call_1",
                "arguments": call["arguments"],
                "result": _ORDER,
            },
            {"agent": "host", "kind": "llm", "said": answer, "calls": []},
        ],
    }


def test_each_fault_changes_one_thing_and_is_blamed_where_it_is() -> None:
    right = a_run("125 metres are ordered as FB-0712, ready on 21 May at 14:30, for 43.50 EUR.")
    made = dict(mutants_of(right))
    for kind in ("two digits of a figure exchanged", "a date some days off", "one digit of an id changed"):
        mutant = made[kind]
        assert (mutant.agent, mutant.step) == ("host", 2)
        assert mutant.run["output"] == mutant.run["steps"][2]["said"] != right["output"]
        assert mutant.run["steps"][:2] == right["steps"][:2]
    other = made["another amount in a deed"]
    assert (other.agent, other.step) == ("buyer", 0)
    asked = other.run["steps"][0]["calls"][0]["arguments"]["metres"]
    ran = other.run["steps"][1]
    assert asked == ran["arguments"]["metres"] == ran["result"]["metres"] != 125
    assert other.run["output"] == right["output"]


def test_a_deed_that_was_refused_or_never_made_is_blamed_on_its_claim() -> None:
    made = dict(mutants_of(a_run("125 metres are ordered as FB-0712.")))
    refused, unmade = made["a refused deed reported as done"], made["a deed reported that was never made"]
    assert refused.run["steps"][1]["result"]["message"] == "not permitted"
    assert (refused.agent, refused.step) == ("host", 2)
    assert [step["kind"] for step in unmade.run["steps"]] == ["llm"]
    assert (unmade.agent, unmade.step) == ("host", 0)


def test_the_choice_is_the_same_each_time_and_a_figure_of_no_result_is_left_alone() -> None:
    run = a_run("125 metres are ordered as FB-0712.")
    assert dict(mutants_of(run)) == dict(mutants_of(run))
    assert "one digit of a figure changed" not in dict(mutants_of(a_run("About 980 metres, I think.")))
