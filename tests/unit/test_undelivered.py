"""Runs that end without an error and do not deliver; each kind with runs that are right."""

from __future__ import annotations

import pytest

from analyzer.lineage.clue import Clue, ClueKind, weigh
from analyzer.signals.suspicion import clues
from analyzer.signals.suspicion.undelivered import undelivered
from analyzer.texts.run_view import read
from semconv.model import ContentState, Step, StepKind, Trajectory
from semconv.record import replace
from tests.runs import calling, failed_tool, hearing, run, step, tool

SUSPECTED = 0.4752


def found(trajectory: Trajectory) -> Clue | None:
    return next(undelivered(read(trajectory)), None)


def mistake(trajectory: Trajectory) -> Clue:
    clue = found(trajectory)
    assert clue is not None
    return clue


TOOLS = "renew_card(member: string)\nfind_member(name: string)"


def asked(task: str, *steps: Step, answer: str) -> Trajectory:
    return run(*steps, step("clerk", answer, tools=TOOLS), task=task, output=answer)


def looked_up(result: Step) -> tuple[Step, Step]:
    return calling("clerk", ("shelf_of", '{"book": "Heidi"}')), result


DOWN = failed_tool("clerk", "TimeoutError: catalogue down", "shelf_of", input='{"book": "Heidi"}')
NOTHING = tool("clerk", '{"shelves": []}', "shelf_of", input='{"book": "Heidi"}')


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("On which floor is Heidi kept?", "I was unable to look that up. Please try again later."),
        ("Auf welcher Etage steht Heidi?", "Leider konnte ich das nicht nachschlagen."),
        ("À quel étage se trouve Heidi ?", "Désolé, je n'ai pas pu trouver cette information."),
        ("¿En qué planta está Heidi?", "Lo siento, no pude encontrar esa información."),
        ("В каком отделе стоит «Хайди»?", "К сожалению, мне не удалось найти эту информацию."),  # noqa: RUF001
        ("《海蒂》在几楼?", "抱歉,我无法找到这本书的信息。"),
        ("ハイジは何階にありますか。", "申し訳ありませんが、見つけることができませんでした。"),
        ("Heidi hangi katta?", "Üzgünüm, bu bilgiyi bulamadım."),  # noqa: RUF001
        ("هايدي في أي طابق؟", "عذراً، لم أتمكن من العثور على هذه المعلومات."),
    ],
)
def test_an_answer_that_gives_up_after_its_only_call_failed_delivers_nothing(task: str, answer: str) -> None:
    clue = mistake(asked(task, *looked_up(DOWN), answer=answer))
    assert clue.step == 1
    assert weigh([clue]).probability > SUSPECTED
    assert "gives nothing in its place" in clue.reason


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("How many copies of Heidi are there?", "There are 14 copies of Heidi."),
        ("Wie viele Exemplare von Heidi gibt es?", "Es gibt 14 Exemplare von Heidi."),
        ("《海蒂》有几本?", "一共有14本。"),
    ],
)
@pytest.mark.parametrize("result", [DOWN, NOTHING])
def test_figures_after_a_call_that_gave_none_are_from_nowhere(task: str, answer: str, result: Step) -> None:
    clue = mistake(asked(task, *looked_up(result), answer=answer))
    assert clue.step == 2
    assert weigh([clue]).probability > 0.7


def test_a_deed_that_failed_and_is_said_to_be_done_is_from_nowhere() -> None:
    """The look-ups before it succeeded, so the answer has sources for all but the deed."""
    seat = tool("clerk", '{"seat": 12, "is_free": true}', "find_seat", input='{"hall": 2}')
    broken = tool("clerk", '{"status": "declined"}', "reserve_seat", input='{"seat": 12}')
    steps = (
        calling("clerk", ("find_seat", '{"hall": 2}')),
        seat,
        calling("clerk", ("reserve_seat", "{}")),
        broken,
    )
    claimed = mistake(
        asked("Reserve a seat in hall 2.", *steps, answer="Seat 12 in hall 2 has been reserved.")
    )
    assert claimed.reason.startswith("claimed success although reserve_seat failed")
    retried = (
        *steps,
        calling("clerk", ("reserve_seat", "{}")),
        tool("clerk", '{"status": "ok"}', "reserve_seat"),
    )
    assert found(asked("Reserve a seat in hall 2.", *retried, answer="Seat 12 has been reserved.")) is None


