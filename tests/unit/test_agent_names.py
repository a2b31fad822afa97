from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.inquiry.match_agents import handover_target, match_agent, same_agent, strip_suffix
from analyzer.texts.normalize import SearchText, contains, normalized


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Paris has 2.1 million people.", "paris has 2.1 million  people"),
        ("**1,080.0**", "1080"),
        ("2.50 USD", "2.5 usd"),
        ('"O\u2019Neil"', "o'neil"),
        ("A well-kept_list", "a well kept list"),
    ],
)
def test_texts_that_say_the_same_are_the_same(one: str, other: str) -> None:
    assert normalized(one) == normalized(other)


@pytest.mark.parametrize(
    ("one", "other"), [("-5", "5"), ("2.1", "21"), ("50%", "50"), ("a", "b"), ("1,08", "108")]
)
def test_texts_that_say_something_else_stay_apart(one: str, other: str) -> None:
    assert normalized(one) != normalized(other)


@pytest.mark.parametrize("text", ["it is 450", "450", "450 dollars", "1450 and 450", "about 450.5 or 450"])
def test_a_number_is_found(text: str) -> None:
    assert contains(text, "450")


@pytest.mark.parametrize("text", ["1450", "4501", "450.5", "3.450", ""])
def test_a_number_is_not_found_inside_another(text: str) -> None:
    assert not contains(text, "450")


def test_words_are_found_wherever_they_stand() -> None:
    assert contains(normalized("The answer: Lisbon!"), "lisbon")


@given(st.text("0123 4.,-_%aB\u0130\u00e9", max_size=20), st.text("012.,- aB\u00e9", max_size=6))
def test_looking_for_a_text_in_many_finds_what_folding_each_would(text: str, wanted: str) -> None:
    assert SearchText(normalized(wanted)).is_in(text) == contains(normalized(text), normalized(wanted))


@given(st.text("0123 4.,-_%aB", max_size=20))
def test_plain_texts_are_folded_as_others_are(text: str) -> None:
    assert normalized(text) == normalized(f"{text} \u00e9").removesuffix("\u00e9").rstrip()
