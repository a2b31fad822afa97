"""Checks between a gRPC call and the sink."""

from __future__ import annotations

import logging
from typing import Any, Final

import pytest

from collector_processor.receivers import AdmissionRules
from collector_processor.receivers.grpc_receiver import interceptors, is_worth_a_line

CORE: Final[Any] = pytest.importorskip("grpc._cython.cygrpc", reason="its exceptions have no public name")


def test_nobody_stands_at_the_door_where_no_token_is_asked_for() -> None:
    assert interceptors(AdmissionRules()) == ()


def test_callers_are_looked_at_before_their_message_where_one_is() -> None:
    assert len(interceptors(AdmissionRules(token="secret"))) == 1


@pytest.mark.parametrize(
    ("error", "is_told"), [(CORE.ExecuteBatchError("gone"), False), (RuntimeError(), True)]
)
def test_a_client_that_went_away_is_no_line_of_the_log(error: Exception, *, is_told: bool) -> None:
    """Our own faults in a call keep their traceback; gRPC's core logs both by the same name."""
    record = logging.makeLogRecord({"exc_info": (type(error), error, None)})
    assert is_worth_a_line(record) is is_told
    assert is_worth_a_line(logging.makeLogRecord({"msg": "anything else"}))