def test_a_failure_that_the_task_wants_to_see_is_its_answer() -> None:
    call = calling("tester", ("login", '{"password": "wrong"}'))
    refused = tool("tester", '{"status": 401, "error": "invalid credentials"}', "login")
    answer = "Confirmed: a login with a wrong password is rejected with 401."
    task = "Check that login fails with a wrong password."
    assert found(asked(task, call, refused, step("tester", answer), answer=answer)) is None
    invented = "Confirmed: 12 accounts are open."
    assert found(asked(task, call, refused, step("tester", invented), answer=invented)) is not None


def test_a_handoff_to_nobody_hands_nothing_over() -> None:
    call = calling("desk", ("transfer_to_claims", "{}"))
    answer = "I have passed you on to our claims team."
    reply = hearing(
        step("desk", answer), ("tool", "Error: agent 'claims' not found"), author="transfer_to_claims"
    )
    ended = run(call, reply, task="I want to report a broken window.", output=answer)
    assert mistake(ended).step == 1
    honest = "I could not pass you on to our claims team."
    reply = hearing(
        step("desk", honest), ("tool", "Error: agent 'claims' not found"), author="transfer_to_claims"
    )
    ended = run(call, reply, task="I want to report a broken window.", output=honest)
    assert mistake(ended).kind is ClueKind.UNDONE


def test_a_refusal_in_the_words_of_the_answers_language_is_no_source_of_it() -> None:
    call = calling("clerk", ("reserve_room", '{"room": "B"}'))
    refused = tool("clerk", "予約できませんでした。既に使用中です。", "reserve_room")
    answer = "会議室Bを予約しました。"
    assert mistake(asked("会議室Bを予約して。", call, refused, answer=answer)).step == 2


def test_what_does_not_answer_is_down() -> None:
    call = calling("guard", ("http_get", '{"url": "https://billing.example/health"}'))
    refused = failed_tool("guard", "ConnectionRefusedError", "http_get")
    for task, is_accused in (("Is the billing service up?", False), ("Restart the billing service.", True)):
        answer = "No, the billing service is down and its health endpoint does not answer."
        ended = asked(task, call, refused, step("guard", answer), answer=answer)
        assert (found(ended) is not None) is is_accused


def test_what_one_agent_admits_and_the_other_does_not_is_from_nowhere() -> None:
    """The librarian says that it could not look; the desk answers all the same."""
    answer = "Heidi stands on shelf 44."
    gave_up = "I could not look it up: the catalogue is down."
    trajectory = run(
        calling("desk", ("ask_librarian", '{"question": "shelf of Heidi"}')),
        calling("librarian", ("shelf_of", '{"book": "Heidi"}')),
        failed_tool("librarian", "catalogue down", "shelf_of", input='{"book": "Heidi"}'),
        step("librarian", gave_up),
        hearing(step("desk", answer), ("tool", gave_up)),
        task="Where does Heidi stand?",
        output=answer,
    )
    clue = mistake(trajectory)
    assert clue.step == 4


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        pytest.param("Is there a copy of Heidi?", "I found no copy of Heidi.", id="whether"),
        pytest.param("Gibt es Heidi auf Rätoromanisch?", "Nein, ich konnte keine Ausgabe finden.", id="de"),
        pytest.param("有没有《海蒂》?", "没有找到这本书。", id="zh"),
        pytest.param("Where is loan L-5521?", "I could not find loan L-5521.", id="its id is repeated"),
        pytest.param("Which copies of Heidi are lent out?", "None at the moment.", id="which"),
        pytest.param("How many copies are missing?", "No copies are missing.", id="none is a number"),
    ],
)
def test_finding_nothing_may_be_the_answer(task: str, answer: str) -> None:
    assert found(asked(task, *looked_up(NOTHING), answer=answer)) is None
    absent = failed_tool("clerk", "HTTP 404: not found", "shelf_of", input='{"book": "Heidi"}')
    assert found(asked(task, *looked_up(absent), answer=answer)) is None


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        pytest.param("What is 17 times 3?", "17 times 3 is 51.", id="arithmetic"),
        pytest.param("I have 20 books and lend 5. How many are left?", "15 are left.", id="on figures given"),
    ],
)
def test_what_follows_from_the_task_needs_no_tool(task: str, answer: str) -> None:
    assert found(asked(task, *looked_up(DOWN), answer=answer)) is None


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry for the delay! Your library card was renewed today.",
        "Es tut mir leid für die Wartezeit: Der Ausweis wurde heute verlängert.",
        "お待たせして申し訳ありません。カードは本日更新されました。",
    ],
)
def test_an_apology_followed_by_the_thing_asked_for_is_no_sign(answer: str) -> None:
    renewed = tool("clerk", '{"status": "ok"}', "renew_card")
    assert (
        found(asked("Renew my card.", calling("clerk", ("renew_card", "{}")), renewed, answer=answer)) is None
    )


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Renew my card.", "I am looking into this and will get back to you."),
        ("Verlängere meinen Ausweis.", "Einen Moment bitte, ich melde mich bei Ihnen."),
        ("Renew my card.", "I'm sorry, I cannot help with that."),
        ("Renew my card.", "Agent stopped due to iteration limit or time limit."),
    ],
)
def test_words_alone_make_a_suspicion_at_most(task: str, answer: str) -> None:
    clue = mistake(asked(task, answer=answer))
    assert SUSPECTED < weigh([clue]).probability < 0.7


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("On which floor is Heidi kept?", "I was unable to look that up. Please try again later."),
        ("Auf welcher Etage steht Heidi?", "Leider konnte ich das nicht nachschlagen."),
        ("¿En qué planta está Heidi?", "Lo siento, no pude encontrar esa información."),
    ],
)
def test_an_agents_whole_turn_may_have_held_calls_that_came_to_nothing(task: str, answer: str) -> None:
    turn = step("clerk", answer, kind=StepKind.AGENT)
    assert found(run(turn, task=task, output=answer)) is None
    clue = mistake(run(replace(turn, is_whole_turn=True), task=task, output=answer))
    assert clue.reason == "gave no answer, only an excuse"


