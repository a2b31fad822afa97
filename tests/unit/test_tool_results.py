"""What a tool's result says of its call, in the shapes that tools and frameworks write."""

from __future__ import annotations

import json

import pytest

from analyzer.texts.commands import call_name
from analyzer.texts.tool_results import Fault, fault_of, reports_failure, says_absent, says_refused
from tests.runs import tool


def fault(result: str, name: str = "start_bell") -> Fault:
    return fault_of(tool("a", result, target=name), result)


@pytest.mark.parametrize(
    "result",
    [
        '{"content": [{"type": "text", "text": "no token"}], "isError": true}',
        '{"content": "no token", "is_error": true}',
        "meta=None content=[TextContent(type='text', text='no token')] structuredContent=None isError=True",
        "{'content': 'no token', 'isError': True}",
        '{"success": false, "reason": "bell is stuck"}',
        '{"ok": false}',
        '{"error": "bell is stuck"}',
        '{"error": {"code": 7, "message": "stuck"}, "data": null}',
        '{"statusCode": 503, "message": "later"}',
        '{"status": "failed", "detail": "stuck"}',
        '{"status": "declined", "bell": 4}',
        '{"status": "timed out"}',
        "[exception: bell is stuck]",
        "Error - bell is stuck",
        "RuntimeError: bell is stuck",
        "Error invoking tool 'ring_bell' with kwargs {}. Please fix your mistakes.",
        "Tool execution failed",
        "Ringing at night is not supported",
        "Failed to ring the bell",
        "403 Forbidden",
        "exit code: 2\nno rope",
        "printed before\nTraceback (most recent call last):\n  File x\nKeyError: 'rope'",
        '{"error": "bad_request", "trace_id": "ab12"}',
        '{"content": [], "isError": "true"}',
        '[{"type": "text", "text": "Error: connection lost"}]',
        '{"errorMessage": "no rope", "errorType": "Lambda"}',
        '{"error": "sin cuerda", "codigo": 503}',
        '{"fehler": "kein Seil", "meldung": "später"}',
        '{"erfolg": false, "meldung": "kein Seil"}',
        '{"sucesso": false}',
        "An error occurred while calling the tool",
        *(
            "Fehler: Seil gerissen",
            "Erreur 503 : corde cassée",
            "错误：绳子断了",  # noqa: RUF001 - Chinese
            "오류: 줄이 끊어짐",
            "Błąd: brak liny",
        ),
        *("Falha ao tocar: corda partida", "Ошибка при звоне: верёвка порвана"),
        *("No se pudo tocar la campana", "Nie udało się zadzwonić", "无法敲钟", "Impossible de sonner"),
        "Le bedeau n'a pas pu sonner : corde cassée",
        '{"code": 403, "msg": "no key to the tower"}',
        '{"code": "PERMISSION_DENIED", "message": "no key to the tower"}',
        '{"codigo": 500, "mensaje": "cuerda rota"}',
        '{"started": false, "reason": "bell is stuck"}',
        '{"estado": "rechazado", "motivo": "es de noche"}',
        '{"esito": "KO", "dettaglio": "corda rotta"}',
        '{"statut": "échec", "motif": "corde cassée"}',
        '{"result": {"status": "FAILED", "failureReason": "bell is stuck"}}',
        '{"kind": "task", "status": {"state": "failed"}}',
        '{"jsonrpc": "2.0", "id": 4, "error": {"code": -32602, "message": "no such bell"}}',
        '{"statusCode": 403, "headers": {"x": "1"}, "body": "no key"}',
        '[{"message": "name is missing", "errorCode": "FIELD", "fields": ["name"]}]',
        '{"failed": 1, "entries": [{"errorCode": "Internal", "errorMessage": "stuck"}]}',
        '{"errcode": 40013, "errmsg": "no such app"}',
        '{"errorMessages": ["the tower is locked"], "errors": {}}',
        '<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
        '<s:Envelope xmlns:s="x"><s:Body><s:Fault>stuck</s:Fault></s:Body></s:Envelope>',
        "<html><head><title>502 Bad Gateway</title></head></html>",
        "rpc error: code = Unavailable desc = no such host",
        '{"resourceType": "OperationOutcome", "issue": [{"severity": "fatal", "code": "structure"}]}',
        '{"BELL": "", "RETURN": [{"TYPE": "E", "ID": "BE", "NUMBER": "007", "MESSAGE": "no rope"}]}',
        '{"bell_ring_response": {"code": "40006", "msg": "no rope", "sub_code": "NO_ROPE"}, "sign": "x9"}',
        '{"return_code": "SUCCESS", "result_code": "FAIL", "err_code": "NOROPE"}',
        '{"data": {"ringBell": {"bell": null, "userErrors": [{"message": "no rope"}]}}}',
        '{"__type": "tower#RopeMissingException", "message": "no rope"}',
        '{"bell": null, "error_code": "NO_ROPE", "error_message": "the rope is gone"}',
        '{"code": "404", "message": "no rope"}',
        '[{"code": "too_small", "minimum": 1, "path": ["bell"], "message": "must be at least 1"}]',
        '[{"type": "missing", "loc": ["bell"], "msg": "Field required"}]',
        "bell: 4\nstatus: failed\nreason: no rope\n",
        "thread 'tokio-1' panicked at src/bell.rs:7:9:\nno rope",
        "panic: no rope\n\ngoroutine 1 [running]:\nmain.ring()",
        "PHP Fatal error:  Uncaught Error: no rope in /srv/bell.php:4",
        "lib/bell.rb:12:in `ring': undefined method `pull' for nil (NoMethodError)",
        'Exception in thread "main" java.io.IOException: no rope',
        "{:error, %Bell.Stuck{rope: 4}}",
        "Err(Stuck { rope: 4 })",
        "(sqlite3.OperationalError) no such column: rope\n[SQL: SELECT rope FROM bells]" + " " * 300,
        "(psycopg.errors.InsufficientPrivilege) permission denied for table bells",
        "Start-Bell : No rope.\nAt line:1 char:1\n    + CategoryInfo          : NotSpecified: (:) []",
        "HTTP/1.1 503 Service Unavailable\nRetry-After: 5\n\nno rope",
        "550 5.7.1 <bell@tower.example>: relaying denied",
        "╷\n│ Error: creating bell: quota\n╵",
    ],
)
def test_a_result_that_reports_a_failure_is_one(result: str) -> None:
    assert fault(result) is Fault.FAILED


