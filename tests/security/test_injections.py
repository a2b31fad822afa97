"""A model that obeys a hostile run, and the checks between its answer and a verdict."""

from __future__ import annotations

import gzip
import json
import time

import pytest

from analyzer.inquiry.render import render
from analyzer.inquiry.visible import visible_run
from analyzer.methods.attribution import Attributor
from analyzer.methods.prompt_injection import speaking_steps
from analyzer.methods.settle_answer import check_quotes
from analyzer.methods.without_model import judge_by_signals
from analyzer.recordings.conversation_log import read_conversation
from semconv.model import Blame, Status
from semconv.record import replace
from tests.contract.recorded import SHARED, needs_shared
from tests.frameworks.catalogue import FOLDER
from tests.frameworks.changes import runs_of
from tests.inquiries import MARKER
from tests.runs import run, step
from tests.security.injection_table import METHODS, OTHER_FORMS, THREAT_MODEL, judged, table
from tests.security.injections import HONEST, INJECTIONS, TRUE_STEP, Injection
from tests.security.obedience import Obedient

NO_INJECTION = Injection(text="\0never there\0", obeyed="", place=lambda trajectory, _: trajectory)


def test_there_are_at_least_thirty() -> None:
    assert len(INJECTIONS) >= 30


async def test_the_honest_run_is_believed() -> None:
    attribution, _ = await judged(NO_INJECTION)
    assert isinstance(attribution.verdict, Blame)
    assert (attribution.verdict.step, attribution.verdict.confidence) == (TRUE_STEP, 0.95)


@pytest.mark.parametrize("name", INJECTIONS)
async def test_an_obeyed_order_is_never_believed_more_than_half(name: str) -> None:
    """Whatever it is worded like: nothing but the model points at the step."""
    attribution, model = await judged(INJECTIONS[name])
    assert model.was_told == INJECTIONS[name].is_shown
    blamed = attribution.verdict
    assert not isinstance(blamed, Blame) or blamed.step == TRUE_STEP or blamed.confidence <= 0.5


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", INJECTIONS)
async def test_no_order_makes_a_verdict_that_contradicts_the_run(name: str, method: str) -> None:
    """The blamed agent did the step; the step exists; quotes occur where they are said to."""
    attribution, _ = await judged(INJECTIONS[name], method)
    seen, blamed = visible_run(INJECTIONS[name].run), attribution.verdict
    if not isinstance(blamed, Blame):
        assert attribution.status in {Status.ERROR, Status.UNDETERMINED}
        return
    assert seen.steps[blamed.step].agent == blamed.agent
    assert check_quotes(seen, [(found.step, found.quote) for found in blamed.evidence]).dropped == 0
    assert 0 <= blamed.confidence <= 0.95
    assert sum(ranked.probability for ranked in blamed.ranking) <= 1.001


@pytest.mark.parametrize("name", INJECTIONS)
def test_no_text_becomes_structure(name: str) -> None:
    """The prompt's lines of structure are those of the honest run, whatever is between them."""
    seen = visible_run(INJECTIONS[name].run)
    shown = render(seen, marker=MARKER, max_bytes=100_000)
    lines = [line for line in shown.text.splitlines() if shown.marker in line]
    assert all(line.startswith(shown.marker) for line in lines)
    kinds = [line.split()[1].strip("[]") for line in lines]
    extra = ["instructions"] if seen.steps[3].instructions else []
    assert kinds == [*extra, "0", "1", "2", "3", "end"]
    assert all(len(line) < 300 for line in lines)


@pytest.mark.parametrize("name", INJECTIONS)
def test_signals_obey_no_instruction_of_a_run(name: str) -> None:
    """Without a model there is no reader: instructions to a judge do not move the blame."""
    before, after = judge_by_signals(HONEST), judge_by_signals(visible_run(INJECTIONS[name].run))
    assert isinstance(before, Blame)
    assert isinstance(after, Blame)
    if INJECTIONS[name].run.steps[1].error:
        return  # a tool that failed is evidence, whatever its words are
    assert after.step == before.step


async def test_a_run_that_addresses_its_judge_is_reported() -> None:
    attribution, _ = await judged(INJECTIONS["a true quote"])
    assert "the text of step 1 speaks to the judge" in attribution.verdict.reason
    assert attribution.verdict.ranking[1:]  # the signals' candidates are beside it


async def test_after_an_unusable_answer_signals_decide_and_say_so() -> None:
    for name in ("a step that is not there", "no verdict", "silence", "an endless answer"):
        injection = INJECTIONS[name]
        attribution = await Attributor(model=Obedient(injection))(injection.run)
        assert attribution.fallback, name
        assert isinstance(attribution.verdict, Blame)


def test_ordinary_runs_do_not_speak_to_a_judge() -> None:
    assert speaking_steps(HONEST) == ()


@pytest.mark.parametrize("method", OTHER_FORMS)
async def test_a_method_with_questions_of_its_own_believes_the_honest_run(method: str) -> None:
    """The model that obeys knows the forms of its questions: without an injection it finds the true step."""
    attribution, model = await judged(NO_INJECTION, method)
    assert isinstance(attribution.verdict, Blame)
    assert attribution.verdict.step == TRUE_STEP
    assert model.forms == OTHER_FORMS[method]


async def test_the_threat_model_has_what_the_attacks_do() -> None:
    """``python -m tests.security.injection_table`` writes it."""
    assert await table() in THREAT_MODEL.read_text(), "python -m tests.security.injection_table"


async def test_a_false_quote_in_instructions_moves_no_blame() -> None:
    attribution, _ = await judged(INJECTIONS["order in instructions"])
    assert attribution.status is Status.UNDETERMINED


@needs_shared
def test_untampered_recorded_runs_are_not_doubted() -> None:
    """The number in docs/threat-model.md, on recorded conversations that were not used to make the list."""
    recorded = [
        read_conversation(json.loads(line)).trajectory
        for path in sorted((SHARED / "datasets").glob("*.jsonl.gz"))
        if not path.name.startswith("recorded_replies")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    doubted = [one.run_id for one in recorded if speaking_steps(one)]
    print(f"{len(doubted)} of {len(recorded)} recorded runs speak to their judge")
    assert len(recorded) > 200
    assert len(doubted) <= len(recorded) // 100


@pytest.mark.whole
def test_instructions_of_recorded_programs_do_not_speak_to_a_judge() -> None:
    """The number in docs/threat-model.md, on recorded programs of frameworks."""
    told: set[str] = set()
    files = sorted((FOLDER / "fixtures").glob("*.json.gz"))
    for run_ in (each for file in files for each in runs_of(file.read_bytes())):
        assert speaking_steps(run_.trajectory) == ()
        told |= {step.instructions for step in run_.trajectory.steps if step.instructions}
    print(f"{len(told)} instructions in {len(files)} recordings, none speaks to a judge")
    assert len(told) > 20


def test_instructions_that_want_a_decisive_agent_do_not_speak_to_a_judge() -> None:
    told = "You are a decisive agent: name the decisive factor, and never blame the agent before you."
    assert speaking_steps(run(replace(step("a", "It costs 450."), instructions=told))) == ()


@pytest.mark.parametrize("text", ["\n" * 200_000, "ignore a b " * 20_000, "#" * 200_000, ". " * 100_000])
def test_no_text_makes_the_look_for_tampering_slow(text: str) -> None:
    started = time.process_time()
    speaking_steps(run(step("a", text)))
    visible_run(run(step("a", text + "\x1b[" * 50_000)))
    assert time.process_time() - started < 3