@pytest.mark.parametrize(
    "answer",
    [
        "I cannot share a member's address. You can ask the member, or leave a letter at the desk.",
        "Heidi is kept on floor 2. I was unable to look up its shelf.",
        "Heidi steht auf Etage 2. Das Regal konnte ich leider nicht nachschlagen.",
    ],
)
def test_a_whole_turn_that_answers_or_offers_something_is_no_excuse(answer: str) -> None:
    turn = step("clerk", answer, kind=StepKind.AGENT)
    assert found(run(replace(turn, is_whole_turn=True), task="Where is Heidi?", output=answer)) is None


def test_a_refusal_that_repeats_a_rule_is_an_answer() -> None:
    rules = "Cards of guests cannot be renewed; guests receive a new card at the entrance."
    answer = "I'm sorry, I cannot renew the card of a guest: guests receive a new card at the entrance."
    trajectory = run(step("clerk", answer, instructions=rules), task="Renew my card.", output=answer)
    assert found(trajectory) is None
    told = asked("Renew my card.", *looked_up(tool("clerk", rules, "read_rules")), answer=answer)
    assert found(told) is None


def test_a_deed_that_was_claimed_and_never_called_is_from_nowhere() -> None:
    (clue,) = clues(read(asked("Please renew my card.", answer="Your card has been renewed.")))
    assert "renew_card was offered" in clue.reason
    for task, answer in (
        ("Did you renew my card?", "Yes, it has been renewed."),
        ("How long does it take to get a card? I heard that one can renew it.", "It is done in a day."),
        ("Please renew my card.", "I have not renewed it yet; the form is done."),
    ):
        assert clues(read(asked(task, answer=answer))) == ()


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Classify this log line as Error or Warning: disk is full", "Error"),
        ("How long may students take for the exam?", "The time limit is 90 minutes."),
        ("Where should I wait?", "Please wait at the corner."),
        ("Write a one-line apology to a customer.", "We are sorry that we could not deliver your parcel."),
        (
            "Translate: Leider konnte ich den Schlüssel nicht finden.",
            "Unfortunately I could not find the key.",
        ),
        ("Why does the build break?", "The problem is an off-by-one in parse()."),
    ],
)
def test_an_answer_may_speak_of_errors_limits_and_apologies(task: str, answer: str) -> None:
    assert found(asked(task, answer=answer)) is None


