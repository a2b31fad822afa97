"""Words by which values are read, in every language; each beside a word that looks like one and is none."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from types import ModuleType

import pytest

from analyzer import lineage, signals, texts
from analyzer.lineage.dates import dates_in
from analyzer.lineage.deeds import acts_in
from analyzer.texts.vocabulary import (
    begins_with_no,
    has_alternative,
    months,
    number_words,
    phrases,
    weekdays,
    weekdays_in,
    worded,
)
from analyzer.texts.wordings import ANY_LANGUAGE, languages_in, tables

ROWS = tomllib.loads((files("analyzer.texts") / "vocabulary.toml").read_text(encoding="utf-8"))
WITHOUT_MONTHS = {"zh", "ja", "ko", "vi"}
"""Languages that count their months."""


def test_every_language_of_the_phrases_has_a_row_of_the_same_kinds() -> None:
    assert set(ROWS) == set(tables()) - {ANY_LANGUAGE}
    for code, row in ROWS.items():
        assert row.keys() == ROWS["en"].keys(), code
        assert len(row["months"].split()) == (0 if code in WITHOUT_MONTHS else 12), code
        assert len(row["weekdays"].split()) == 7, code
        assert all(row[kind] for kind in ("at_most", "at_least", "no", "only", "or", "total")), code
        assert bool(row["every"]) == (code != "he"), code


ANY_LANGUAGES = tomllib.loads((files("analyzer.texts") / "any_language.toml").read_text(encoding="utf-8"))
KIND = re.compile(r"\{([a-z_]+)\}")


def modules() -> Iterator[ModuleType]:
    for package in (lineage, signals, texts):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.startswith("analyzer.texts.wordings"):  # its phrases have groups of their own
                yield importlib.import_module(found.name)


def test_readers_use_every_kind_of_words_and_no_unknown_one() -> None:
    names = {(one, name) for one in modules() for name in vars(one) if not name.startswith("__")}
    texts = [text for one, name in names if isinstance(text := vars(one)[name], str)]
    for text in texts:
        if KIND.search(text):
            worded(text)
    sources = "".join(inspect.getsource(one) for one in modules())
    assert ANY_LANGUAGES.keys() <= {*KIND.findall(sources), *re.findall(r'"([a-z_]+)"', sources)}


def test_words_of_any_language_are_in_lower_case_and_of_known_languages() -> None:
    for kind, row in ANY_LANGUAGES.items():
        assert row.keys() <= ROWS.keys(), kind
        assert all(word == word.lower().strip() and word for words in row.values() for word in words), kind


def test_a_word_of_a_kind_stands_for_itself_and_one_with_a_dash_for_all_that_begin_so() -> None:
    assert worded(r"^{for_now}$").match("Heute")
    assert not worded(r"^{for_now}$").match("heutig")
    with pytest.raises(KeyError):
        worded("{no_such_kind}")


def test_no_form_of_a_month_is_another_month_elsewhere() -> None:
    for code, row in ROWS.items():
        for number, forms in enumerate(row["months"].casefold().split(), start=1):
            assert {months()[form] for form in forms.split("/")} == {number}, (code, forms)


ONLY = {
    "en": ("Show only the open bills.", "Show the lonely bills."),
    "de": ("Zeig mir nur die offenen Rechnungen.", "Zeig mir die Rechnungen für die Nurse."),
    "nl": ("Toon alleen de open facturen.", "Toon de facturen van een alleenstaande."),
    "fr": ("Montre uniquement les factures.", "Montre la facture unique."),
    "es": ("Muestra solamente las facturas.", "Muestra las facturas del solar."),
    "pt": ("Mostra apenas as faturas.", "Mostra as faturas do sótão."),
    "it": ("Mostra soltanto le fatture.", "Mostra le fatture del soldato."),
    "pl": ("Pokaż tylko faktury.", "Pokaż faktury z tyłu."),
    "ru": ("Покажи только счета.", "Покажи толковые счета."),
    "tr": ("Sadece faturaları göster.", "Sade faturaları göster."),  # noqa: RUF001 - other scripts
    "id": ("Tampilkan hanya faktur.", "Tampilkan faktur yang hanyut."),
    "hi": ("केवल बिल दिखाओ।", "बिल की मात्रा दिखाओ।"),
    "bn": ("শুধু বিল দেখাও।", "বিল দেখাও।"),
    "ur": ("صرف بل دکھاؤ۔", "مصروف بل دکھاؤ۔"),  # noqa: RUF001 - other scripts
    "ar": ("أظهر الفواتير فقط.", "أظهر الفواتير فقطعها."),
    "zh": ("仅显示账单。", "显示一只猫的账单。"),
    "ja": ("請求書のみ表示してください。", "できるだけ早く請求書を。"),
    "ko": ("오직 청구서만 보여줘.", "하지만 청구서를 보여줘."),
    "sv": ("Visa endast fakturorna.", "Visa fakturorna för bararen."),
    "da": ("Vis kun fakturaerne.", "Vis fakturaerne til kunden alene."),
    "nb": ("Vis bare fakturaene.", "Vis fakturaene fra barene."),
    "fi": ("Näytä vain laskut.", "Näytä laskut, jotka vainaja jätti."),
    "cs": ("Ukaž pouze faktury.", "Ukaž faktury s jenomickým znakem."),
    "hu": ("Csak a számlákat mutasd.", "A csakra számláit mutasd."),
    "ro": ("Arată doar facturile.", "Arată facturile domnului Numaian."),
    "el": ("Δείξε μόνο τα τιμολόγια.", "Δείξε τα μόνιμα τιμολόγια."),
    "uk": ("Покажи лише рахунки.", "Покажи рахунки за лишень."),
    "he": ("הצג רק את החשבוניות.", "הצג את החשבוניות של רקפת."),
    "hr": ("Prikaži samo račune.", "Prikaži račune samostana."),
    "vi": ("Chỉ xem hóa đơn.", "Xem hóa đơn theo địa chỉ."),
}


def test_every_language_has_an_example_of_only() -> None:
    assert ONLY.keys() == ROWS.keys()


@pytest.mark.parametrize("code", ONLY)
def test_words_that_limit_to_something_are_found_and_others_are_not(code: str) -> None:
    says, does_not = ONLY[code]
    assert phrases("only", (code,)).search(says)
    assert not phrases("only", (code,)).search(does_not)


@pytest.mark.parametrize(
    ("code", "word", "number"),
    [
        ("sv", "två", 2),
        ("da", "én", 1),
        ("nb", "syv", 7),
        ("fi", "kuusi", 6),
        ("cs", "dvě", 2),
        ("hu", "hat", 6),
        ("ro", "două", 2),
        ("el", "τρεισ", 3),
        ("uk", "дві", 2),
        ("vi", "hai", 2),
        ("sv", "en", None),
        ("sv", "ett", None),
        ("sv", "var", None),
        ("da", "en", None),
        ("da", "for", None),
        ("nb", "en", None),
        ("hu", "egy", None),
        ("hu", "nem", None),
        ("ro", "un", None),
        ("ro", "o", None),
        ("el", "ένα", None),
        ("el", "μια", None),
        ("cs", "už", None),
        ("vi", "một", None),
        ("vi", "năm", None),
        ("uk", "та", None),
        ("fi", "ja", None),
    ],
)
def test_words_for_numbers_are_read_but_articles_are_none(code: str, word: str, number: int | None) -> None:
    assert number_words((code,)).get(word) == number


@pytest.mark.parametrize(
    ("text", "month"),
    [
        ("den 3 mars 2026", 3),
        ("den 3. maj 2026", 5),
        ("3. desember 2026", 12),
        ("3. marraskuuta 2026", 11),
        ("3. září 2026", 9),
        ("3. listopadu 2026", 11),
        ("3 martie 2026", 3),
        ("3 Σεπτεμβρίου 2026", 9),
        ("3 Ιανουάριος 2026", 1),
        ("3 липня 2026", 7),
        ("3 листопада 2026", 11),
    ],
)
def test_dates_with_the_case_forms_of_months_are_read(text: str, month: int) -> None:
    (found,) = dates_in(text)
    assert {(one.month, one.day) for one in found.readings} == {(month, 3)}


@pytest.mark.parametrize("text", ["an iPhone 13 Pro", "20 LED lamps", "3 Ian", "5 листів", "13 pro sál"])
def test_short_words_beside_a_number_are_no_months(text: str) -> None:
    assert not dates_in(text)


DAYS = {
    "sv": ("på torsdagen", 3, "varje dag"),
    "da": ("om onsdagen", 2, "man kan komme"),
    "nb": ("på lørdag", 5, "man kan komme"),
    "fi": ("keskiviikkona", 2, "keskellä viikkoa"),
    "cs": ("ve středu", 2, "po obědě ne"),
    "hu": ("csütörtökön", 3, "hat nap"),
    "ro": ("vineri", 4, "timp de 3 luni"),
    "el": ("την Παρασκευή", 4, "κάθε ημέρα"),
    "uk": ("у п'ятницю", 4, "п'ять днів"),  # noqa: RUF001 - other scripts
    "he": ("ביום שלישי", 1, "שלושה ימים"),
    "hr": ("u srijedu", 2, "po jedan"),
    "vi": ("vào thứ năm", 3, "trong năm nay"),
}


@pytest.mark.parametrize("code", DAYS)
def test_days_of_the_week_are_read_and_words_like_them_are_not(code: str) -> None:
    text, day, other = DAYS[code]
    assert weekdays_in(text, (code,)) == {day}
    assert weekdays_in(other, (code,)) == frozenset()
    assert sorted(set(weekdays((code,)).values())) == list(range(7))


@pytest.mark.parametrize(
    ("code", "kind", "says", "does_not"),
    [
        ("sv", "every", "Lista alla fakturor.", "Lista fakturor som var betalda."),
        ("da", "every", "Vis hver faktura.", "Vis fakturaer for maj."),
        ("nb", "every", "Vis samtlige fakturaer.", "Vis fakturaer for mai."),
        ("fi", "every", "Näytä kaikki laskut.", "Näytä laskut kuusta."),
        ("cs", "every", "Ukaž všechny faktury.", "Ukaž faktury, které už jsou."),
        ("hu", "every", "Mutasd az összes számlát.", "Mutasd a számlát."),
        ("ro", "every", "Arată toate facturile.", "Arată facturile totuși."),
        ("el", "every", "Δείξε όλα τα τιμολόγια.", "Δείξε ένα τιμολόγιο."),
        ("uk", "every", "Покажи всі рахунки.", "Покажи вісім рахунків."),
        ("vi", "every", "Xem tất cả hóa đơn.", "Xem hai hóa đơn."),
        ("sv", "at_most", "högst 40 euro", "hög kvalitet för 40 euro"),
        ("da", "at_most", "højst 40 euro", "høj kvalitet for 40 euro"),
        ("nb", "at_most", "maks 40 euro", "maksimen koster 40 euro"),
        ("fi", "at_most", "enintään 40 euroa", "enimmäkseen 40 euroa"),
        ("cs", "at_most", "nejvýše 40 eur", "nejvyšší kvalita, 40 eur"),
        ("hu", "at_most", "legfeljebb 40 euró", "a legfelső, 40 euró"),
        ("ro", "at_most", "cel mult 40 de euro", "de mult, 40 de euro"),
        ("el", "at_most", "το πολύ 40 ευρώ", "πολύ καλό, 40 ευρώ"),
        ("uk", "at_most", "щонайбільше 40 євро", "найбільший, 40 євро"),
        ("vi", "at_most", "tối đa 40 euro", "buổi tối 40 euro"),
        ("hi", "at_most", "ज़्यादा से ज़्यादा 40 यूरो", "ज़्यादा अच्छा, 40 यूरो"),
        ("ja", "before", "遅くても10時", "遅い時間、10時"),
        ("ko", "at_most", "많아도 40유로", "많은 40유로"),
        ("ur", "at_most", "حد سے حد 40 یورو", "حد 40 یورو"),
        ("bn", "at_most", "বড়জোর 40 ইউরো", "বড় 40 ইউরো"),
        ("sv", "total", "Summa: 40", "Summering: 40"),
        ("fi", "total", "Yhteensä 40", "Yhteystiedot 40"),
        ("cs", "total", "Celkem 40", "Celkový dojem 40"),
        ("hu", "total", "Összesen 40", "Összetevők 40"),
        ("uk", "total", "Разом 40", "Разовий 40"),
    ],
)
def test_words_of_a_kind_are_found_and_words_like_them_are_not(
    code: str, kind: str, says: str, does_not: str
) -> None:
    assert phrases(kind, (code,)).search(says)
    assert not phrases(kind, (code,)).search(does_not)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Det finns ingen ledig tid och vi har inte fått något svar.", "sv"),
        ("Der er ikke noget ledigt, og vi har ikke fået noget svar af dem.", "da"),
        ("Det er ikke noe ledig, og vi har ikke fått noe svar av dem.", "nb"),
        ("Vapaata aikaa ei ole, ja he eivät ole vastanneet meille.", "fi"),
        ("Volný termín není a zatím jsme nedostali žádnou odpověď.", "cs"),
        ("Nincs szabad időpont, és még nem is kaptunk választ.", "hu"),
        ("Nu este niciun loc liber și nu am primit un răspuns.", "ro"),
        ("Δεν υπάρχει ελεύθερη ώρα και δεν λάβαμε απάντηση.", "el"),
        ("Немає вільного часу, і ми ще не отримали відповіді.", "uk"),  # noqa: RUF001 - other scripts
        ("Không có giờ trống và chúng tôi chưa nhận được câu trả lời.", "vi"),
    ],
)
def test_an_answer_that_begins_with_a_denial_is_in_its_own_language_alone(text: str, code: str) -> None:
    assert languages_in(text) == (code,)
    assert begins_with_no(text)


@pytest.mark.parametrize(
    "task",
    [
        "Boka bordet till åtta, annars till nio om det är så.",
        "Book bordet til otte, ellers til ni, hvis det er bedre af hensyn til jer.",
        "Varaa pöytä kahdeksaksi, muuten yhdeksäksi, jos se on niin.",
        "Zarezervuj stůl na osm, jinak na devět, pokud je to možné.",
        "Foglalj asztalt nyolcra, különben kilencre, ha az is van.",
        "Rezervă masa pentru ora opt, altfel pentru nouă, dacă este.",
        "Κλείσε τραπέζι για τις οκτώ, αλλιώς για τις εννέα.",  # noqa: RUF001 - other scripts
        "Забронюй столик на восьму, інакше на дев'яту, якщо є.",
        "Hãy đặt bàn lúc tám giờ, nếu không thì chín giờ cũng được.",
    ],
)
def test_a_task_may_say_what_to_do_otherwise(task: str) -> None:
    assert has_alternative(task)


@pytest.mark.parametrize(
    ("text", "acts"),
    [
        ("Jag har avbokat rummet", {"cancel"}),
        ("Jeg har sendt brevet", {"send"}),
        ("Varasin huoneen", {"book"}),
        ("Objednávku jsem zrušila", {"cancel"}),
        ("Lefoglaltam a szobát", {"book"}),
        ("Am plătit factura", {"pay"}),
        ("Ακύρωσα την κράτηση", {"cancel"}),
        ("Рахунок сплачено", {"pay"}),
        ("Tôi đã gửi thư", {"send"}),
        ("Замовлення перевірено", set()),
        ("Jeg har bestilt det", set()),
        ("Nástroj vrátil dva záznamy", set()),
        ("Tôi đã hoàn thành việc cài đặt", set()),
        ("Ezt foglaltam össze", set()),
        ("Έκλεισα την πόρτα", set()),
        ("Ohjelma on käynnistetty", set()),
    ],
)
def test_deeds_are_read_and_words_for_two_of_them_are_not(text: str, acts: set[str]) -> None:
    assert acts_in(text) == acts
