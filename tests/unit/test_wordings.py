"""Tables of phrases by language, and which languages a text is written in."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from analyzer.signals.wordings import ANY_LANGUAGE, Kind, languages_in, said, tables

SENTENCES: Final[dict[str, dict[str, list[list[str]]]]] = tomllib.loads(
    (Path(__file__).parent / "wordings.toml").read_text(encoding="utf-8")
)


def sentences(column: str) -> list[Any]:
    return [
        pytest.param(language, Kind(kind), sentence, id=f"{language}-{kind}-{number}")
        for language, columns in SENTENCES.items()
        for number, (kind, sentence) in enumerate(columns[column])
    ]


def test_every_language_has_a_table_with_all_kinds_and_sentences() -> None:
    languages = {code: table for code, table in tables().items() if code != ANY_LANGUAGE}
    assert set(languages) == set(SENTENCES)
    for code, table in languages.items():
        assert set(table.phrases) == set(Kind), code
        assert len(table.function_words) >= 30, code
        assert len(SENTENCES[code]["said"]) >= 8, code
        assert len(SENTENCES[code]["silent"]) >= 6, code


@pytest.mark.parametrize(("language", "kind", "sentence"), sentences("said"))
def test_a_phrase_is_found_in_its_language(language: str, kind: Kind, sentence: str) -> None:
    found = said(kind, sentence)
    assert found is not None
    assert found.language == language
    assert 0 <= found.start < found.end <= len(sentence)


@pytest.mark.parametrize(("language", "kind", "sentence"), sentences("silent"))
def test_similar_words_are_no_phrase(language: str, kind: Kind, sentence: str) -> None:
    assert said(kind, sentence) is None
    assert language in languages_in(sentence)