@pytest.mark.parametrize(
    ("task", "name", "result", "answer"),
    [
        ("Mail the report to Bob and to Alice.", "send_email", "", "I have sent 2 mails."),
        ("How many tickets has Bob open?", "list_tickets", "[]", "Bob has 0 open tickets."),
        (
            "What does exit code 2 of grep mean?",
            "search_docs",
            "grep(1): exit code 2 is an error.",
            "An error.",
        ),
        ("Which plan fits?", "get_plan", "Pro plan. Rate limit: 1000 requests per minute.", "Pro: 1000."),
        (
            "How did payment 7 go?",
            "get_payment",
            '{"status": "declined", "reason": "expired 03/24"}',
            "Declined.",
        ),
        ("How did test 9 go?", "get_experiment", '{"success": false, "p_value": 0.31}', "No effect: 0.31."),
        ("How do our tests fare?", "run_tests", "exit code: 1\n3 failed, 12 passed", "12 pass and 3 do not."),
        (
            "What went wrong at ten?",
            "get_logs",
            "10:02 WARN db timed out\n10:03 ok",
            "The db timed out at 10:02.",
        ),
        ("Which hosts are up?", "probe", "/a status 200\n/b status 503", "/a answers, /b does not."),
    ],
)
def test_a_result_that_speaks_of_failures_may_be_the_answer(
    task: str, name: str, result: str, answer: str
) -> None:
    steps = calling("clerk", (name, "{}")), tool("clerk", result, name, input="{}")
    assert found(asked(task, *steps, answer=answer)) is None


def test_a_side_call_that_failed_and_changes_nothing_asked_for_is_no_lost_deed() -> None:
    """The search that failed is named by a noun; another search gives the answer."""
    failed = failed_tool("clerk", "index offline", "file_search", input='{"q": "Acme"}')
    other = tool("clerk", "Acme was founded in 1949 in Oslo.", "web_search", input='{"q": "Acme"}')
    steps = calling("clerk", ("file_search", "{}")), failed, calling("clerk", ("web_search", "{}")), other
    assert found(asked("When was Acme founded?", *steps, answer="Acme was founded in 1949 in Oslo.")) is None


TRIP = "What does a trip to Lisbon cost, with flight and hotel?"
NO_FLIGHT = failed_tool("flyer", "HTTP 503 Service Unavailable", "find_flight", input='{"to": "Lisbon"}')
HOTEL = tool("host", '{"hotel": "Tejo", "price": 95}', "find_hotel", input='{"city": "Lisbon"}')


def trip(answer: str, *more: Step, task: str = TRIP) -> Clue | None:
    flyer = step("flyer", "I could not find a flight.", instructions="You find flights.")
    return found(run(NO_FLIGHT, flyer, HOTEL, *more, step("guide", answer), task=task, output=answer))


@pytest.mark.parametrize(
    "answer",
    [
        "I could not find a flight, so I cannot tell you what the trip costs.",
        "Unfortunately the flight search is unavailable right now. Please try again later.",
        "Leider konnte ich keinen Flug finden.",
    ],
)
def test_an_answer_that_only_evades_after_one_of_its_look_ups_failed_delivers_nothing(answer: str) -> None:
    clue = trip(answer)
    assert clue is not None
    assert clue.step == 0
    assert clue.kind is ClueKind.UNDONE
    assert "find_flight, which failed" in clue.reason


def test_what_other_look_ups_gave_a_deed_or_a_text_that_was_ordered_is_delivered() -> None:
    excuse = "Unfortunately the flight search is unavailable right now. Please try again later."
    assert trip("The flight search is unavailable. The hotel costs 95 euros.") is None
    assert trip(excuse, tool("host", '{"ok": true}', "book_hotel", input='{"city": "Lisbon"}')) is None
    assert trip(excuse, task="Write a letter about the trip to Lisbon.") is None
    again = tool("flyer", '{"flight": "TP763", "price": 240}', "find_flight", input='{"to": "Lisbon"}')
    assert trip(excuse, again) is None, "the call was made good"


def test_an_answer_that_no_result_supports_after_its_last_call_failed() -> None:
    """Another call succeeded; the one that answers the question did not."""
    shelf = tool("clerk", '{"shelf": "north wing"}', "find_shelf", input='{"book": "Heidi"}')
    damage = failed_tool("clerk", "scanner jammed", "scan_pages", input='{"book": "Heidi"}')
    steps = (calling("clerk", ("find_shelf", "{}")), shelf, calling("clerk", ("scan_pages", "{}")), damage)
    task = "Are the pages of Heidi damaged, and where is it?"
    assert found(asked(task, *steps, answer="The pages of Heidi look perfect.")) is not None
    assert found(asked(task, *steps, answer="It is in the north wing; I could not scan it.")) is None
    assert found(asked(task, *steps, answer="Heidi stands in the north wing.")) is None


