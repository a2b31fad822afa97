"""Checks between a gRPC call and the sink."""

from __future__ import annotations

from collector_processor.receivers import AdmissionRules
from collector_processor.receivers.grpc_receiver import interceptors


def test_nobody_stands_at_the_door_where_no_token_is_asked_for() -> None:
    assert interceptors(AdmissionRules()) == ()


def test_callers_are_looked_at_before_their_message_where_one_is() -> None:
    assert len(interceptors(AdmissionRules(token="secret"))) == 1
