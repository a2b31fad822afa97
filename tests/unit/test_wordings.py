"""Tables of phrases by language, which languages a text is written in, and words that deny."""

from __future__ import annotations

import tomllib
import unicodedata
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.texts.wording import GIVE_UP, HEDGE, MADE_UP, Wording
from analyzer.texts.wordings import (
    ANY_LANGUAGE,
    Kind,
    is_covered,
    kinds_said,
    languages_in,
    said,
    tables,
    unchecked,
)
from analyzer.texts.wordings.folding import fold
from analyzer.texts.wordings.patterns import Phrases
from analyzer.texts.wrong_numbers import disowned

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
    before_it_is_compiled = Phrases(tables()[language], kind)
    assert before_it_is_compiled.may_be_in(fold(sentence))
    assert not before_it_is_compiled.may_be_in("0")


@pytest.mark.parametrize("half", [0xD83D, 0xDC00])
def test_half_a_surrogate_pair_hides_no_phrase(half: int) -> None:
    sentence = f"{chr(half)} Leider konnte ich den Fahrplan nicht finden. {chr(half)}"
    found = said(Kind.GIVING_UP, sentence)
    assert found is not None
    assert sentence[found.start : found.end].isprintable()
    assert languages_in(sentence) == ("de",)


@pytest.mark.parametrize(("language", "kind", "sentence"), sentences("silent"))
def test_similar_words_are_no_phrase(language: str, kind: Kind, sentence: str) -> None:
    assert said(kind, sentence) is None
    assert language in languages_in(sentence)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param("This ticket cannot be cancelled or refunded.", id="en"),
        pytest.param("Die Fahrkarte kann nicht storniert werden.", id="de"),
        pytest.param("Le billet ne peut pas être annulé après le départ.", id="fr"),
        pytest.param("No es posible cancelar el billete después de la salida.", id="es"),
        pytest.param("Não é possível cancelar o bilhete após a partida.", id="pt"),
        pytest.param("Non è possibile annullare il biglietto dopo la partenza.", id="it"),
        pytest.param("Após a partida, os clientes não podem cancelar.", id="pt-people"),
        pytest.param("Tiket ini tidak dapat dibatalkan.", id="id"),
        pytest.param("Отменить билет после отправления невозможно.", id="ru"),
        pytest.param("此票无法退款。", id="zh"),
        pytest.param("当日のキャンセルはできません。", id="ja"),
        pytest.param("출발 후에는 표를 취소할 수 없습니다.", id="ko"),
        pytest.param("यात्री टिकट रद्द नहीं कर सकते।", id="hi"),
        pytest.param("لا يمكن إلغاء التذكرة بعد المغادرة.", id="ar"),
    ],
)
def test_a_rule_of_the_world_is_not_given_up_work(policy: str) -> None:
    assert said(Kind.GIVING_UP, policy) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("ร้านอาหารใกล้ท่าเรือเปิดทุกวัน และมีเมนูมังสวิรัติหลายอย่าง", "Thai script", id="th"),
        pytest.param("რესტორანი ნავსადგურთან ყოველდღე ღიაა და აქვს კერძები.", "Georgian script", id="ka"),
        pytest.param("Նավահանգստի մոտ գտնվող ռեստորանը բաց է ամեն օր.", "Armenian script", id="hy"),
        pytest.param(
            "Mkahawa ulio karibu na bandari hufunguliwa kila siku, lakini sikuweza kupata bei za vyakula"
            " vyake vyote kwa sasa.",
            "a language in Latin script",
            id="sw",
        ),
        pytest.param(
            "Restoranas prie uosto dirba kiekvieną dieną ir turi vegetariškų patiekalų, bet kainų neradau.",
            "a language in Latin script",
            id="lt",
        ),
        pytest.param(
            "Restorāns pie ostas ir atvērts katru dienu, bet diemžēl es nevarēju atrast ēdienu cenas.",
            "a language in Latin script",
            id="lv",
        ),
        pytest.param(
            "Порттың жанындағы мейрамхана күн сайын ашық, бірақ өкінішке қарай тағам бағасын таба алмадым.",
            "a language in Cyrillic script",
            id="kk",
        ),
        pytest.param(
            "रेस्टॉरंट बंदराजवळ आहे आणि ते रोज उघडे असते, पण मला त्याच्या जेवणाच्या किमती सापडल्या नाहीत.",
            "a language in Devanagari script",
            id="mr",
        ),
    ],
)
def test_a_language_without_a_table_is_named_as_unchecked(text: str, name: str) -> None:
    assert unchecked(text) == name
    assert not is_covered(text)


@pytest.mark.parametrize("text", ["", "42", "OK", "def f(x):\n    return x + 1", "µ = 3.5 kΩ", "Málaga"])
def test_a_text_that_says_little_is_covered(text: str) -> None:
    assert is_covered(text)


@pytest.mark.parametrize("language", SENTENCES)
def test_the_languages_of_the_tables_are_covered(language: str) -> None:
    own = [sentence for column in SENTENCES[language].values() for _kind, sentence in column]
    assert is_covered(" ".join(own))
    assert languages_in(" ".join(own)) == (language,)


def test_a_text_may_have_two_languages() -> None:
    text = (
        "The letter from the tenant says the following, in his own words. "
        "Leider konnte ich den Vertrag nicht finden, und auf meine Frage habe ich keine Antwort erhalten."
    )
    assert set(languages_in(text)) == {"en", "de"}
    found = said(Kind.GIVING_UP, text)
    assert found is not None
    assert found.language == "de"
    assert text[found.start : found.end].startswith("konnte ich den Vertrag nicht finden")