def test_a_run_whose_results_are_not_recorded_is_not_judged() -> None:
    dark = tool("clerk", "", "shelf_of", content=ContentState.ABSENT)
    assert found(asked("Where?", dark, answer="Shelf 9.")) is None
    assert found(run(step("clerk", "", StepKind.LLM), task="Where?", output="")) is None


@pytest.mark.parametrize(
    "answer",
    [
        "Noted. There was a problem with the catalogue.",
        "Verstanden. Der Katalog kann die Etage nicht anzeigen.",
        "C'est noté. Une erreur est survenue dans le catalogue.",
        "Понятно. В каталоге произошла ошибка.",  # noqa: RUF001
        "明白了。目录发生错误。",
        "Anlaşıldı. Katalogda bir hata oluştu.",  # noqa: RUF001
    ],
)
def test_an_acknowledgement_and_the_report_of_an_error_are_no_answer_in_any_language(answer: str) -> None:
    clue = mistake(asked("Heidi?", *looked_up(DOWN), answer=answer))
    assert "gives nothing in its place" in clue.reason


@pytest.mark.parametrize(
    "answer",
    [
        "Verstanden. Der Katalog kann die Etage nicht anzeigen, aber laut Plan stehen Romane oben.",
        "Понятно. В каталоге произошла ошибка, но по плану романы стоят наверху.",  # noqa: RUF001
        "明白了。目录发生错误,但是按平面图小说在楼上。",
    ],
)
def test_what_follows_the_report_of_an_error_may_be_the_answer(answer: str) -> None:
    plan = tool("clerk", "novels: upstairs; romane: oben laut plan; романы наверху; 小说在楼上", "plan")
    assert found(asked("Heidi?", *looked_up(DOWN), plan, answer=answer)) is None


@pytest.mark.parametrize(
    "task",
    [
        "Schreib ihr einen Brief über Heidi.",
        "用中文翻译: Heidi is upstairs",
        "Zusammenfassung bitte: résume Heidi",
    ],
)
def test_a_task_that_orders_a_text_may_get_a_refusal_as_its_text(task: str) -> None:
    refusal = "Es tut mir leid, ich konnte das Buch nicht finden."
    assert found(asked(task, answer=refusal)) is None
    assert found(asked("Auf welcher Etage steht es?", answer=refusal)) is not None


@pytest.mark.parametrize(
    "answer",
    [
        "The catalogue is under maintenance. From general experience: classics mostly stand upstairs.",
        "Der Katalog ist in Wartung. Nach allgemeiner Erfahrung stehen Klassiker oben.",
        "Le catalogue est en maintenance ; par expérience, les classiques se trouvent en haut.",
        "Katalog bakımda. Genel bilgilere göre klasikler üst katta durur.",  # noqa: RUF001
        "カタログはメンテナンス中です。一般論として、古典は上の階にあります。",
    ],
)
def test_general_advice_that_says_so_after_a_failed_look_up_is_no_invention(answer: str) -> None:
    assert found(asked("Wo? Where? 在哪里?", *looked_up(DOWN), answer=answer)) is None


@pytest.mark.parametrize(
    "answer",
    [
        "Classics mostly stand upstairs.",
        "Klassiker stehen oben bei den Romanen.",
        "Les classiques se trouvent en haut.",
        "Klasikler üst katta durur.",
        "古典は上の階にあります。",
    ],
)
def test_advice_that_does_not_say_so_is_from_nowhere(answer: str) -> None:
    clue = mistake(asked("Wo? Where? 在哪里?", *looked_up(DOWN), answer=answer))
    assert "failed and nothing replaced it" in clue.reason


def renewed(task: str, answer: str, lost: str = "send_greeting_sms", *, renews: bool = True) -> Clue | None:
    """A clerk renews Nadia's card, if it does, and a second call for her fails; the answer says so."""
    card = tool("clerk", '{"until": "May"}', "renew_card", input='{"member": "Nadia"}')
    gone = failed_tool("clerk", "GatewayError: quota exceeded", lost, input='{"member": "Nadia"}')
    calls = [("renew_card", '{"member": "Nadia"}')] if renews else []
    steps = (calling("clerk", *calls, (lost, '{"member": "Nadia"}')), *([card] if renews else []), gone)
    return found(asked(task, *steps, answer=answer))


