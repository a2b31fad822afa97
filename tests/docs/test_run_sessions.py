"""``blamespan run`` says of five programs what the page on them shows."""

from __future__ import annotations

import pytest

from tools.references.run_sessions import PROGRAMS, Program, session, shown


@pytest.mark.whole
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda one: one.command)
def test_a_program_is_judged_as_its_page_shows(program: Program) -> None:
    found = session(program)
    if found is None:
        pytest.skip("not installed here; `python -m tests.frameworks.install programs vercel_ai_v7` does it")
    assert found == shown()[program.command], "run: python -m tools.references.run_sessions"


def test_the_page_shows_every_program() -> None:
    assert set(shown()) == {one.command for one in PROGRAMS}