@pytest.mark.parametrize(
    "result",
    [
        '{"content": [{"type": "text", "text": "rung"}], "isError": false}',
        '{"status": "ok"}',
        '{"errors": [], "rung": 3}',
        '{"error": null, "rung": 3}',
        '{"status": 200, "rung": true}',
        "The manual says: set isError to true if the bell is stuck. " * 8,
        "The bell was rung without error.",
        "10:02:07 WARN db connection refused\n10:02:09 it timed out\n10:02:11 ok",
        "def ring():\n    try:\n        pull()\n    except TimeoutError:\n        log('timed out')",
        "Status: OK, 412 units shipped",
        "Model A: 2 bells\nModel B: not supported",
        "exit code: 0\nrung",
        *("Fehlerfrei geläutet", "Fehler 7: Seil trocken", "Aucune erreur"),
        '{"code": "OK", "message": "rung"}',
        '{"bell": "B", "rung": false, "day": "Sunday"}',
        '{"errcode": 0, "errmsg": "ok"}',
        '{"error_code": null, "message": "rung"}',
        '{"errorCode": "00000", "message": "rung"}',
        '{"error_code": 200, "message": "rung"}',
        '{"error_code": [], "message": "rung"}',
        '{"failed": 0, "entries": [{"id": "a1"}]}',
        '{"kind": "task", "status": {"state": "completed"}}',
        '{"statusCode": 201, "headers": {}, "body": "{}"}',
        '<s:Envelope xmlns:s="x"><s:Body><RingResponse/></s:Body></s:Envelope>',
        "<html><head><title>500 Bells of Ghent</title></head></html>",
        "rpc error: code = OK desc = rung",
        '{"resourceType": "OperationOutcome", "issue": [{"severity": "information", "code": "rung"}]}',
        '{"BELL": "4", "RETURN": [{"TYPE": "S", "ID": "BE", "NUMBER": "001", "MESSAGE": "rung"}]}',
        '{"bell_ring_response": {"code": "10000", "msg": "Success"}, "sign": "x9"}',
        '{"return_code": "SUCCESS", "result_code": "SUCCESS"}',
        '{"data": {"ringBell": {"bell": {"id": 4}, "userErrors": []}}}',
        '{"type": "ring", "message": "rung"}',
        '[{"code": "too_low", "bell": 4, "message": "tuned too low"}]',
        "bell: 4\nstatus: rung\nreason: wedding\n",
        "thread 'tokio-1' started\nrung",
        "panic: a word that also names a bell",
        "lib/bell.rb:12: pulls the rope",
        "{:ok, %Bell{rope: 4}}",
        "Ok(Bell { rope: 4 })",
        "(bell.tower) rung",
        "HTTP/1.1 204 No Content\n\n",
        "250 2.0.0 rung",
    ],
)
def test_a_result_that_answers_is_no_failure(result: str) -> None:
    assert fault(result) is Fault.NONE


