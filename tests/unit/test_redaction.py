"""Secrets are recognised in any notation and any place; evidence stays."""

from __future__ import annotations

import base64
import json
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.hostile.redaction import PLACES, SHAPES, WRITINGS, leaks, make
from collector_processor.core.patterns import compile_rule
from collector_processor.rebuild.redaction import ALL_KINDS, Cleaner, Redactor, make_redactor, redact
from collector_processor.rebuild.secret_rules import all_rules
from collector_processor.rebuild.unescape import placed_readings, readings

PIECES = (
    "sk-proj-abcdefghijklmnop1234", "AKIAIOSFODNN7EXAMPLE", "bearer ", "abc.def-ghi_jkl=", "authorization: ",
    "basic ", "eyJhbGciOiJI", ".eyJzdWIiOiIx", ".sig", "password", ": ", "=", "hunter2hunter", "ann@lee.uk",
    "4111 1111 ", "1111 1111", "https://", "me:secret@", "host", " ", "\n", "-----BEGIN PRIVATE KEY-----",
    "\nMIIE", "\n-----END PRIVATE KEY-----", "says nothing", "\ud83d", "K", "\u017f", "\\", '\\"', "\\n",
    "\\u0040",     "%40", "%2", "&#64;", "=40", "=\n", "\u200b", "\u00a0", "[key 1]",
    "[secret", "cGFzc3dvcmQ6IGh1bnRlcjJodW50ZXI=",
)  # fmt: skip
"""Secrets, halves of them, escapes, and what may separate them."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("use sk-proj-abcdefghijklmnop1234 please", "use [key] please"),
        ("AKIAIOSFODNN7EXAMPLE is the id", "[key] is the id"),
        ("Authorization: Bearer abc.def-ghi_jkl=", "Authorization: Bearer [token]"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.sig", "jwt [token]"),
        ('{"password": "hunter2hunter"}', '{"password": "[password]"}'),
        ("write to ann.lee+x@example.co.uk now", "write to [e-mail] now"),
        ('write to "Ann Lee"@example.org now', "write to [e-mail] now"),
        ("card 4111 1111 1111 1111 ok", "card [card number] ok"),
        ("card 4111 1111 1111 1111 12/29 ok", "card [card number] 12/29 ok"),
        ("card4111.1111.1111.1111 ok", "card[card number] ok"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----!", "[private key]!"),
        ("postgres://app:hunter2@db/x", "postgres://[password]@db/x"),
        ("github_pat_11ABCDEFG0abcdefghijkl_mn", "[key]"),
        ("gho_abcdefghijklmnopqrst", "[key]"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[secret]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [token]"),
        ("-----BEGIN PRIVATE KEY----- it was the writer", "[private key] it was the writer"),
        ("-----BEGIN PRIVATE KEY-----\\nMIIE==\\n-----END PRIVATE KEY-----\\nso", "[private key]\\nso"),
        (
            "1\t-----BEGIN EC PRIVATE KEY-----\n2\t" + "MHcCAQEE" * 8 + "\n3\tAwEHoUQ=\n4\t"
            "-----END EC PRIVATE KEY-----\n5\tthe writer forgot it",
            "1\t[private key]\n5\tthe writer forgot it",
        ),
        (
            "-----BEGIN PRIVATE KEY-----\n1: the writer erred\n2: again",
            "[private key]\n1: the writer erred\n2: again",
        ),
        ("Set-Cookie: sid=31d4d96e407aad42fe1d; Path=/", "Set-Cookie: sid=[token]; Path=/"),
        ("Cookie: a=" + "31d4d96e407aad42fe1d" * 60 + "; b=1", "Cookie: a=[token]; b=1"),
        ("Authorization: Token cf9f575f23c315773542", "Authorization: Token [token]"),
        ("it is sk\\_live\\_abcdefghijklmnop1234.", "it is [key]."),
        ("run with --password hunter2hunter now", "run with --password [secret] now"),
        ("<db:Password>hunter2hunter</db:Password>", "<db:Password>[secret]</db:Password>"),
        ("root:$6$saltsalt$" + "qV8x" * 12 + ":19000:", "root:[password]:19000:"),
        ("to=ann%40lee.uk&cc=bob", "to=[e-mail]&cc=bob"),
        ("mail a\u200bnn@lee.uk!", "mail [e-mail]!"),
        ('{"a": "{\\"password\\": \\"hunter2hunter\\"}"}', '{"a": "{\\"password\\": \\"[password]\\"}"}'),
        ("To: ann=40lee.uk=\n and so on", "To: [e-mail]=\n and so on"),
    ],
)
def test_secrets_are_named_not_shown(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "16 GPUs x 10 h x $3 = $480",
        "trace 4bf92f3577b34da6a3ce929d0e0e4736, span 00f067aa0ba902b7",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "run 123e4567-e89b-12d3-a456-426614174000",
        "read report_AnnualFinancialSummary2024_final_version_for_review.csv",
        "call mcp_github-search_getUserRepositories2_with_pagination_support",
        "call_AbCdEfGhIjKl0123456789Mn, toolu_01A09q90qw90lq917835lq9, chatcmpl-BxYz0123456789abcdefghijKLM",
        "1700000000000000000 ns since the epoch",
        "similarity 0.4539148803436467, price 4.111111111111111",
        "the password was wrong",
        "the bearer authentication scheme",
        "Authorization: required for administrators, cookie: none",
        "use --password or --token instead, and --api-key option",
        "it costs $5$ or $6$, see `C:\\_temp\\-x`",
        "api_key = os.environ['API_KEY']",
        "order 1234 5678 9012 3456",
        "doi.org/10.1038/s41559-021-01524-4",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "react@18.2.0 and user@host",
        "https://host:8080/a?b=c%20d",
    ],
)
def test_ids_figures_and_words_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_leaks_however_it_is_written_and_wherever_it_stands(shape: str) -> None:
    rng, clean = random.Random(shape), Cleaner(make_redactor(ALL_KINDS))
    secret = make(SHAPES[shape], rng)
    written = [(name, write(secret.text), "tool arguments") for name, write in WRITINGS.items()]
    placed = [(place, secret.text, place) for place in PLACES]
    assert [name for name, text, place in (*written, *placed) if leaks(clean, secret, text, place)] == []


def test_there_are_two_hundred_shapes() -> None:
    assert len(SHAPES) * len(WRITINGS) >= 200


def test_every_rule_is_accepted_by_re2_and_found_by_its_keywords() -> None:
    for rule in all_rules():
        compile_rule(rule.pattern)
        assert all(word == word.lower() for word in rule.keywords)


def test_equal_secrets_are_named_alike_however_they_are_written() -> None:
    run = Redactor().for_run()
    texts = ("ann@lee.uk", "ann%40lee.uk", "ann\\u0040lee.uk", "a\u00adnn@lee.uk", "bob@lee.uk")
    assert [run(text) for text in texts] == [*["[e-mail 1]"] * 4, "[e-mail 2]"]


@pytest.mark.parametrize("nested", [1, 2])
def test_base64_is_decoded_and_taken_out_as_a_whole(nested: int) -> None:
    text = json.dumps({"note": "write to ann@lee.uk"})
    for _ in range(nested):
        text = base64.b64encode(text.encode()).decode()
    assert redact(f"data: {text}.") == "data: [e-mail]."


@pytest.mark.parametrize(
    "text",
    [
        "a@" * 50_000,
        "1" * 100_000,
        "1 " * 100_000,
        "4111 " * 40_000,
        "password: " * 20_000,
        "token=aB3dE6gH9jK2 " * 10_000,
        "-----BEGIN PRIVATE KEY-----" * 3_000,
        "-----BEGIN PRIVATE KEY-----" + "\n" * 100_000,
        "-----BEGIN PRIVATE KEY-----" + "\\n A" * 50_000,
        "eyJ-" * 50_000,
        "eyJ" + "a-" * 50_000,
        "://a:" * 50_000,
        "a.b@c." * 30_000,
        "a@b.cd " * 20_000,
        "sk-" * 50_000,
        "bearer " * 30_000,
        "cookie: " * 100_000,
        "\\" * 100_000,
        "%25" * 50_000,
        "&amp;" * 30_000,
        "=3D" * 50_000,
        "\u200b\u00a0" * 50_000,
        "cGFzc3dvcmQ6IGh1bnRlcjJodW50ZXI\n!!!!\n" * 5_000,
        "cGFzc3dvcmQ6IGh1bnRlcjJodW50ZXI\nÿ0ÿ0\n".replace("ÿ", "_") * 5_000,
        "706173737764" * 20_000,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_no_text_makes_it_slow(text: str) -> None:
    """CPU time, because the machine may be busy; quadratic patterns took minutes."""
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 20


TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


@given(TEXTS)
def test_a_quick_look_and_a_replacement_agree(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert Redactor().holds_nothing(text) == (redact(text) == text)


@given(TEXTS)
def test_what_is_redacted_is_not_redacted_again(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@given(TEXTS)
def test_readings_with_places_are_those_without(text: str) -> None:
    placed = list(placed_readings(text))
    assert [reading.text for reading in placed] == list(readings(text))
    for reading in filter(lambda reading: reading.text, placed):
        start, end = reading.place(0, len(reading.text))
        assert 0 <= start <= end <= len(text)


@given(before=TEXTS, after=TEXTS)
def test_a_place_in_a_reading_is_found_in_the_text(before: str, after: str) -> None:
    text = f"{before}\1needle\1{after}"
    for reading in placed_readings(text):
        at = reading.text.index("\1needle\1")
        start, end = reading.place(at + 1, at + 7)
        assert text[start:end] == "needle"


def test_a_text_that_comes_again_is_counted_again() -> None:
    run = Redactor().for_run()
    for _ in range(2):
        assert run("nothing here") == "nothing here"
        assert run("write to ann@lee.uk") == "write to [e-mail 1]"
    assert run.counts == {"emails": 2}
