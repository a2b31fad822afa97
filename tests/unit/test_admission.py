from __future__ import annotations

import hmac
from collections.abc import Iterator
from hmac import compare_digest

import pytest

from collector_processor.core.headers import bears
from collector_processor.otlp import CollectorError, MalformedRequestError, RefusedError, Tenant
from collector_processor.otlp.answers import RpcCode
from collector_processor.receivers.admission import (
    BROKEN,
    AdmissionRules,
    Caller,
    TurnedAwayError,
    admit,
    refusal_of,
)


def test_only_the_tenant_headers_asked_for_are_part_of_the_tenant() -> None:
    rules = AdmissionRules(tenant_header_names=("x-org", "x-team"))
    caller = admit([("X-Team", "b&c"), ("X-Org", "a"), ("X-Other", "z")], rules)
    assert caller.tenant == "x-org=a&x-team=b%26c"


def test_a_request_that_says_nothing_is_nobodys() -> None:
    assert admit([], AdmissionRules()) == Caller(tenant=Tenant(""), hops=())


def test_headers_that_come_twice_are_one_list() -> None:
    caller = admit([("x-blamespan-hop", "one"), ("X-Blamespan-Hop", "two,three")], AdmissionRules())
    assert caller.hops == ("one", "two", "three")


def test_a_tenant_header_that_comes_twice_is_malformed() -> None:
    """A proxy that adds the tenant's header must not be overruled, or joined, by what its client sent."""
    with pytest.raises(MalformedRequestError, match="x-scope-orgid only once"):
        admit([("x-scope-orgid", "red"), ("X-Scope-OrgID", "red")], AdmissionRules())


def test_a_token_header_that_comes_twice_holds_no_token() -> None:
    with pytest.raises(TurnedAwayError):
        admit([("x-blamespan-token", "sesame")] * 2, AdmissionRules(token="sesame"))


def test_a_stranger_costs_as_much_as_the_first_headers() -> None:
    """The token is compared first, and of millions of headers no more than 129 are looked at."""
    looked_at = 0

    def endless() -> Iterator[tuple[str, str]]:
        nonlocal looked_at
        while True:
            looked_at += 1
            yield ("x", "y")

    with pytest.raises(TurnedAwayError) as refusal:
        admit(endless(), AdmissionRules(token="sesame"))
    assert refusal.value.refusal.http_status == 401
    with pytest.raises(TurnedAwayError) as refusal:
        admit(endless(), AdmissionRules())
    assert (refusal.value.refusal.http_status, refusal.value.refusal.code) == (
        431,
        RpcCode.RESOURCE_EXHAUSTED,
    )
    assert not bears(endless(), "sesame")
    assert looked_at <= 3 * 129


def test_as_many_headers_as_are_allowed_are_read() -> None:
    headers = [(f"x-{number}", "y") for number in range(127)]
    assert admit([*headers, ("x-scope-orgid", "red")], AdmissionRules()).tenant == "x-scope-orgid=red"


def test_binary_metadata_is_passed_over() -> None:
    assert admit([("grpc-trace-bin", b"\x00\xff")], AdmissionRules()) == Caller()


@pytest.mark.parametrize("name", ["x-scope-orgid", "x-blamespan-hop"])
@pytest.mark.parametrize("value", ["Zoë", "a\tb", "\udcff", "a\r\nx-evil: 1"])
def test_what_could_not_go_on_as_a_header_is_malformed(name: str, value: str) -> None:
    with pytest.raises(MalformedRequestError, match=name):
        admit([(name, value)], AdmissionRules())


def test_a_token_may_hold_any_character() -> None:
    rules = AdmissionRules(token="žluť")
    assert admit([("authorization", "Bearer žluť")], rules) == Caller()
    with pytest.raises(TurnedAwayError):
        admit([("authorization", "Bearer \udcff")], rules)


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", "Bearer sesame")],
        [("x-blamespan-token", "sesame")],
        [("authorization", "Bearer s")],
    ],
)
def test_both_headers_are_compared_in_a_time_that_tells_nothing(
    headers: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the first token is, our comparison never stops at the first different letter."""
    compared: list[bytes] = []

    def compare(given: bytes, wanted: bytes) -> bool:
        compared.append(given)
        return compare_digest(given, wanted)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    is_right = dict(headers).popitem()[1].endswith("sesame")
    assert bears(headers, "sesame") is is_right
    assert len(compared) == 2


def test_an_empty_token_cannot_be_a_rule() -> None:
    """A request without a token would be labelled with it."""
    with pytest.raises(ValueError, match="empty"):
        AdmissionRules(token="")


@pytest.mark.parametrize(("wait_s", "header"), [(0.01, "1"), (1.0, "1"), (1.2, "2"), (30.0, "30")])
def test_retry_after_is_whole_seconds_rounded_up(wait_s: float, header: str) -> None:
    refusal = refusal_of(RefusedError("full", retry_after_s=wait_s))
    assert refusal.retry_after_header == {"Retry-After": header}


def test_an_error_the_door_does_not_know_is_our_fault_and_keeps_its_text_to_itself() -> None:
    assert refusal_of(CollectorError("text of a span")) is BROKEN
    assert "span" not in BROKEN.reason
