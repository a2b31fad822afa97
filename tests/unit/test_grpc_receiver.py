"""What of a gRPC call is logged."""

from __future__ import annotations

import logging
from typing import Any, Final

import pytest

from collector_processor.receivers.grpc_receiver import is_worth_a_line

CORE: Final[Any] = pytest.importorskip("grpc._cython.cygrpc", reason="its exceptions have no public name")


@pytest.mark.parametrize(
    ("error", "is_told"), [(CORE.ExecuteBatchError("gone"), False), (RuntimeError(), True)]
)
def test_a_client_that_disconnects_is_not_logged(error: Exception, *, is_told: bool) -> None:
    """Our own faults in a call keep their traceback; gRPC's core logs both by the same name."""
    record = logging.makeLogRecord({"exc_info": (type(error), error, None)})
    assert is_worth_a_line(record) is is_told
    assert is_worth_a_line(logging.makeLogRecord({"msg": "anything else"}))