def test_a_heading_of_an_error_in_another_language_is_what_a_tool_looked_up() -> None:
    found = "Fehler im Getriebe: Zahnrad abgenutzt"
    assert fault(found, "read_manual") is Fault.NONE
    assert fault(found, "start_gear") is Fault.FAILED
    assert fault("550 5.7.1 means that relaying is denied", "search_manual") is Fault.NONE


@pytest.mark.parametrize(
    "result",
    ['[{"errorCode": "E7", "message": "door open"}]', '{"estado": "rechazado", "motivo": "es de noche"}'],
)
def test_codes_and_decisions_are_failures_of_deeds_alone(result: str) -> None:
    assert fault(result, "alarms") is Fault.NONE
    assert fault(result, "start_bell") is Fault.FAILED


@pytest.mark.parametrize(
    "result",
    [
        '{"resourceType": "OperationOutcome", "issue": [{"severity": "error", "code": "required"}]}',
        '[{"type": "missing", "loc": ["bell"], "msg": "Field required"}]',
    ],
)
def test_a_tool_that_checks_something_returns_the_errors_of_that(result: str) -> None:
    assert fault(result, "validate_bell") is fault(result, "glocke_pruefen") is Fault.NONE
    assert fault(result, "ring_bell") is Fault.FAILED


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("RUNG_FULL", True),
        ("der Turm ist ausgebucht", True),
        ("本日は満席です", True),
        ("票已售罄", True),
        ("the rope is torn", False),
        ("connection refused: seats are taken", False),
    ],
)
def test_a_service_that_has_none_left_refuses(text: str, is_refused: bool) -> None:
    assert says_refused(text) is is_refused


def test_what_a_tool_looks_up_may_have_failed_itself() -> None:
    payment = '{"id": "P-9", "status": "declined", "amount": 12}'
    assert fault(payment, "get_payment") is Fault.NONE
    assert fault(payment, "charge_card") is Fault.FAILED
    assert fault('{"status": "error", "text": "no such view"}', "get_payment") is Fault.FAILED


@pytest.mark.parametrize(
    "result",
    [
        '{"lift": 2, "status": "error", "floor": 3}',
        '{"id": "L2", "status": "error"}',
        '{"id": "L2", "status": "error", "message": "the door timed out"}',
    ],
)
def test_a_thing_that_is_looked_up_may_be_in_error(result: str) -> None:
    def found(name: str) -> Fault:
        return fault_of(tool("a", result, target=name, input='{"lift": "L2"}'), result)

    assert found("get_lift") is found("lift_report") is Fault.NONE
    assert found("start_lift") is Fault.FAILED


@pytest.mark.parametrize(
    "result",
    [
        *(
            "[]",
            "{}",
            "null",
            "None",
            "No results for “Basel”",
            '{"results": []}',
            '{"items": [], "total": 0}',
        ),
        *('{"data": null}', '{"hits": [], "took_ms": 4, "query": "basil"}', "{'rows': []}", "[[], []]", ""),
    ],
)
def test_a_result_without_anything_in_it_is_empty(result: str) -> None:
    assert fault(result, "find_bell") is Fault.EMPTY


@pytest.mark.parametrize(
    "result",
    [
        '{"expired": [], "next": {"bell": 4, "days": 19}}',
        '{"bell": 4, "repairs": []}',
        "[0]",
        '{"count": 0}',
        "There is nothing wrong with the bell.",
    ],
)
def test_a_result_with_something_beside_an_empty_list_answers(result: str) -> None:
    assert fault(result, "find_bell") is Fault.NONE


