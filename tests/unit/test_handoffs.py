"""Agents identified by the names that tools and spans have for them."""

from __future__ import annotations

import pytest

from collector_processor.trajectory.agents import Agents
from tests.factories import agent, chat, ordered, outline, said, tool, workflow

NAMES = ("Triage Agent", "Événements", "研究员", "搜索员", "ops (EU)", "🚀")


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("Triage Agent", "Triage Agent"),
        ("triage_agent", "Triage Agent"),
        ("ops__eu_", "ops (EU)"),
        ("_v_nements", "Événements"),
        ("研究员", "研究员"),
        ("nobody", None),
        ("", None),
        ("___", None),  # three agents are spelled like this
    ],
)
def test_an_agent_is_found_however_it_is_spelled(spelled: str, meant: str | None) -> None:
    assert Agents(NAMES).find(spelled) == meant


def test_of_agents_spelled_alike_the_likely_one_is_meant() -> None:
    agents = Agents(NAMES)
    assert agents.find("___", likely="研究员") == "研究员"
    assert agents.find("___", likely="Triage Agent") is None
    assert Agents(["a b", "a_b"]).find("a b") == "a b"


def test_a_transfer_to_an_agent_whose_name_no_tool_can_have_is_seen() -> None:
    """Tool names are ASCII: openai-agents turns ``研究员`` into ``transfer_to____``."""
    asked = said("assistant", "", ("transfer_to____", "{}", "c1"))
    done = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "ok"}]}
    trajectory = ordered(
        workflow(),
        agent(2, "前台", end=50),
        chat(3, parent=2, calls=[("transfer_to____", "{}", "c1")]),
        agent(6, "研究员", end=90),
        chat(7, parent=6, heard=[said("user", "q"), asked, done], answer="好"),
    )
    assert outline(trajectory) == [("前台", "llm"), ("前台", "handoff"), ("研究员", "llm")]
    assert trajectory.steps[1].target == "研究员"


def test_a_nameless_handoff_means_nobody_even_where_an_agents_name_has_no_letter() -> None:
    trajectory = ordered(
        workflow(),
        agent(2, "🚀", end=50),
        chat(3, parent=2, calls=[("search", "{}", "c1")]),
        tool(4, "search", parent=2, call_id="c1"),
    )
    assert outline(trajectory) == [("🚀", "llm"), ("🚀", "tool")]
