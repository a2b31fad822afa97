r"""A team of agents that learns what went wrong, and retries from there.

    python examples/retry_with_fix.py                           # the fix is general, by kind of failure
    BLAMESPAN_MODEL=gpt-4o python examples/retry_with_fix.py    # the model writes one for this run

When a run fails, ``blamespan attribute --format json`` says who broke it, at which step, and what to do
instead. The steps before it are kept; from there the team acts again, and the blamed agent has the fix in its
instructions.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

TASK = "What do 12 tickets at 35 and 30 at 14 cost together?"
RIGHT_ANSWER = "840"
ATTEMPTS = 3


@dataclass(frozen=True)
class Agent:
    """Your agent: it reads the conversation so far and replies; ``advice`` is added to its instructions."""

    name: str
    act: Callable[[Sequence[str], str], str]


TEAM = (
    Agent("reader", lambda _said, _advice: "12 tickets at 35, 30 tickets at 14"),
    # Without advice it guesses; with advice it uses its calculator.
    Agent("clerk", lambda _said, advice: f"12 * 35 + 30 * 14 = {12 * 35 + 30 * 14 if advice else 820}"),
    Agent("writer", lambda said, _advice: f"Together they cost {said[-1].rpartition(' ')[2]}."),
)


def main() -> None:
    """Let the team try until its answer is right or there is no advice."""
    turns: list[tuple[str, str]] = [("user", TASK)]
    advice: dict[str, str] = {}
    for attempt in range(1, ATTEMPTS + 1):
        play(turns, advice)
        answer = turns[-1][1]
        print(f"attempt {attempt}: {answer}")
        if RIGHT_ANSWER in answer:
            return
        verdict = attribute(turns)
        if verdict["status"] != "attributed" or not verdict["fix"]:
            raise SystemExit(f"no fix to try: {verdict['reason']}")
        print(f"  step {verdict['step']}, {verdict['agent']}: {verdict['reason']}\n  fix: {verdict['fix']}")
        del turns[max(1, verdict["step"]) :]  # the task is kept; the agent that broke the run acts next
        advice = {verdict["agent"]: verdict["fix"]}
    raise SystemExit("the team could not be helped")


def play(turns: list[tuple[str, str]], advice: dict[str, str]) -> None:
    """Let the remaining agents act: step n is the n-th agent's, after the user's step 0."""
    for agent in TEAM[len(turns) - 1 :]:
        said = [content for _, content in turns]
        turns.append((agent.name, agent.act(said, advice.get(agent.name, ""))))


def attribute(turns: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Ask blamespan who broke a run."""
    history = [{"name": name, "role": "assistant", "content": content} for name, content in turns]
    log = json.dumps({"question": TASK, "history": history})
    command = ["blamespan", "attribute", "-", "--format", "json"]
    said = subprocess.run(command, input=log, capture_output=True, text=True, check=True)  # noqa: S603 - no shell
    verdict: dict[str, Any] = json.loads(said.stdout)
    return verdict


if __name__ == "__main__":
    main()