def test_an_agents_words_on_errors_are_no_result() -> None:
    assert reports_failure("Error: it is stuck")
    spoken = "Error: it is stuck"
    assert fault_of(tool("a", spoken, target="x"), spoken) is Fault.FAILED


@pytest.mark.parametrize(
    ("text", "is_absent"),
    [
        ("HTTP 404", True),
        ("bell 77 not found", True),
        ("NotFoundError: no such bell", True),
        ("the bell does not exist", True),
        ("connection refused", False),
        ("the key has expired", False),
    ],
)
def test_an_error_may_say_that_there_is_no_such_thing(text: str, is_absent: bool) -> None:
    assert says_absent(text) is is_absent


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ('{"accepted": [], "rejected": ["x@y.example"], "response": "550 5.1.2"}', Fault.FAILED),
        ('{"rejected": ["x@y.example"]}', Fault.FAILED),
        ('{"accepted": ["a@b.example"], "rejected": ["x@y.example"]}', Fault.NONE),
        ('{"accepted": ["a@b.example"], "rejected": []}', Fault.NONE),
    ],
)
def test_a_deed_that_was_refused_for_all_is_a_failure(result: str, expected: Fault) -> None:
    assert fault(result, "send_mail") is expected


def shell(command: str, result: str = "") -> Fault:
    return fault_of(tool("a", result, target="bash", input=json.dumps({"command": command})), result)


@pytest.mark.parametrize(
    "result",
    [
        "! [rejected] main -> main\nerror: failed to push some refs to 'origin'",
        "Everything is ready\nfatal: unable to access 'https://git.example/': timeout",
        "! [rejected]\n[exit code: 1]",
        "[The command completed with exit code 128.]",
        '{"stdout": "", "stderr": "! [rejected]", "exit_code": 1}',
        '{"output": "! [rejected]", "returncode": 1}',
        "bash: git: command not found",
    ],
)
def test_a_command_that_changes_something_says_at_its_end_that_it_failed(result: str) -> None:
    assert shell("git add -A && git push origin main", result) is Fault.FAILED


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("git push", "   9e8d..1a2b  main -> main"),
        ("git push", "remote: error budget is used up\n   9e8d..1a2b  main -> main"),
        ("grep -rn TODO src", "[exit code: 1]"),
        ("cat app.log | tail -1", "error: no route to host"),
        ("kubectl logs web-1", "fatal: out of memory"),
        ("pytest -q", "1 failed, 2 passed\n[exit code: 1]"),
        ("git log --oneline", "1a2b error: handle timeouts"),
        ("python report.py", "Requests: 900\nError rate: 3 %"),
        ("python report.py", "Rows: 900\nErrors: 0"),
        ("sed -i s/a/b/ f.py", ""),
        ("mkdir -p out && cp a out/", ""),
        ("cat > f.py <<'E'\nerror: 1\nE", ""),
    ],
)
def test_what_a_command_reads_checks_or_does_in_silence_is_no_failure(command: str, result: str) -> None:
    assert shell(command, result) is not Fault.FAILED
    assert result or shell(command, result) is Fault.NONE


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("git add -A && git commit -m 'fix; push' && git push origin main", "git push"),
        ("cd /x && FOO=1 sudo rm -rf build", "delete rm build"),
        ("kubectl -n prod scale deploy/web --replicas=4", "kubectl scale"),
        ("kubectl get pods | grep web", "read grep web"),
        ("grep -rl x . | xargs -r sed -i 's/a/b/'", "edit sed"),
        ("gh pr create --title 'x'", "gh pr create"),
        ("apt-get install -y jq", "apt install"),
        ("npm test 2>&1 | tail", "check npm test"),
        ("vendor/bin/phpunit 2>&1 | tail -3", "check phpunit"),
        ("python -m pytest -q", "check python pytest"),
        ("rm -rf tests/tmp test", "delete rm"),
        ("docker rm -f test-db", "delete docker rm"),
        ("helm uninstall web -n test", "helm uninstall"),
        ("find . -name '*.pyc' -delete", "delete find"),
        ("ls tests; head -50 tests/a.py", "read head"),
        ("mailx -s log kim@x.example < tests/run.log", "bash"),
        ("echo hi > f.txt", "write echo hi"),
        ("python -c 'x.push()'", "bash"),
        ("./release.sh", "bash"),
        ("", "bash"),
        ("&& ; |", "bash"),
        ("'" * 5_000, "bash"),
    ],
)
def test_a_shells_call_has_the_name_of_what_it_does(command: str, name: str) -> None:
    assert call_name(tool("a", target="bash", input=json.dumps({"command": command}))) == name
    listed = json.dumps({"command": ["bash", "-lc", command]})
    assert call_name(tool("a", target="shell", input=listed)) == name.replace("bash", "shell")


