"""Answers: where a failed one came from, and what is read of one with markup or data."""

from __future__ import annotations

import json
import time

import pytest

from analyzer.methods.without_model import judge_by_signals
from analyzer.signals.faults import root_error
from analyzer.signals.registry import findings
from analyzer.signals.suspicion import Clue, ClueKind, clues
from analyzer.signals.suspicion.answer_parts import Part, parts_of, quotations
from analyzer.texts.normalize import normalized
from analyzer.texts.run_view import final_answer, read
from semconv.model import Blame, SpanStatus, Step, Trajectory
from tests.runs import calling, failed_tool, run, step, tool


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("Paris has 2.1 million people", "Paris has 2.1 million people."),
        ("PARIS has\n2,100,000 people", "**Paris** has 2100000 people"),
        ("Paris has 2,100,000 people", "Paris has 2.1 million people"),
        ("Paris has 2.1 million people", "Paris has 2,100,000 people"),
    ],
)
def test_an_answer_that_a_tool_gave_is_no_unsupported_claim(given: str, said: str) -> None:
    trajectory = run(tool("reader", given), step("reader", said), task="How many people live in Paris?")
    assert not [f for f in findings(read(trajectory)) if f.signal == "unsupported_figure"]
    if normalized(given) == normalized(said):
        assert not [f for f in findings(read(trajectory)) if f.signal == "answer_origin"]


def ended(error: str, *steps: Step) -> Trajectory:
    return run(*steps, root_status=SpanStatus.ERROR, root_error=error)


def marked(trajectory: Trajectory) -> list[int]:
    return [finding.step for finding in root_error(read(trajectory))]


def test_a_root_error_that_repeats_a_steps_error_marks_that_step() -> None:
    refused = failed_tool("mailer", "SMTPError: refused", "mail")
    assert marked(ended("run failed: SMTPError refused", step("a", "x"), refused, step("b", "y"))) == [
        read(run(step("a", "x"), refused, step("b", "y"))).responsible_steps[1]
    ]


def test_a_root_error_that_names_an_agent_marks_its_last_step() -> None:
    steps = (step("planner", "x"), step("booker", "y"), step("writer", "z"))
    assert marked(ended("agent booker gave up", *steps)) == [1]


def test_a_root_error_that_speaks_of_no_step_marks_the_last() -> None:
    verdict = judge_by_signals(
        ended("boom", tool("reader", "2.1 million people"), step("reader", "2.1 million people."))
    )
    assert isinstance(verdict, Blame)
    assert (verdict.step, verdict.mode) == (1, "unhandled_error")
    assert "boom" in verdict.reason


def test_a_root_error_that_judges_the_answer_marks_no_step() -> None:
    assert marked(ended("AssertionError: expected 480", step("a", "x"), step("b", "450"))) == []


def test_a_root_without_an_error_marks_no_step() -> None:
    assert marked(run(step("a", "x"), step("b", "y"))) == []


def origins(*steps: Step, output: str, task: str = "task?") -> list[int]:
    """Return the steps in which, according to the signals, the answer first appears."""
    found = findings(read(run(*steps, output=output, task=task)))
    return [finding.step for finding in found if finding.signal == "answer_origin"]


class TestAnswersInProse:
    PROSE = (
        "I agree with all of it. After careful verification the command that was fixed is **BaseBagging**."
    )

    def test_what_prose_sets_off_is_its_answer(self) -> None:
        steps = (step("a", "I looked."), step("b", "It is BaseBagging."), step("c", self.PROSE))
        assert origins(*steps, output=self.PROSE) == [1]

    def test_that_a_closing_speech_is_the_last_accuses_nobody(self) -> None:
        speech = "It seems that we have all agreed that the information is accurate and the task complete."
        assert origins(step("a", "It is 4."), step("b", speech), output=speech) == []

    def test_a_short_sentence_with_a_figure_is_an_answer_as_it_stands(self) -> None:
        told = "Good news for all of us: the new panels on the roof will save about 9,266.14 euros a year."
        assert origins(step("a", "I looked."), step("b", told), output=told) == [1]

    def test_headings_are_no_answers(self) -> None:
        report = "**Plan:** " + "we went through all the steps that the manager had given us. " * 2
        assert origins(step("a", f"**Plan:** {report}"), output=report) == []

    def test_a_long_report_has_no_single_answer(self) -> None:
        report = "These are the things that we found out about the places that you asked for: " + " ".join(
            f"**Place {letter * 3}**" for letter in "abcdef"
        )
        assert origins(step("a", report), output=report) == []

    def test_what_ends_a_conversation_is_no_part_of_the_answer(self) -> None:
        steps = (step("a", "Honolulu, Quincy"), step("b", "Honolulu, Quincy\n\nTERMINATE"))
        assert origins(*steps, output="Honolulu, Quincy\n\n**TERMINATE**") == [0]
        assert final_answer(run(step("a", "It is 4."), step("b", "TERMINATE"))) == "It is 4."

    def test_the_numbers_of_code_links_and_paths_are_no_claims(self) -> None:
        addresses = "https://host.example/2023?id=4209 or ../2023/file-9163/x.csv"
        answer = f"See {addresses}:\n```python\nn = 777\n```\nIt is 88."
        found = findings(read(run(step("a", answer), output=answer, task="task?")))
        assert ["88" in f.reason for f in found if f.signal == "unsupported_figure"] == [True]


