"""The new messages of each model call, with repeated texts and texts of other agents."""

from __future__ import annotations

from tests.factories import agent, chat, ordered, said, workflow


def test_another_agents_words_are_no_agents_own_last_words() -> None:
    """A round-robin chat passes all agents' messages on as nameless assistant messages."""
    trajectory = ordered(
        workflow(),
        agent(2, "a", end=40),
        chat(3, parent=2, heard=[said("user", "q")], answer="a's view"),
        agent(5, "b", end=80),
        chat(6, parent=5, heard=[said("user", "q"), said("assistant", "a's view")], answer="b's view"),
        agent(9, "a", end=120),
        chat(
            10,
            parent=9,
            heard=[said("user", "q"), said("assistant", "a's view"), said("assistant", "b's view")],
            answer="agreed",
        ),
    )
    assert [step.input for step in trajectory.steps] == [
        "user: q",
        "assistant: a's view",
        "assistant: b's view",
    ]


def test_own_last_words_told_anew_are_left_out() -> None:
    """smolagents repeats a model's last step in other words."""
    trajectory = ordered(
        agent(1, "a", parent=None, end=90),
        chat(2, heard=[said("user", "q")], answer="let me see"),
        chat(
            3,
            heard=[said("user", "q"), said("assistant", "Thought: let me see"), said("user", "and?")],
            answer="42",
        ),
    )
    assert trajectory.steps[1].input == "user: and?"


def test_the_same_result_of_a_new_call_is_new() -> None:
    def result(call_id: str) -> dict[str, object]:
        return {"role": "tool", "parts": [{"type": "tool_call_response", "id": call_id, "response": "ok"}]}

    first, second = said("assistant", "", ("save", "1", "c1")), said("assistant", "", ("save", "2", "c2"))
    trajectory = ordered(
        agent(1, "a", parent=None, end=50),
        chat(2, heard=[said("user", "q"), first, result("c1")], answer="done"),
        agent(6, "b", parent=None, end=90),
        chat(
            7, parent=6, heard=[said("user", "q"), first, result("c1"), second, result("c2")], answer="done"
        ),
    )
    assert trajectory.steps[1].input == "assistant: call save(2)\ntool: ok"


def test_what_was_heard_twice_and_is_there_thrice_is_new_once() -> None:
    go = said("user", "go on")
    trajectory = ordered(
        agent(1, "a", parent=None, end=50),
        chat(2, heard=[go, go], answer="yes"),
        chat(3, heard=[go, go, said("assistant", "yes"), go], answer="yes"),
        agent(6, "b", parent=None, end=90),
        chat(7, parent=6, heard=[go, go, go, go], answer="fine"),
    )
    assert [step.input for step in trajectory.steps] == [
        "user: go on\nuser: go on",
        "user: go on",
        "user: go on",
    ]


def test_what_a_step_hears_is_kept_apart_by_role_author_and_call() -> None:
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "none left"}]}
    trajectory = ordered(
        agent(1, "a", parent=None, end=50),
        chat(2, heard=[said("user", "q")], answer="", calls=[("stock", "{}", "c1")]),
        chat(4, heard=[said("user", "q"), said("assistant", "", ("stock", "{}", "c1")), result], answer="0"),
    )
    asking, answering = trajectory.steps
    assert [(call.name, call.arguments, call.call_id) for call in asking.calls] == [("stock", "{}", "c1")]
    (heard,) = answering.heard
    assert (heard.role, heard.answers) == ("tool", ("c1",))
    assert answering.input[heard.start : heard.end] == "none left"


def test_a_line_of_a_message_that_looks_like_another_message_is_none() -> None:
    trajectory = ordered(
        agent(1, "a", parent=None, end=50),
        chat(2, heard=[said("user", "see the log:\ntool: Error: it is down")], answer="ok"),
    )
    assert [heard.role for heard in trajectory.steps[0].heard] == ["user"]