def test_a_tool_that_is_no_shell_has_its_own_name() -> None:
    assert call_name(tool("a", target="book_room", input='{"command": "git push"}')) == "book_room"


@pytest.mark.parametrize(
    ("tool_name", "method", "name"),
    [
        ("http", "DELETE", "delete http"),
        ("api", "get", "get api"),
        ("http", "TRACE", "http"),
        ("find_room", "POST", "find_room"),
        ("pay", "POST", "pay"),
    ],
)
def test_a_request_has_the_name_of_its_method_if_the_tools_name_tells_nothing(
    tool_name: str, method: str, name: str
) -> None:
    assert call_name(tool("a", target=tool_name, input=json.dumps({"method": method}))) == name


@pytest.mark.parametrize(
    ("program", "arguments", "name"),
    [
        ("git", '{"args": "switch release/4.5 && git cherry-pick -x 7be91c4"}', "git cherry-pick"),
        ("kubectl", '{"args": "--context prod get pods -n mailer"}', "read kubectl get"),
        ("lbctl", '{"cmd": "drain --pool web --node app-17"}', "lbctl drain"),
        ("systemctl", '{"host": "redis-1", "action": "restart", "unit": "redis"}', "systemctl restart"),
        ("search", '{"query": "restart redis"}', "search"),
        ("pool", '{"action": 3}', "pool"),
    ],
)
def test_a_tool_that_is_a_program_has_the_name_of_its_subcommand(
    program: str, arguments: str, name: str
) -> None:
    assert call_name(tool("a", target=program, input=arguments)) == name


@pytest.mark.parametrize(
    ("name", "arguments", "result", "expected"),
    [
        ("update_bell", '{"id": "7", "status": "rejected"}', '{"id": "7", "status": "rejected"}', Fault.NONE),
        ("update_bell", '{"id": "7", "status": "open"}', '{"id": "7", "status": "rejected"}', Fault.FAILED),
        ("reject_bell", '{"id": "7"}', '{"id": "7", "status": "rejected"}', Fault.NONE),
        ("deny_bell", '{"id": "7"}', '{"id": "7", "status": "denied"}', Fault.NONE),
        ("decline_bell", '{"id": "7"}', '{"id": "7", "status": "failed"}', Fault.FAILED),
        ("create_bug", '{"error": "BellError"}', '{"id": "B-9", "error": "BellError"}', Fault.NONE),
        ("create_bug", '{"error": "BellError"}', '{"id": "B-9", "error": "no such board"}', Fault.FAILED),
        ("get_last_error", "{}", '{"error": "the rope broke", "timestamp": "03:12"}', Fault.NONE),
        ("get_last_error", "{}", '{"error": "unauthorized", "code": 401}', Fault.FAILED),
        ("get_last_error", "{}", '{"error": "unauthorized"}', Fault.FAILED),
        ("create_bell", "{}", '{"id": "7", "errorCode": "00"}', Fault.NONE),
        ("send_bells", "{}", '{"rejected": [7, 8]}', Fault.FAILED),
        ("reject_bells", "{}", '{"rejected": [7, 8]}', Fault.NONE),
        ("delete_bells", "{}", '{"deleted": [7], "failed": [8]}', Fault.FAILED),
        ("create_bell", "{}", '{"id": "7", "errorCode": "07"}', Fault.FAILED),
    ],
)
def test_what_a_call_set_or_was_to_find_is_not_its_own_failure(
    name: str, arguments: str, result: str, expected: Fault
) -> None:
    assert fault_of(tool("a", result, target=name, input=arguments), result) is expected


@pytest.mark.parametrize(
    ("command", "expected"), [("pgrep ringer", Fault.NONE), ("ringer --once", Fault.FAILED)]
)
def test_a_search_that_ends_with_1_found_nothing(command: str, expected: Fault) -> None:
    result = '{"stdout": "", "stderr": "", "exit_code": 1}'
    called = tool("a", result, target="ssh", input=json.dumps({"cmd": command}))
    assert fault_of(called, result) is expected