TOLD = "Nadia's card is renewed until May. The greeting could not be sent."


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Renew the card of Nadia.", TOLD),
        (
            "Verlängere den Ausweis von Nadia.",
            "Der Ausweis gilt bis Mai. Der Gruß konnte nicht gesendet werden.",
        ),
        ("Renueva el carné de Nadia.", "El carné vale hasta mayo. No pude enviar el saludo."),
    ],
)
def test_a_notice_that_nobody_asked_for_takes_nothing_from_what_was_done(task: str, answer: str) -> None:
    assert renewed(task, answer) is None


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Renew the card of Nadia and text her.", TOLD),
        (
            "Verlängere den Ausweis von Nadia und schicke ihr einen Gruß.",
            "Der Ausweis gilt bis Mai. Der Gruß konnte nicht gesendet werden.",
        ),
        ("Renueva el carné de Nadia y avísale.", "El carné vale hasta mayo. No pude enviar el saludo."),
    ],
)
def test_a_notice_that_the_task_asks_for_is_missed(task: str, answer: str) -> None:
    clue = renewed(task, answer)
    assert clue is not None
    assert "send_greeting_sms, which failed" in clue.reason


def test_another_deed_is_missed_whatever_the_task_calls_it() -> None:
    answer = "Nadia's card is renewed until May. I could not complete the rest."
    assert renewed("Renew the card of Nadia, who gets her money back.", answer, "send_payment") is not None


def test_a_notice_is_missed_if_nothing_else_was_done() -> None:
    assert renewed("Nadia?", "I could not send the greeting.", renews=False) is not None


def test_a_notice_that_is_claimed_is_missed() -> None:
    assert (
        renewed("Renew the card of Nadia.", "Nadia's card is renewed and the greeting has been sent.")
        is not None
    )


REFUSED = (
    "PermissionError: role 'clerk' may not read field 'address'; letters go through office@books.example"
)
STATE = "CardStateError: card 7 cannot be renewed in state HANDED_TO_CARRIER"
CLOSED = "ReservationRejected: waiting list of Heidi closed 2026-03-03"


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (REFUSED, "I'm afraid I can't give you the address. Write to office@books.example instead."),
        (REFUSED, "Leider darf ich die Adresse nicht nennen. Briefe gehen über office@books.example."),
        (CLOSED, "Sorry, I could not put you on the list: it was closed on 3 March 2026."),
        (STATE, "It can't be renewed any more: the card was handed to the post on Monday."),
        (STATE, "Leider nicht mehr möglich: Die Karte liegt beim Carrier, seit Montag."),
        ("HTTP 409: closed since 2026-03-03", "Désolé, je n'ai pas pu : la liste est close depuis 2026."),
    ],
)
def test_a_refusal_whose_reason_the_answer_passes_on_is_an_answer(error: str, answer: str) -> None:
    for name in ("find_member", "renew_card"):
        refused = failed_tool("clerk", error, name, input='{"member": "Heidi"}')
        calls = (calling("clerk", (name, '{"member": "Heidi"}')), refused)
        assert found(asked("Please do that for Heidi.", *calls, answer=answer)) is None


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (REFUSED, "I'm sorry, I could not do that."),
        ("ConnectionError: connection refused by cards.example", "I could not reach cards.example, sorry."),
        (
            "HTTP 429: rate limit of 60 exceeded",
            "Sorry, I was unable to do that: the limit of 60 was reached.",
        ),
        (
            "HTTP 503: closed for maintenance since 02:00",
            "Sorry, I was unable to renew it: closed since 02:00.",
        ),
    ],
)
def test_a_failure_of_the_machinery_or_a_reason_kept_back_leaves_the_task_undone(
    error: str, answer: str
) -> None:
    refused = failed_tool("clerk", error, "renew_card", input='{"member": "Heidi"}')
    clue = mistake(
        asked(
            "Renew the card of Heidi.",
            calling("clerk", ("renew_card", '{"member": "Heidi"}')),
            refused,
            answer=answer,
        )
    )
    assert clue.kind is ClueKind.UNDONE


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Bitte schick mir den Gutschein per Mail.", "Der Gutschein wurde Ihnen soeben gesendet."),
        ("Envía el vale por correo.", "El vale fue enviado."),
        ("请把优惠券发送给我。", "优惠券已经发送。"),
    ],
)
def test_a_mail_that_failed_and_is_said_to_be_sent_in_any_language(task: str, answer: str) -> None:
    broken = tool(
        "clerk", '{"ok": false, "smtp": "550 User unknown"}', "send_mail", input='{"an": "x@y.example"}'
    )
    voucher = tool("clerk", '{"code": "MG-9043"}', "voucher", input="{}")
    steps = (calling("clerk", ("voucher", "{}")), voucher, calling("clerk", ("send_mail", "{}")), broken)
    clue = mistake(asked(task, *steps, answer=f"MG-9043, x@y.example: {answer}"))
    assert clue.reason.startswith("claimed success")


