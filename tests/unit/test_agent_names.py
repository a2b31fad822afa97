from __future__ import annotations

import pytest

from analyzer.inquiry.match_agents import handover_target, match_agent, same_agent, strip_suffix


@pytest.mark.parametrize(
    ("role", "agent"),
    [
        ("Orchestrator (thought)", "Orchestrator"),
        ("Orchestrator (-> WebSurfer)", "Orchestrator"),
        ("Orchestrator (termination condition)", "Orchestrator"),
        ("manager (CodeAgent)", "manager (CodeAgent)"),
        ("(thought)", ""),
    ],
)
def test_only_what_the_agent_was_doing_is_stripped_from_its_name(role: str, agent: str) -> None:
    assert strip_suffix(role) == agent


def test_the_suffix_says_whom_the_agent_hands_over_to() -> None:
    assert handover_target("Orchestrator (-> WebSurfer)") == "WebSurfer"
    assert handover_target("Orchestrator (thought)") is None


def test_spelling_does_not_make_another_agent() -> None:
    assert same_agent("Websurfer", "WebSurfer (thought)")
    assert same_agent("VerificationExpert", "Verification_Expert")
    assert not same_agent("WebSurfer", "FileSurfer")
    assert not same_agent(None, None)
    assert not same_agent("", "")
    assert not same_agent("___", "...")


def test_an_agent_named_in_a_sentence_is_found() -> None:
    agents = ("Orchestrator", "WebSurfer")
    assert match_agent("The WebSurfer, which clicked", agents) == "WebSurfer"
    assert match_agent("WebSurfer and Orchestrator", agents) is None
    assert match_agent("Assistant", agents) is None
    assert match_agent("", agents) is None


def test_the_longer_of_two_nested_names_is_meant() -> None:
    assert match_agent("the Data_Expert", ("Expert", "Data_Expert")) == "Data_Expert"
    assert match_agent("Expert", ("Expert", "Data_Expert")) == "Expert"