FLOODED = "The vault of Saint Anne was flooded twice in the spring of this year."
ENTRY = {"id": "VLT-318", "entry": FLOODED, "level_cm": 4310}
LOG = tool("keeper", json.dumps(ENTRY), target="read_log")


def against(answer: str, kind: ClueKind = ClueKind.UNSOURCED, log: Trajectory | None = None) -> list[Clue]:
    """Return the clues of a kind against an answer about the flooded vault."""
    steps = log.steps if log is not None else (LOG,)
    trajectory = run(*steps, step("keeper", answer), task="What happened in the vault?", output=answer)
    return [clue for clue in clues(read(trajectory)) if clue.kind is kind]


OWN = "Water came into the vault two times last spring"
STATES = f'{{"said": "{OWN}", "states": "{OWN}, says the summary", "id": "VLT-318"}}'


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(json.dumps({"summary": OWN, "report": OWN, "said": OWN}), id="json"),
        pytest.param(json.dumps({"summary": f"{OWN}\nVLT-318", "mark": "é "}), id="escapes"),
        pytest.param(json.dumps([{"quote": OWN}, {"wrote": [OWN, OWN]}]), id="json list"),
        pytest.param(f"```json\n{STATES}\n```", id="fenced"),
        pytest.param(f"Here is what the log says:\n\n```json\n{STATES}\n```", id="fenced with words"),
        pytest.param(f"The log says {STATES} as you asked.", id="within text"),
        pytest.param(json.dumps({"answer": json.dumps({"said": OWN})}), id="json in json"),
        pytest.param(f"{{'said': '{OWN}', 'writes': \"{OWN}\"}}", id="python"),
        pytest.param(f'Report(said="{OWN}", states="{OWN}")', id="python record"),
        pytest.param(f'said="{OWN}" states="{OWN}"', id="python record without brackets"),
        pytest.param(f'{{"said": "{OWN}", "states": "{OWN}', id="cut short"),
        pytest.param(f'<note said="{OWN}"><log states="{OWN}">Flooded</log></note>', id="xml"),
        pytest.param(f'---\nsaid: "{OWN}"\nstates: "{OWN}"\n---\nFlooded.', id="front matter"),
        pytest.param(f'# The log says\n\n## "{OWN}"\n\nFlooded.', id="heading"),
        pytest.param(f'| says | "{OWN}" |\n|---|---|\n| log | wet |', id="table"),
        pytest.param(f'The log says that it is wet: `print("{OWN}")`.', id="code span"),
        pytest.param(f'print("{OWN}")\nlog.says("{OWN}")\nsaid = "{OWN}"', id="code"),
        pytest.param(f"A title for your post: “{OWN}”.", id="title"),
        pytest.param(f'I suggest the headline "{OWN}" in bold.', id="headline"),
        pytest.param(f"“{OWN}” — short and clear, with the place first", id="title with a remark"),
        pytest.param(f"> {OWN}", id="block quote that nobody introduces"),
        pytest.param(f"Voici un titre : « {OWN} ».", id="French title"),
        pytest.param(f"Ein Titel wäre „{OWN}“.", id="German title"),
        pytest.param("标题是“今年春天圣安妮地下室两次进水的故事”。", id="Chinese title"),
    ],
)
def test_texts_of_data_titles_and_code_are_no_quotations(answer: str) -> None:
    assert against(answer) == []


INVENTED = "the vault stayed dry in all of the spring"