def test_what_would_follow_from_a_deed_is_no_claim_of_it() -> None:
    answer = "If you cancelled today, it would cost 84 euros. Nothing has been cancelled."
    tools = "cancel_contract(id: string)\nget_policy(code: string)"
    policy = tool("clerk", '{"fee": 12, "months": 7}', "get_policy", input="{}")
    trajectory = run(
        calling("clerk", ("get_policy", "{}")),
        policy,
        step("clerk", answer, tools=tools),
        task="If I cancel, what does it cost? I don't want to cancel yet.",
        output=answer,
    )
    assert found(trajectory) is None


@pytest.mark.parametrize(("count", "is_reported"), [("18,400", True), ("17,250", False)])
def test_the_report_of_a_reached_limit_may_hold_the_answer(count: str, is_reported: bool) -> None:
    probe = failed_tool("meter", "429 Too Many Requests (used=18400; limit=18400)", target="read_counter")
    answer = f"We have sent {count} messages, which is the whole limit."
    steps = (calling("meter", ("read_counter", "{}")), probe, step("host", answer))
    assert (found(asked("How many messages have been sent?", *steps, answer=answer)) is None) is is_reported


PROGRAM = failed_tool("clerk", "sh: 1: labelprint: not found", "shell", input='{"cmd": "labelprint heidi"}')
TABLE = failed_tool("clerk", 'relation "cards" does not exist', "renew_card", input='{"card": 7}')


@pytest.mark.parametrize("missing", [PROGRAM, TABLE])
def test_a_deed_for_which_a_program_or_a_table_is_missing_is_not_done(missing: Step) -> None:
    call = calling("clerk", (missing.target or "", missing.input))
    clue = mistake(asked("Renew card 7 and print its label.", call, missing, answer="Card 7 is renewed."))
    assert "claimed success although" in clue.reason
    told = asked("Is there a table of cards?", call, missing, answer="No, there is no table of cards.")
    assert found(told) is None


@pytest.mark.parametrize(
    ("name", "answer", "is_mistake"),
    [
        ("renew_card", "Card 7 has been renewed.", True),
        ("renew_card", "There is no card 7, so nothing was renewed.", False),
        ("renew_card", "Which card of Heidi do you mean?", False),
        ("delete_card", "Card 7 has been deleted.", False),
    ],
)
def test_a_deed_on_what_does_not_exist_is_not_done(name: str, answer: str, is_mistake: bool) -> None:
    absent = failed_tool("clerk", "card 7 not found", name, input='{"card": 7}')
    steps = calling("clerk", (name, absent.input)), absent
    assert (found(asked("See to card 7, please.", *steps, answer=answer)) is not None) is is_mistake


@pytest.mark.parametrize(
    ("name", "error", "answer", "is_mistake"),
    [
        ("try_query", "Err(UnknownShelf)", "The query fails with UnknownShelf.", False),
        ("try_query", "Err(UnknownShelf)", "The query fails.", True),
        ("try_query", "Err(Timeout)", "The query fails with a timeout.", True),
        ("renew_card", "Err(UnknownShelf)", "The renewal failed with UnknownShelf.", True),
        ("try_query", "(sqlite3.OperationalError) no such table: shelves", "The table is missing.", False),
    ],
)
def test_what_a_program_reports_is_an_answer_if_it_changes_nothing(
    name: str, error: str, answer: str, is_mistake: bool
) -> None:
    failed = tool("clerk", error, name, input='{"text": "all of row 3"}')
    steps = calling("clerk", (name, failed.input)), failed
    assert (found(asked("What comes of row 3?", *steps, answer=answer)) is not None) is is_mistake