def test_a_word_cut_in_a_long_text_is_no_word() -> None:
    assert languages_in("no errors, " * 2_000) == ("en",)


def test_a_short_word_of_another_language_does_not_match() -> None:
    text = "We had a pale ale and the ma of the house told us that she likes it."
    assert languages_in(text) == ("en",)
    assert said(Kind.GOES_ON, text) is None  # Polish and Italian have words for but that look like these


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("Well, we couldn\u2019t open the vault.", "we couldn\u2019t open", id="apostrophe"),
        pytest.param("Je n'ai pas pu re\u0301server.", "Je n'ai pas pu re\u0301server", id="combining"),
        pytest.param("لقد لم أَتَمَكَّنْ من العثـــور على المفتاح.", "لم أَتَمَكَّنْ من العثـــور", id="vowel marks"),
        pytest.param("Mesela: BULAMADIM, üzgünüm.", "BULAMADIM", id="dotless"),
        pytest.param("그래서 키를 찾을 수 없었습니다.", "찾을 수 없었습니다", id="composed syllables"),
    ],
)  # fmt: skip
def test_the_place_of_a_phrase_is_in_the_original_text(text: str, words: str) -> None:
    found = said(Kind.GIVING_UP, text)
    assert found is not None
    assert text[found.start : found.end] == words


def test_decomposed_syllables_are_found_at_their_place() -> None:
    text = unicodedata.normalize("NFD", "그래서 키를 찾을 수 없었습니다.")
    found = said(Kind.GIVING_UP, text)
    assert found is not None
    assert unicodedata.normalize("NFC", text[found.start : found.end]) == "찾을 수 없었습니다"


def test_what_programs_write_is_read_in_any_language() -> None:
    found = said(Kind.ADMISSION, "服务返回 Error: 503 Service Unavailable", ("zh",))
    assert found is not None
    assert found.language == ANY_LANGUAGE


def test_the_languages_of_the_whole_text_may_be_handed_over() -> None:
    assert said(Kind.GOES_ON, "Ma ne ho due.", ("it",)) is not None
    assert said(Kind.GOES_ON, "Ma ne ho due.", ("en",)) is None


def test_an_apology_alone_is_no_giving_up() -> None:
    assert kinds_said("Sorry about that!") == {Kind.EXCUSE}
    assert kinds_said("Lo siento mucho.") == {Kind.EXCUSE}


def test_every_phrase_compiles_and_no_phrase_is_in_its_language_twice() -> None:
    for code, table in tables().items():
        for kind, phrases in table.phrases.items():
            assert len(set(phrases)) == len(phrases), (code, kind)
            said(kind, "x", (code,))


@pytest.mark.parametrize(
    "wording", [pytest.param(each, id=each.signal) for each in (MADE_UP, HEDGE, GIVE_UP)]
)
@given(data=st.data())
def test_whatever_a_pattern_finds_has_one_of_its_stems(wording: Wording, data: st.DataObject) -> None:
    text = data.draw(st.from_regex(wording.pattern))
    assert wording.find(text) is not None


@pytest.mark.parametrize("text", ["s\u0130mulated", "fabr\u0131cated", "a\u017f\u017fuming"])
def test_letters_that_are_others_in_another_case_hide_nothing(text: str) -> None:
    assert MADE_UP.find(text) is not None


CLAIM = "3 + 4 = 8"


def mentions(text: str) -> bool:
    start = text.index(CLAIM)
    return disowned(text, start, start + len(CLAIM), 8.0)


@pytest.mark.parametrize(
    "text",
    [
        "Calc's claim 3 + 4 = 8 is wrong; it must be 7.",
        "Calc says 3 + 4 = 8.",
        'Calc wrote "3 + 4 = 8".',
        "According to calc, 3 + 4 = 8.",
        "Is 3 + 4 = 8? No, 7.",
        "3 + 4 = 8? I doubt it.",
        "3 + 4 = 8. No, it is 7.",
        "3 + 4 = 8 (wrong), 3 + 4 = 7 (right)",
        "3 + 4 = 8, which is incorrect.",
        "3 + 4 = 8. That is not correct.",
        "3 + 4 = 8 isn't right.",
        "3 + 4 = 8 is a mistake.",
        "**3 + 4 = 8** is false.",
        "3 + 4 = 8. It should be 7.",
        "3 + 4 = 8 stands there; the correct result is 7.",
        "You incorrectly computed 3 + 4 = 8.",
        "It is wrong that 3 + 4 = 8.",
        "Write 3 + 4 = 7 instead of 3 + 4 = 8.",
        "SELECT * WHERE 3 + 4 = 8",
        "Check whether 3 + 4 = 8.",
    ],
)
def test_a_claim_that_is_quoted_asked_denied_or_conditional_is_not_its_authors(text: str) -> None:
    assert mentions(text)


@pytest.mark.parametrize(
    "text",
    [
        CLAIM,
        "3 + 4 = 8, so the earlier answer 7 is incorrect.",
        "3 + 4 = 8, so the answer must be 8.",
        "3 + 4 = 8. The correct answer is 8.",
        "3 + 4 = 8. No doubt about it.",
        "3 + 4 = 8. I did not look further.",
        "3 + 4 = 8, not 9.",
        "I say that 3 + 4 = 8 and we claimed 3 + 4.",
        "Calc says nothing. 3 + 4 = 8.",
        "What is the sum? 3 + 4 = 8.",
        "3 + 4 = 8. Shall I go on?",
        '{"answer": "3 + 4 = 8"}',
        "The earlier step was wrong. 3 + 4 = 8.",
        "3 + 4 = 8 is right.",
    ],
)
def test_a_claim_that_stands_or_is_affirmed_is_its_authors(text: str) -> None:
    assert not mentions(text)
