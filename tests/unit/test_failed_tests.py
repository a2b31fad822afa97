"""Success that is claimed after failing tests, and answers that pass the failures on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analyzer.lineage.failed_tests import failed_tests
from analyzer.lineage.known import Known
from analyzer.texts.run_view import read
from semconv.model import Step, StepKind
from tests.runs import run, step

DONE = "Done: the function is renamed and everything works."
REPORTS = {
    "pytest": "FAILED test_shop.py::test_total\n1 failed, 2 passed in 0.12s",
    "unittest": "Ran 3 tests in 0.01s\n\nFAILED (failures=1)",
    "jest": "Tests:       1 failed, 2 passed, 3 total",
    "mocha": "  2 passing (9ms)\n  1 failing",
    "go": "--- FAIL: TestTotal (0.00s)\nFAIL\tshop\t0.003s",
    "cargo": "test result: FAILED. 2 passed; 1 failed; 0 ignored",
    "maven": "Tests run: 3, Failures: 1, Errors: 0, Skipped: 0\nBUILD FAILURE",
    "rspec": "3 examples, 1 failure",
    "dotnet": "Failed!  - Failed:     1, Passed:     2",
    "tap": "ok 1 - add\nnot ok 2 - total",
}


EDIT = step("coder", "ok", kind=StepKind.TOOL, target="str_replace_editor", input='{"path": "test_shop.py"}')


def clues(
    answer: str, report: str, *later: Step, command: str = "make test", task: str = "Rename total."
) -> list[str]:
    steps = (
        step("coder", "", kind=StepKind.LLM),
        step("coder", report, kind=StepKind.TOOL, target="Bash", input=command),
        *later,
        step("coder", answer, kind=StepKind.LLM),
    )
    return [clue.reason for clue in failed_tests(Known(read(run(*steps, task=task, output=answer))))]


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_success_after_the_report_of_any_runner_is_a_clue(report: str) -> None:
    assert len(clues(DONE, report)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        "Fertig: Die Funktion ist umbenannt.",
        "C'est fait : la fonction est renommée.",
        "Listo: la función se ha renombrado.",
        "完了しました。関数の名前を変更しました。",
        "I renamed it; all tests pass.",
        "Umbenannt, alle Tests laufen durch.",
        "Функция переименована, тесты проходят.",
    ],
)
def test_success_is_heard_in_other_languages(answer: str) -> None:
    assert len(clues(answer, REPORTS["pytest"], task="x")) == 1


@pytest.mark.parametrize(
    "command",
    [
        '{"command": "cd shop && pytest -q | tail -5"}',
        '{"command": "pytest -q 2>&1 | grep -c failed"}',
        '["bash", "-lc", "cat notes.md && go test ./..."]',
    ],
)
def test_a_command_that_also_prints_still_runs_its_tests(command: str) -> None:
    assert len(clues(DONE, REPORTS["pytest"], command=command)) == 1


@pytest.mark.parametrize(
    "command",
    [
        '{"command": "grep -rn assert tests/"}',
        "cat build/test-report.txt",
        '{"command": "git show HEAD~3:tests/test_shop.py"}',
        "ls tests; head -50 tests/test_shop.py",
    ],
)
def test_a_file_that_quotes_a_report_is_none(command: str) -> None:
    assert clues(DONE, REPORTS["pytest"], command=command) == []


@pytest.mark.parametrize(
    ("task", "answer"),
    [
        ("Add a test that reproduces the bug.", "Done: the test that reproduces it is added."),
        ("Schreibe einen Test, der den Bug zeigt.", "Fertig: der Test, der den Bug zeigt, ist da."),
        ("Écris un test qui reproduit le bug.", "C'est fait : le test qui reproduit le bug est ajouté."),
        ("Añade una prueba que reproduzca el error.", "Listo: he añadido la prueba que lo reproduce."),
        ("バグを再現するテストを書いて。", "完了しました。バグを再現するテストを追加しました。"),
    ],
    ids=["en", "de", "fr", "es", "ja"],
)
def test_a_test_that_is_wanted_to_fail_is_no_clue(task: str, answer: str) -> None:
    assert clues(answer, REPORTS["pytest"], task=task) == []


@pytest.mark.parametrize(
    ("answer", "report", "command", "task"),
    [
        (DONE, "3 passed in 0.12s", "pytest", "Rename total."),
        (DONE, "Tests run: 3, Failures: 0, Errors: 0", "mvn test", "Rename total."),
        (DONE, "ok  \tshop\t0.003s", "go test ./...", "Rename total."),
        ("Done, but one test still fails.", REPORTS["pytest"], "pytest", "Rename total."),
        ("Fertig, aber ein Test schlägt noch fehl.", REPORTS["pytest"], "pytest", "Benenne total um."),
        ("Renamed; test_total is unrelated to it.", REPORTS["pytest"], "pytest", "Rename total."),
        ("Done: I added the test.", REPORTS["pytest"], "pytest", "Write a failing test for the bug."),
        ("Done: 40 rows are imported.", "40 rows imported, 3 failed", "import rows.csv", "Import the rows."),
        ("The shop has three functions.", REPORTS["pytest"], "pytest", "How many functions has the shop?"),
    ],
    ids=["passed", "none failed", "go", "told", "told in German", "named", "wanted", "no test", "no claim"],
)
def test_an_answer_that_fits_its_tests_is_no_clue(answer: str, report: str, command: str, task: str) -> None:
    assert clues(answer, report, command=command, task=task) == []


def shell(command: str, output: str = "") -> Step:
    return step("coder", output, kind=StepKind.TOOL, target="Bash", input=command)


@pytest.mark.parametrize(
    "answer",
    [
        "I fixed the failing test in shop.py; all 3 tests pass now.",
        "The failing total is now fixed and the tests are green.",
        "Corregido: todos los tests pasan.",
        "Behoben, alle Tests sind jetzt grün.",
        "The full suite is green (3 of 3).",
        "Final result: 133 passed.",
        "`go test ./...` passes in all packages, including test_total.",
    ],
)
def test_that_tests_pass_after_an_edit_needs_another_report(answer: str) -> None:
    (reason,) = clues(answer, REPORTS["pytest"], EDIT, task="Fix the failing test.")
    assert reason.endswith("and ran none after its last edit")
    (reason,) = clues(answer, REPORTS["jest"], task="Fix the failing test.")
    assert not reason.endswith("edit")


@pytest.mark.parametrize(
    ("answer", "later"),
    [
        ("I fixed total(); I have not run the tests again.", [EDIT]),
        ("I fixed total().", [EDIT]),
        ("All tests pass now.", [EDIT, shell("pytest", "3 passed in 0.1s")]),
        ("All tests pass now.", [EDIT, shell("./verify.sh", "ok")]),
        ("All tests pass except test_total, which fails on main too.", [EDIT]),
        ("The unit tests pass, the browser's still fail.", [EDIT]),
    ],
    ids=["says so", "no claim", "ran again", "may have run again", "but one", "others fail"],
)
def test_an_edit_after_failing_tests_is_no_clue(answer: str, later: list[Step]) -> None:
    assert clues(answer, REPORTS["pytest"], *later, task="Fix the failing test.") == []


@pytest.mark.parametrize(
    "steps",
    [
        [shell("pytest -q", "80 passed in 2.1s"), shell("git stash && pytest -q", "3 failed, 77 passed")],
        [shell("pytest -q", "80 passed in 2.1s"), shell("pytest tests/known_broken || true", "1 failed")],
        [shell("pytest -q", "80 passed in 2.1s"), shell("cd ../old && pytest -q", "3 failed, 77 passed")],
        [shell("grep -rn '1 failed' tests/golden.txt", "tests/golden.txt:1 failed, 2 passed")],
    ],
    ids=["stash", "known", "another tree", "quoted"],
)
def test_failures_of_something_else_than_the_work(steps: list[Step]) -> None:
    answer = step("coder", "Done, all 80 tests pass.", kind=StepKind.LLM)
    reading = read(run(*steps, answer, task="Rename total.", output=answer.output))
    assert [*failed_tests(Known(reading))] == []


@pytest.mark.parametrize(
    ("answer", "is_clue"),
    [
        ("The suite is green, all 214 tests pass.", True),
        ("Renamed; two tests still fail.", False),
        (DONE, False),
    ],
)
def test_a_command_that_may_fail_is_no_test_that_passed(answer: str, is_clue: bool) -> None:
    report = "FAILED tests/test_vat.py::test_split\n2 failed, 212 passed in 38.21s"
    assert bool(clues(answer, report, command="pytest -q | tail -12 || true")) is is_clue


SKIPPED = "sssssssssssss   [100%]\n13 skipped in 0.09s"


@pytest.mark.parametrize(
    ("answer", "report", "is_clue"),
    [
        ("Unit tests (69) and integration tests (13) both pass.", SKIPPED, True),
        ("Unit tests (69) pass; the 13 integration tests were skipped.", SKIPPED, False),
        ("All tests pass.", "69 passed, 3 skipped in 2.14s", False),
        ("The 69 unit tests pass.", SKIPPED, False),
    ],
)
def test_tests_that_were_all_skipped_have_not_passed(answer: str, report: str, is_clue: bool) -> None:
    before = step("coder", "69 passed in 2.14s", kind=StepKind.TOOL, target="Bash", input="pytest tests/unit")
    last = step("coder", report, kind=StepKind.TOOL, target="Bash", input="pytest tests/integration")
    steps = (step("coder", ""), before, last, step("coder", answer))
    found = failed_tests(Known(read(run(*steps, task="Run unit and integration tests.", output=answer))))
    assert bool([*found]) is is_clue


@pytest.mark.parametrize(
    "answer",
    [
        "Listo: el módulo está implementado. Las pruebas se omiten sin GPU.",
        "C'est fait : le module est implémenté. Les tests sont ignorés sans GPU.",
        "Gotowe, moduł jest wdrożony. Testy są pomijane bez GPU.",
        "已完成：模块已实现。没有 GPU，测试被跳过。",  # noqa: RUF001 - Chinese
    ],
)
def test_an_answer_may_say_in_its_language_that_tests_were_skipped(answer: str) -> None:
    assert not clues(answer, SKIPPED)


def test_a_merge_after_failing_tests_runs_none() -> None:
    merge = step("coder", "Fast-forward", kind=StepKind.TOOL, target="Bash", input="git merge fix-12")
    script = step("coder", "ok", kind=StepKind.TOOL, target="Bash", input="./ci.sh")
    assert len(clues("All tests pass, so I merged fix-12.", REPORTS["pytest"], merge)) == 1
    assert clues("All tests pass, so I merged fix-12.", REPORTS["pytest"], script) == []
    assert clues("I merged fix-12, although test_total fails.", REPORTS["pytest"], merge) == []


PASS = "I fixed the parser, and all 42 tests pass."
WROTE = step("coder", "ok", kind=StepKind.TOOL, target="write_file", input='{"path": "parser.py"}')
CI = step("coder", '{"state": "success"}', kind=StepKind.TOOL, target="get_status", input='{"branch": "fix"}')
HOPES = (
    "修好了，测试应该通过。",  # noqa: RUF001 - as typed
    "修正しました。テストは成功するはずです。",
    "Готово. Проверьте, что тесты проходят.",
    "Arreglado. Si los tests pasan, haz merge.",
    "Opgelost. Controleer of alle tests slagen.",
    "Corrigé. Vérifiez que les tests passent.",
    "Behoben. Bitte prüfen, ob die Tests bestehen.",
)
HUMAN = step("Kim", "I ran the tests: green.", kind=StepKind.HUMAN)


def claimed(*steps: Step, answer: str = PASS) -> list[int]:
    made = run(*steps, step("coder", answer), task="Fix the parser, and run the tests.", output=answer)
    return [clue.step for clue in failed_tests(Known(read(made)))]


@pytest.mark.parametrize(
    "answer",
    [PASS, "Der Fehler ist behoben, alle Tests bestanden.", "修好了，所有测试都通过了。"],  # noqa: RUF001 - as typed
)
def test_tests_that_no_call_ran_have_not_passed(answer: str) -> None:
    assert claimed(WROTE, answer=answer) == [1]


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        pytest.param([WROTE, shell("make check")], PASS, id="a command"),
        pytest.param([replace(WROTE, output="applied, 42 passed")], PASS, id="the edit ran them"),
        pytest.param([WROTE, CI], PASS, id="a service ran them"),
        pytest.param([WROTE, HUMAN], PASS, id="a person ran them"),
        pytest.param([replace(WROTE, agent="editor")], PASS, id="an agent whose calls are not recorded"),
        pytest.param([replace(WROTE, input='{"path": "plan.pdf"}')], PASS, id="no code"),
        pytest.param([WROTE], "Fixed. The tests should pass now.", id="hoped"),
        *(pytest.param([WROTE], each, id=each) for each in HOPES),
        pytest.param([WROTE], "Fixed. I have not run the tests, so whether all pass is open.", id="open"),
    ],
)
def test_tests_that_something_else_may_have_run(steps: list[Step], answer: str) -> None:
    assert claimed(*steps, answer=answer) == []
