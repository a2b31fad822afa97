"""What is a secret is named; what is evidence stays."""

from __future__ import annotations

import time

import pytest

from collector_processor.redaction import redact


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
    "text", ["a@" * 50_000, "1" * 100_000, "password: " * 20_000, "-----BEGIN PRIVATE KEY-----" * 3_000]
)
def test_no_text_makes_it_slow(text: str) -> None:
    started = time.perf_counter()
    redact(text)
    assert time.perf_counter() - started < 5
