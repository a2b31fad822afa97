"""What is a secret is named; what is evidence stays."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector_processor.redaction import Redactor, redact

PIECES = (
    *(
        "sk-proj-abcdefghijklmnop1234",
        "AKIAIOSFODNN7EXAMPLE",
        "bearer ",
        "abc.def-ghi_jkl=",
        "authorization: ",
    ),
    *(
        "basic ",
        "eyJhbGciOiJI",
        ".eyJzdWIiOiIx",
        ".sig",
        "password",
        ": ",
        "=",
        "hunter2hunter",
        "ann@lee.uk",
    ),
    *("4111 1111 ", "1111 1111", "https://", "me:secret@", "host", " ", "\n", "-----BEGIN PRIVATE KEY-----"),
    *("\nMIIE", "\n-----END PRIVATE KEY-----", "says nothing", "\ud83d", "K", "\u017f"),
)
"""Secrets, halves of them, and what may stand between."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("use sk-proj-abcdefghijklmnop1234 please", "use [key] please"),
        ("AKIAIOSFODNN7EXAMPLE is the id", "[key] is the id"),
        ("Authorization: Bearer abc.def-ghi_jkl=", "Authorization: Bearer [token]"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.sig", "jwt [token]"),
        ('{"password": "hunter2hunter"}', '{"[secret]"}'),
        ("write to ann.lee+x@example.co.uk now", "write to [e-mail] now"),
        ("card 4111 1111 1111 1111 ok", "card [card number] ok"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----!", "[private key]!"),
    ],
)
def test_secrets_are_named_not_shown(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "16 GPUs x 10 h x $3 = $480",
        "trace 4bf92f3577b34da6a3ce929d0e0e4736, span 00f067aa0ba902b7",
        "1700000000000000000 ns since the epoch",
        "the password was wrong",
        "order 1234 5678 9012 3456",
    ],
)
def test_ordinary_numbers_and_words_stay(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "a@" * 50_000,
        "1" * 100_000,
        "1 " * 100_000,
        "password: " * 20_000,
        "-----BEGIN PRIVATE KEY-----" * 3_000,
        "-----BEGIN PRIVATE KEY-----" + "\n" * 100_000,
        "-----BEGIN PRIVATE KEY-----" + "\\n A" * 50_000,
        "eyJ-" * 50_000,
        "eyJ" + "a-" * 50_000,
        "://a:" * 50_000,
        "a.b@c." * 30_000,
        "sk-" * 50_000,
        "bearer " * 30_000,
    ],
    ids=lambda text: text[:12],
)
def test_no_text_makes_it_slow(text: str) -> None:
    """Time of the process, for others may be at work beside us; the quadratic ones took minutes."""
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://app:hunter2@db/x", "postgres://[password]@db/x"),
        ("github_pat_11ABCDEFG0abcdefghijkl_mn", "[key]"),
        ("gho_abcdefghijklmnopqrst", "[key]"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "[secret]"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [token]"),
        ("-----BEGIN PRIVATE KEY----- it was the writer", "[private key] it was the writer"),
        ("-----BEGIN PRIVATE KEY-----\\nMIIE==\\n-----END PRIVATE KEY-----\\nso", "[private key]\\nso"),
    ],
)
def test_more_kinds_of_secrets(text: str, expected: str) -> None:
    assert redact(text) == expected


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_looking_at_once_finds_what_looking_for_each_kind_finds(text: str) -> None:
    one_by_one = text.encode("utf-8", "replace").decode()
    for rule in Redactor().rules:
        if rule.hint in text.lower():
            one_by_one = rule.pattern.sub(
                lambda match, rule=rule: f"[{rule.word}]" if rule.holds(match.group()) else match.group(),
                one_by_one,
            )
    assert redact(text) == one_by_one


def test_a_text_that_comes_again_is_counted_again() -> None:
    run = Redactor().for_run()
    for _ in range(2):
        assert run("nothing here") == "nothing here"
        assert run("write to ann@lee.uk") == "write to [e-mail 1]"
    assert run.counts == {"emails": 2}
