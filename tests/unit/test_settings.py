"""Settings follow OpenTelemetry's rules for its variables; errors name the variable."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector_processor.otlp import Signal
from collector_processor.otlp.destination import Protocol
from collector_processor.settings import (
    FILE_ONLY,
    SettingsError,
    WriteBack,
    load_settings,
    require_token,
    unknown_variables,
)
from tools.references.settings_reference import PAGE, page


def test_defaults_listen_on_loopback_and_forward_nowhere() -> None:
    settings = load_settings({})
    assert [str(listener) for listener in settings.listeners] == [
        "127.0.0.1:4317",
        "127.0.0.1:4318",
        "127.0.0.1:8500",
    ]
    assert settings.endpoints == {}
    assert settings.write_back is WriteBack.LATE
    assert settings.budget_usd_per_run == 0.5


def test_hold_may_have_a_duration_in_milliseconds() -> None:
    held = load_settings({"BLAMESPAN_WRITE_BACK": "hold"})
    assert (held.write_back, held.hold_max) == (WriteBack.HOLD, 20_000)
    held = load_settings({"BLAMESPAN_WRITE_BACK": "hold:1500"})
    assert (held.write_back, held.hold_max) == (WriteBack.HOLD, 1500)
    for wrong in ("hold:", "hold:0", "hold:-1", "hold:1.5", "hold:soon", "hold:٣", "hold:3600001"):
        with pytest.raises(
            SettingsError, match=f"BLAMESPAN_WRITE_BACK={wrong}: expected late, hold or hold:M"
        ):
            load_settings({"BLAMESPAN_WRITE_BACK": wrong})


def test_empty_means_unset() -> None:
    settings = load_settings({"BLAMESPAN_ROOT_GRACE": "", "OTEL_EXPORTER_OTLP_ENDPOINT": " "})
    assert settings.root_grace == 10_000
    assert settings.endpoints == {}


def test_times_are_milliseconds() -> None:
    limits = load_settings({"BLAMESPAN_ROOT_GRACE": "250"}, idle_close=1500).assembler_limits
    assert (limits.root_grace_s, limits.idle_close_s) == (0.25, 1.5)


@pytest.mark.parametrize(
    ("max_age_ms", "silence_s", "age_s"),
    [
        pytest.param(3_600_000, 4_500, 43_200, id="an hour"),
        pytest.param(2_000, 2.5, 24, id="soon"),
        pytest.param(21_600_000, 27_000, 64_800, id="within the day for which spans are kept"),
    ],
)
def test_a_run_may_pause_as_long_as_the_setting_says_and_several_times(
    max_age_ms: int, silence_s: float, age_s: float
) -> None:
    limits = load_settings({}, max_age=max_age_ms).assembler_limits
    assert (limits.max_silence_s, limits.max_age_s) == (silence_s, age_s)


def test_one_otel_endpoint_serves_every_signal() -> None:
    endpoints = load_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://jaeger:4317/"}).endpoints
    assert {signal: endpoint.endpoint for signal, endpoint in endpoints.items()} == dict.fromkeys(
        Signal, "http://jaeger:4317"
    )
    assert {endpoint.protocol for endpoint in endpoints.values()} == {Protocol.GRPC}
    assert {endpoint.max_bytes for endpoint in endpoints.values()} == {4 << 20}


@pytest.mark.parametrize(
    ("url", "protocol"),
    [
        ("http://jaeger:4317", Protocol.GRPC),
        ("http://jaeger:4318", Protocol.HTTP_PROTOBUF),
        ("http://[::1]:4318/base", Protocol.HTTP_PROTOBUF),
        ("http://jaeger:43181", Protocol.GRPC),
        ("http://jaeger:9/:4318", Protocol.GRPC),
        ("https://jaeger", Protocol.GRPC),
    ],
)
def test_without_a_protocol_the_port_decides_it(url: str, protocol: Protocol) -> None:
    endpoints = load_settings({"OTEL_EXPORTER_OTLP_ENDPOINT": url}).endpoints
    assert {endpoint.protocol for endpoint in endpoints.values()} == {protocol}


def test_a_signals_own_endpoint_is_used_unchanged_and_first() -> None:
    endpoints = load_settings(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://all:4318",
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://logs:9/ingest",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }
    ).endpoints
    logs, traces = endpoints[Signal.LOGS], endpoints[Signal.TRACES]
    assert (logs.endpoint, logs.is_exact) == ("http://logs:9/ingest", True)
    assert (traces.endpoint, traces.is_exact) == ("http://all:4318", False)
    assert traces.max_bytes == 20 << 20


def test_our_own_endpoint_setting_overrides_otels() -> None:
    endpoints = load_settings(
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://us:4317",
            "BLAMESPAN_FORWARD_ENDPOINT": "http://backend:4317",
            "BLAMESPAN_FORWARD_HEADERS": "authorization=Bearer%20abc, X-Team = a ",
        }
    ).endpoints
    assert endpoints[Signal.TRACES].endpoint == "http://backend:4317"
    assert endpoints[Signal.TRACES].headers == {"authorization": "Bearer abc", "x-team": "a"}


BACKEND = {
    "BLAMESPAN_FORWARD_ENDPOINT": "http://jaeger:4317",
    "BLAMESPAN_FORWARD_HEADERS": "authorization=Bearer%20abc",
}


def test_a_separate_endpoint_for_logs_gets_no_credentials_of_the_traces_backend() -> None:
    elsewhere = {"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://loki:3100/otlp/v1/logs"}
    endpoints = load_settings(BACKEND | elsewhere).endpoints
    assert endpoints[Signal.LOGS].endpoint == "http://loki:3100/otlp/v1/logs"
    assert (endpoints[Signal.LOGS].headers, endpoints[Signal.LOGS].is_exact) == ({}, True)
    assert endpoints[Signal.METRICS].endpoint == "http://jaeger:4317"


@pytest.mark.parametrize("ours", [BACKEND, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://jaeger:4317"}])
def test_a_signal_can_be_turned_off(ours: dict[str, str]) -> None:
    off = {f"OTEL_EXPORTER_OTLP_{one}_ENDPOINT": "none" for one in ("LOGS", "METRICS")}
    assert list(load_settings(ours | off).endpoints) == [Signal.TRACES]


def test_otel_exporter_endpoints_do_not_change_where_we_forward_to() -> None:
    agents = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://elsewhere:4317",
        "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://localhost:4318/v1/logs",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://127.0.0.1:4317",
    }
    endpoints = load_settings(BACKEND | agents).endpoints
    assert {destination.endpoint for destination in endpoints.values()} == {"http://jaeger:4317"}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        pytest.param({"BLAMESPAN_ROOT_GRACE": "2s"}, "BLAMESPAN_ROOT_GRACE='2s'", id="not milliseconds"),
        pytest.param({"BLAMESPAN_WRITE_BACK": "never"}, "BLAMESPAN_WRITE_BACK='never'", id="no such mode"),
        pytest.param({"BLAMESPAN_WEB_LISTEN": "8500"}, "expected host:port", id="no port"),
        pytest.param({"BLAMESPAN_OTLP_GRPC_LISTEN": "a:99999"}, "expected host:port", id="port too large"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": "ftp://x"}, "expected http://", id="no such scheme"),
        pytest.param({"BLAMESPAN_FORWARD_ENDPOINT": "nonsense"}, "or host:port", id="a bare word"),
        pytest.param({"BLAMESPAN_FORWARD_ENDPOINT": "a/b:1"}, "or host:port", id="a path"),
        pytest.param(
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "x:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "carrier-pigeon"},
            "expected grpc, http/protobuf or http/json",
            id="no such protocol",
        ),
        pytest.param(
            {"BLAMESPAN_FORWARD_ENDPOINT": "b:1", "BLAMESPAN_FORWARD_HEADERS": "a b=hush"},
            "expected name=value",
            id="no such header name",
        ),
        pytest.param(
            {"BLAMESPAN_FORWARD_ENDPOINT": "b:1", "BLAMESPAN_FORWARD_HEADERS": "a=hush%0ab"},
            "expected name=value",
            id="a header value that breaks the line",
        ),
        pytest.param(
            {"BLAMESPAN_FORWARD_ENDPOINT": "https://user:hush@b:1"},
            "set a header instead",
            id="password in a URL",
        ),
        pytest.param(
            {"BLAMESPAN_STORE_URL": "mysql://u:hush@h/db"},
            "expected postgresql://",
            id="another store",
        ),
        pytest.param(
            {"BLAMESPAN_STORE_URL": "postgresql+asyncpg://u:hush@h/db"},
            "expected postgresql://",
            id="another driver",
        ),
        pytest.param(
            {"BLAMESPAN_STORE_URL": "postgres://u:p@hush@h/db"},
            "percent-encoded: %40",
            id="a password with the sign that ends it",
        ),
        pytest.param({"BLAMESPAN_QUEUE": "kafka://hush"}, "BLAMESPAN_QUEUE=…: ", id="no such queue"),
        pytest.param(
            {"BLAMESPAN_QUEUE": "kafka://b:1?sasl.password=hush"},
            "unknown property 'sasl.password'; expected one of topics, security.protocol,",
            id="a property of Kafka that is a secret",
        ),
        pytest.param(
            {"BLAMESPAN_QUEUE": "kafka://b:1?group.id=a&security.protocol=tls"},
            "security.protocol=tls: expected plaintext or ssl or sasl_plaintext or sasl_ssl",
            id="a value that Kafka does not know",
        ),
        pytest.param(
            {"BLAMESPAN_QUEUE": "kafka://b:1?message.max.bytes=9999"},
            "message.max.bytes=9999: expected 10000 to 999999999",
            id="records too small for a span",
        ),
        pytest.param(
            {"BLAMESPAN_QUEUE": "kafka://b:1?topics=spans,logs"},
            "topics: expected three different ones",
            id="topics of two signals",
        ),
        *(
            pytest.param(
                {"BLAMESPAN_QUEUE": f"kafka://{user}@b:1?security.protocol=sasl_ssl"},
                "percent-encoded",
                id=f"the user {user}",
            )
            for user in (
                "u",
                "u:",
                ":hush",
                "u:hush@x",
                "u:hush/x",
                "u:hush%4",
                "u:hush?",
                "u:hush#",
                "u:a:hush",
                "u:12?hush",
            )
        ),
        pytest.param(
            {"BLAMESPAN_QUEUE": "kafka://u:12?security.protocol=hush@b:1"},
            "percent-encoded",
            id="a password that looks like parameters",
        ),
        pytest.param(
            {"BLAMESPAN_QUEUE": "kafka://u:hush@b:1"},
            "expected user:password@ together",
            id="a user in clear",
        ),
        pytest.param(
            {"BLAMESPAN_QUEUE": "kafka://b:1?security.protocol=sasl_ssl"},
            "expected user:password@ together",
            id="nobody signs in",
        ),
        pytest.param({"BLAMESPAN_STORAGE_BYTES": "5"}, "BLAMESPAN_STORAGE_BYTES='5'", id="no room"),
        pytest.param(
            {"BLAMESPAN_OTLP_GRPC_LISTEN": "0.0.0.0:4317"}, "set BLAMESPAN_TOKEN", id="open without token"
        ),
        pytest.param({"BLAMESPAN_OTLP_HTTP_LISTEN": ":4318"}, "set BLAMESPAN_TOKEN", id="every interface"),
    ],
)
def test_errors_name_the_variable_the_value_and_what_was_expected(
    environ: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        require_token(load_settings(environ))
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_listening_beyond_loopback_needs_a_token_which_is_never_shown() -> None:
    settings = load_settings({"BLAMESPAN_OTLP_GRPC_LISTEN": "0.0.0.0:4317", "BLAMESPAN_TOKEN": "hush-hush"})
    assert "hush-hush" not in repr(settings)


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    (tmp_path / "blamespan.toml").write_text('root_grace = 100\nmodel = "ollama/x"\n')
    settings = load_settings({"BLAMESPAN_ROOT_GRACE": "200"}, directory=tmp_path)
    assert (settings.root_grace, settings.model) == (200, "ollama/x")
    assert load_settings({}, directory=tmp_path, model="other/y").model == "other/y"


def test_a_misspelled_variable_is_reported_with_the_closest_name() -> None:
    environ = {
        "BLAMESPAN_ROOTGRACE": "5",
        "BLAMESPAN_XYZZY": "x",
        "BLAMESPAN_MODEL": "a/b",
        "HOME": "/",
        "BLAMESPAN_SERVICE_HOST": "10.0.0.1",
        "BLAMESPAN_SERVICE_PORT_OTLP_GRPC": "4317",
        "BLAMESPAN_ANALYZER_PORT_8500_TCP_ADDR": "10.0.0.1",
        "BLAMESPAN_PORT": "tcp://10.0.0.1:4317",
    }
    assert unknown_variables(environ) == {
        "BLAMESPAN_ROOTGRACE": "BLAMESPAN_ROOT_GRACE",
        "BLAMESPAN_XYZZY": None,
    }


def test_opentelemetrys_variables_say_when_our_own_metrics_are_sent() -> None:
    assert load_settings({"OTEL_METRIC_EXPORT_INTERVAL": "5"}).export_metrics_ms == 0
    environ = {"OTEL_METRICS_EXPORTER": "console, otlp"}
    assert load_settings(environ).export_metrics_ms == 60_000
    assert load_settings(environ | {"OTEL_METRIC_EXPORT_INTERVAL": "5"}).export_metrics_ms == 5
    with pytest.raises(SettingsError, match="OTEL_METRIC_EXPORT_INTERVAL=0: expected"):
        load_settings(environ | {"OTEL_METRIC_EXPORT_INTERVAL": "0"})


def test_kafkas_properties_reach_its_clients_by_their_own_names() -> None:
    environ = {
        "BLAMESPAN_QUEUE": "kafka://a:9092,b:9092",
        "BLAMESPAN_STORE_URL": "postgresql+psycopg://db",
    }
    plain = load_settings(environ).kafka
    assert plain is not None
    assert (plain.group, plain.max_record_bytes) == ("blamespan", 1_000_000)
    assert plain.common["security.protocol"] == "plaintext"
    assert "sasl.password" not in plain.common
    assert plain.topics == dict(zip(Signal, ("otlp_spans", "otlp_logs", "otlp_metrics"), strict=True))
    given = "security.protocol=sasl_ssl&ssl.ca.location=/a%26b+c.pem&group.id=ours&message.max.bytes=20000"
    url = f"kafka://blame:hush%40%3A@a:9092,[::1]:9092?{given}&topics=t,l,m"
    settings = load_settings(environ | {"BLAMESPAN_QUEUE": url})
    secured = settings.kafka
    assert secured is not None
    assert (secured.group, secured.max_record_bytes) == ("ours", 20_000)
    assert secured.topics == dict(zip(Signal, "tlm", strict=True))
    assert "hush" not in repr(secured) + repr(settings)
    assert secured.common == {
        "bootstrap.servers": "a:9092,[::1]:9092",
        "client.id": "blamespan",
        "log_level": 4,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.password": "hush@:",
        "sasl.username": "blame",
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": "/a&b+c.pem",
    }


@pytest.mark.parametrize("url", ["http://jaeger/trace", "jaeger/{trace_id}", "javascript:{trace_id}"])
def test_a_trace_url_needs_a_scheme_and_a_placeholder_for_the_id(url: str) -> None:
    with pytest.raises(SettingsError, match="BLAMESPAN_TRACE_URL"):
        load_settings({"BLAMESPAN_TRACE_URL": url})


def test_the_host_of_our_pages_is_a_name_of_this_machine() -> None:
    assert load_settings({}).allowed_host_names == ()
    assert load_settings({"BLAMESPAN_WEB_URL": "https://Blame.example:8443/x"}).allowed_host_names == (
        "blame.example",
    )


@pytest.mark.parametrize(
    "text", ["root_grace = ", "no_such = 1", "shutdown_s = 1"], ids=["broken", "unknown", "no setting"]
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "blamespan.toml").write_text(text)
    with pytest.raises(SettingsError, match=r"blamespan\.toml"):
        load_settings({}, directory=tmp_path)


@pytest.mark.parametrize("key", ["BLAMESPAN_ROOT_GRACE", "Root_Grace", "root_graze"])
def test_a_key_like_a_setting_is_refused_with_its_name(tmp_path: Path, key: str) -> None:
    (tmp_path / "blamespan.toml").write_text(f"{key} = 100")
    with pytest.raises(SettingsError, match=f"unknown setting '{key}'; expected 'root_grace'"):
        load_settings({}, directory=tmp_path)


@pytest.mark.parametrize("name", sorted(FILE_ONLY))
def test_a_variable_of_a_key_that_only_the_file_has_is_refused(tmp_path: Path, name: str) -> None:
    variable = f"BLAMESPAN_{name.upper()}"
    with pytest.raises(SettingsError, match=f"^{variable}: expected {name} in blamespan.toml") as told:
        load_settings({variable: "hush"})
    assert "hush" not in str(told.value)
    load_settings({variable: " "})  # empty means unset
    value = 0.5 if name == "early_false_alarms" else 1
    (tmp_path / "blamespan.toml").write_text(f"{name} = {value}")
    assert getattr(load_settings({}, directory=tmp_path), name) == value


@pytest.mark.parametrize(
    ("grace_ms", "idle_s", "silence_s"),
    [
        pytest.param(200, 60, 4_500, id="at least a minute and an hour"),
        pytest.param(10_000, 60, 4_500, id="the default"),
        pytest.param(30_000, 180, 13_500, id="slow senders"),
        pytest.param(600_000, 3_600, 64_800, id="a pause is no longer than the longest run"),
    ],
)
def test_the_other_timers_follow_from_the_grace(grace_ms: int, idle_s: float, silence_s: float) -> None:
    limits = load_settings({"BLAMESPAN_ROOT_GRACE": str(grace_ms)}).assembler_limits
    assert (limits.idle_close_s, limits.max_silence_s) == (idle_s, silence_s)


def test_one_setting_bounds_all_spans_and_logs_and_the_file_may_set_a_share(tmp_path: Path) -> None:
    def shares(environ: dict[str, str]) -> tuple[int, ...]:
        settings = load_settings(environ, directory=tmp_path)
        return (
            settings.max_pending_bytes, settings.max_retained_bytes,
            settings.keep_failed_bytes, settings.keep_passed_bytes,
        )  # fmt: skip

    assert [size >> 20 for size in shares({})] == [2048, 1024, 1024, 512]
    assert shares({"BLAMESPAN_STORAGE_BYTES": "9000000"}) == (4_000_000, 2_000_000, 2_000_000, 1_000_000)
    (tmp_path / "blamespan.toml").write_text("keep_passed_bytes = 0\nstorage_bytes = 9000000")
    assert shares({}) == (4_000_000, 2_000_000, 2_000_000, 0)


def test_a_wrong_value_of_the_file_is_named_as_the_file_names_it(tmp_path: Path) -> None:
    (tmp_path / "blamespan.toml").write_text("idle_close = 0")
    with pytest.raises(SettingsError, match=r"^blamespan\.toml: idle_close=0: "):
        load_settings({}, directory=tmp_path)


def test_the_page_of_settings_is_fresh() -> None:
    if not PAGE.is_file():
        pytest.skip("the docs are not beside the tests (a built wheel is tested)")
    assert PAGE.read_text(encoding="utf-8") == page(), "stale: run `make fix`"