@pytest.mark.parametrize(
    "answer",
    [
        f'The log says: "{INVENTED}".',
        f"According to the log, “{INVENTED}”.",
        f"“{INVENTED},” wrote the keeper.",
        f"“{INVENTED}” — Anne Cordier, keeper",
        f"The log says:\n\n> {INVENTED}\n> and later too.",
        json.dumps({"summary": f'The log states that "{INVENTED}".'}),
        f"Im Protokoll steht: „{INVENTED}“.",
        f"El diario dice: «{INVENTED}».",
        f"Le registre indique : « {INVENTED} ».",
        f'В журнале написано: "{INVENTED}".',  # noqa: RUF001 - Russian
    ],
)
def test_a_quotation_that_is_introduced_as_one_is_looked_up(answer: str) -> None:
    (clue,) = against(answer)
    assert clue.reason.startswith("gave the quotation the vault stayed dry")


@pytest.mark.parametrize(
    ("entry", "answer", "count"),
    [
        pytest.param("地下室今年两次进水", "日志写道:“地下室今年完全保持干燥”。", 1, id="zh"),
        pytest.param("地下室今年两次进水", "日志写道:“地下室今年两次进水”。", 0, id="ok"),
        pytest.param("地下室は二度浸水した", "記録によると「地下室はずっと乾いていた」。", 1, id="ja"),
        pytest.param("地下室は二度浸水した", "記録によると「地下室は二度浸水した」。", 0, id="ja ok"),
    ],
)  # fmt: skip
def test_scripts_without_blanks_have_quotations_too(entry: str, answer: str, count: int) -> None:
    assert len(against(answer, log=run(tool("keeper", entry)))) == count


@pytest.mark.parametrize(
    "answer",
    [
        'The log says: "The vault of Saint Anne was flooded twice in the spring of this year."',
        'The log says that "the vault … was flooded twice in the spring".',
        'The log says that "the vault [of Saint Anne] was flooded twice".',
        "According to the log, “the vault of **Saint Anne** was flooded twice”.",
        "Im Protokoll steht: „Das Gewölbe war im Frühling nicht nass, und das zwei Mal“.",
    ],
)
def test_what_is_quoted_shortened_or_translated_is_no_clue(answer: str) -> None:
    assert against(answer) == []


def test_what_an_agent_wrote_itself_may_be_quoted() -> None:
    words = "Please keep the vault of the chapel closed until the pump has run"
    given = json.dumps({"text": words})
    done = tool("keeper", "sent", target="send", input=given)
    sent = run(calling("keeper", ("send", given)), done, LOG, step("warden", f"{words}."))
    assert against(f'My note says "{words}".', log=sent) == []


def test_figures_and_ids_of_data_are_checked() -> None:
    wrong = {"level_cm": 4130, "entry": "flooded"}
    assert len(against(json.dumps(wrong), ClueKind.WRONG_FIGURE)) == 1
    assert len(against(f"```json\n{json.dumps(wrong)}\n```", ClueKind.WRONG_FIGURE)) == 1
    assert against(json.dumps({"level_cm": 4310}), ClueKind.WRONG_FIGURE) == []
    assert len(against(json.dumps({"id": "QRX-55218", "see": "https://vaults.example/9"}))) == 1
    assert against(json.dumps({"AB-1234": "VLT-318"})) == []


def test_data_beside_a_longer_explanation_may_be_an_example() -> None:
    example = '```json\n{"level_cm": 9876}\n```'
    words = "The vault was flooded. A reading can be sent to the archive in this form, for any other year:"
    assert against(f"{words}\n\n{example}", ClueKind.WRONG_FIGURE) == []


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        ('{"a": {"b": "x\\ny \\u00e9"}, "c": ["d", 1, null]}', [("b", "x\ny é"), ("c", "d")]),
        ('So: {"a": "b"} and on.', [("", "So: "), ("a", "b"), ("", " and on.")]),
        ("[link](https://a.example) and [1] it", [("", "[link](https://a.example) and "), ("", " it")]),
        ("Reply(title='x', more=More(y=\"z\"))", [("title", "x"), ("y", "z")]),
        ('{"a": "{\\"b\\": \\"c\\"}"}', [("b", "c")]),
        ("---\ntitle: 'x'\n---\nText", [("title", "x"), ("", "Text")]),
        ("{not data} but (text)", [("", "{not data} but (text)")]),
        ("", []),
    ],
)
def test_the_parts_of_an_answer_are_its_prose_and_the_texts_of_its_data(
    answer: str, parts: list[tuple[str, str]]
) -> None:
    assert parts_of(answer) == tuple(Part(text=text, key=key) for key, text in parts)


@pytest.mark.parametrize("piece", ["{", "[{", '["', "A(b=", '"', "`", "<a ", "\\", "> a\n", "“", "{'", "- "])
def test_the_time_is_linear_in_the_text(piece: str) -> None:
    text = piece * (20_000 // len(piece))
    began = time.process_time()
    list(quotations(text))
    assert time.process_time() - began < 1.0
