"""Secrets are removed from a whole run: equal ones get equal names, names stay, all are counted."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.analyses.analyst import RunAnalyst
from analyzer.analyses.composition import open_cleaner
from analyzer.analyses.models.scripted import ScriptedModel
from analyzer.inquiry.visible import visible_run
from analyzer.methods.attribution import Attributor
from collector_processor.rebuild.redaction import ALL_KINDS, Cleaner, make_redactor
from collector_processor.settings import SettingsError, load_settings
from semconv.dialects.reading.messages import render_call
from semconv.model import Heard, Step, ToolCall
from tests.runs import calling, hearing, run, step, tool

KEY = "sk-proj-abcdefghijklmnop1234"
RUN = run(
    step("ann@example.org", f"I will write to bob@example.org with {KEY}."),
    tool("mailer", "sent to eve@example.org", input="to: eve@example.org"),
    task="Write to bob@example.org.",
    output="done, bob@example.org has it",
)


def test_equal_secrets_are_called_alike_and_different_ones_are_not() -> None:
    cleaned = Cleaner(make_redactor(ALL_KINDS))(RUN)
    assert cleaned.task == "Write to [e-mail 1]."
    assert cleaned.steps[0].output == "I will write to [e-mail 1] with [key 1]."
    assert cleaned.steps[1].output == "sent to [e-mail 2]"
    assert cleaned.output == "done, [e-mail 1] has it"


def test_names_stay_for_they_are_what_the_trace_is_searched_by() -> None:
    assert Cleaner(make_redactor(ALL_KINDS))(RUN).agents == RUN.agents


def test_what_was_taken_out_is_counted_on_the_run_and_over_all_runs() -> None:
    cleaner = Cleaner(make_redactor(ALL_KINDS))
    cleaned = cleaner(cleaner(RUN))  # what is redacted is not redacted again
    assert cleaned.warnings == ("redacted before the analysis: 1 of keys, 5 of emails",)
    assert {kind: cleaner.count(kind) for kind in cleaner.kinds} == {
        "keys": 1, "tokens": 0, "secrets": 0, "emails": 5, "cards": 0
    }  # fmt: skip


def test_a_run_without_secrets_is_the_same_run() -> None:
    plain = run(step("a", "16 x 10 x 3 = 450"))
    assert Cleaner(make_redactor(ALL_KINDS))(plain) is plain


def test_kinds_are_switched_off_by_settings() -> None:
    cleaned = open_cleaner(load_settings({"BLAMESPAN_REDACT": "keys"}))(RUN)
    assert cleaned.steps[0].output == "I will write to bob@example.org with [key 1]."
    assert open_cleaner(load_settings({"BLAMESPAN_REDACT": "none"}))(RUN) is RUN


def test_own_patterns_come_one_a_line() -> None:
    settings = load_settings({"BLAMESPAN_REDACT_PATTERNS": "EMP-\\d{4}\n(?i)project \\w+"})
    cleaned = open_cleaner(settings)(run(step("a", "EMP-1234 is on Project Raven")))
    assert cleaned.steps[0].output == "[redacted 1] is on [redacted 2]"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("REDACT", "keys,passwords", "expected a list of keys, tokens, secrets, cards, emails, or none"),
        ("REDACT_PATTERNS", "(a", "expected a regular expression in RE2 syntax"),
        ("REDACT_PATTERNS", r"(\w)\1", "expected a regular expression in RE2 syntax"),
        ("REDACT_PATTERNS", "a*", "does not match empty text"),
        ("REDACT_PATTERNS", "a" * 2001, "at most 2000 characters"),
    ],
)
def test_settings_that_cannot_be_are_said(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        load_settings({f"BLAMESPAN_{name}": value})


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"(a|aa)+$", r"(.*a){20}$", r"(x+x+)+y"])
@pytest.mark.timeout(120)
def test_a_catastrophic_pattern_of_the_users_does_not_hang(pattern: str) -> None:
    """``re`` takes 2 ** 30 steps for the first of them on 30 characters."""
    clean = make_redactor((), (pattern,)).for_run()
    clean("a" * 50_000 + "b" + "x" * 50_000)


def test_half_characters_do_not_reach_the_users_patterns() -> None:
    assert make_redactor((), ("secret",)).for_run()("\ud83d secret") == "? [redacted 1]"


async def test_a_model_sees_no_secret_and_may_quote_what_it_was_shown() -> None:
    reply = {"reason": "wrong address", "step": 1, "evidence": [{"step": 1, "quote": "sent to [e-mail 2]"}]}
    model = ScriptedModel(replies=(json.dumps(reply),))
    analyst = RunAnalyst(attributor=Attributor(method="judge", model=model))
    failed = replace(Cleaner(make_redactor(ALL_KINDS))(RUN), is_recorded_conversation=True)
    document = (await analyst.analyse(failed)).document
    assert "[e-mail 2]" in document
    prompt = "".join(message.content for message in model.prompts[0].messages)
    for secret in (KEY, "eve@example.org", "bob@example.org"):
        assert secret not in prompt
        assert secret not in document


def test_what_a_step_heard_and_called_stays_in_place_and_is_counted_once() -> None:
    asked = calling("ann", ("mail", '{"to": "bob@example.org"}'))
    heard = hearing(asked, ("user", f"take {KEY} and eve@example.org"), ("tool", "sent to bob@example.org"))
    (cleaned,) = Cleaner(make_redactor(ALL_KINDS))(run(heard)).steps
    texts = [cleaned.input[one.start : one.end] for one in cleaned.heard]
    assert texts == ["take [key 1] and [e-mail 1]", "sent to [e-mail 2]"]
    assert cleaned.calls[0].arguments == '{"to": "[e-mail 2]"}'
    assert cleaned.output == 'call mail({"to": "[e-mail 2]"})'
    redact = make_redactor(ALL_KINDS).for_run()
    Cleaner(make_redactor(ALL_KINDS))(run(heard), redact)
    assert dict(redact.counts) == {"keys": 1, "emails": 3}


PASSWORD = "Zebra7quilt"
NAMED = (Heard(role="tool", start=0, end=2, author=f"pwd={PASSWORD}"),)


def cleaned_step(one: Step) -> tuple[Step, tuple[str, ...]]:
    """Return a run's only step without secrets, and the run's warnings."""
    cleaned = Cleaner(make_redactor(ALL_KINDS))(run(one))
    return cleaned.steps[0], cleaned.warnings


def test_arguments_are_read_beside_their_tools_name() -> None:
    """The name tells what the option means: ``-p`` of another command is a port or a path."""
    found, warnings = cleaned_step(calling("ann", ("mysql", f"-h db -p{PASSWORD} -u root")))
    assert PASSWORD not in repr(found)
    assert found.output == render_call(found.calls[0])
    assert warnings == ("redacted before the analysis: 1 of secrets",)
    other, _ = cleaned_step(calling("ann", ("grep", "-pattern -u root")))
    assert other.calls[0].arguments == "-pattern -u root"


@pytest.mark.parametrize(
    "hidden",
    [
        step("ann", "On it.", calls=(ToolCall(name="f", arguments=f'{{"password": "{PASSWORD}"}}'),)),
        step("ann", "On it.", failed_evaluations=(f"password={PASSWORD}",)),
        step("ann", "On it.", input="ok", heard=NAMED),
        step("ann", "ok", said=NAMED),
    ],
    ids=["arguments", "evaluation", "author of what it heard", "author of a result"],
)
def test_secrets_that_stand_in_no_text_are_taken_out_and_counted(hidden: Step) -> None:
    found, warnings = cleaned_step(hidden)
    assert PASSWORD not in repr(found)
    assert warnings == ("redacted before the analysis: 1 of secrets",)


@given(
    texts=st.lists(st.sampled_from(["hello", KEY, f"use {KEY} now", "a@example.org", "b@example.org, c"])),
    visible=st.sampled_from(["", "\u200b", "\x1b[31m"]),
)
def test_messages_stay_those_of_the_text_whatever_is_taken_out(texts: list[str], visible: str) -> None:
    given = run(hearing(step("a"), *[("user", f"{visible}{text}") for text in texts]))
    (cleaned,) = visible_run(Cleaner(make_redactor(ALL_KINDS))(given)).steps
    plain = [make_redactor(ALL_KINDS).redact(text) for text in texts]
    unnumbered = [re.sub(r" \d+]", "]", cleaned.input[one.start : one.end]) for one in cleaned.heard]
    assert unnumbered == plain
    assert all(cleaned.input[: one.start].endswith("user: ") for one in cleaned.heard)


def test_invisible_characters_of_arguments_are_taken_out_wherever_they_stand() -> None:
    hidden = ToolCall(name="pay", arguments='{"to": "An\u200bna"}')
    (seen,) = visible_run(run(step("ann", "On it.", calls=(hidden,)))).steps
    assert seen.calls[0].arguments == '{"to": "Anna"}'
