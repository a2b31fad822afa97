"""``blamespan doctor``: check the installation and suggest fixes; or, for container probes, the readiness."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from analyzer.analyses.composition import model_names, open_analyst, tls_files
from analyzer.analyses.models.completion import LiteLLM
from analyzer.cli.checks import (
    Finding,
    Health,
    check_certificate,
    check_journal,
    check_kafka,
    check_listener,
    check_notifiers,
    check_privacy,
    check_scores,
    check_store,
    failed,
    ok,
    warning,
)
from analyzer.cli.output import CommandFailed, FormatOption, OutputFormat, print_json
from analyzer.inquiry.errors import AnalyzerError, ModelError
from analyzer.inquiry.method import Message, Prompt
from analyzer.inquiry.present import plain
from analyzer.inquiry.terminal import console
from analyzer.issues.receivers import receiver_names
from collector_processor.exporters import open_exporter
from collector_processor.journal import is_in_use
from collector_processor.otlp import (
    NO_TENANT,
    Address,
    Delivered,
    NoSuchService,
    Rejected,
    SendOutcome,
    Setback,
    Signal,
    TryLater,
    setback_of,
)
from collector_processor.otlp.destination import NOWHERE, Destination, DestinationError, own_listener
from collector_processor.otlp.tls import ServerTls, reason_of
from collector_processor.settings import (
    Settings,
    SettingsError,
    load_settings,
    require_token,
    unknown_variables,
)

_LOW_DISK_BYTES: Final = 1 << 30
_PATH: Final = "/readyz"
_READY: Final = 200
_STYLES: Final = {Health.OK: "green", Health.WARNING: "yellow", Health.FAILED: "red"}


def doctor(
    call_model: Annotated[
        bool,
        typer.Option(
            "--call-model", help="Also ask the model one short question (may cost a fraction of a cent)."
        ),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Check only whether the service on this machine is ready, for container probes."
        ),
    ] = False,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="How long --quick waits.")] = 2.0,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Check settings, ports, stores, certificates, backend, model and neighbours, and suggest fixes.

    Neighbours are notification receivers, the backends of scores, and the other processes on the store,
    whose clocks are compared. Sends the backend one empty request for each signal, no notification and no
    score, and changes nothing.
    Exit code 1 if anything failed; warnings alone are 0.

    `--quick` works for every part of [bold]serve[/bold], with or without TLS as configured, and needs neither
    token nor certificate. Exit code 1 if the service is not ready.
    """
    if quick:
        check_ready(timeout, output)
        return
    findings = asyncio.run(_examine(call_model=call_model))
    if output is OutputFormat.JSON:
        for finding in findings:
            print_json(
                {
                    "check": finding.check,
                    "status": finding.health.value,
                    "detail": finding.detail,
                    "mend": finding.mend or None,
                }
            )
    else:
        console().print(_table(findings))
    if any(finding.health is Health.FAILED for finding in findings):
        raise typer.Exit(1)


async def _examine(*, call_model: bool) -> list[Finding]:
    try:
        settings = load_settings(os.environ, directory=Path.cwd())
        require_token(settings)
        open_analyst(settings)
    except (AnalyzerError, SettingsError) as error:
        return [failed("settings", str(error), "correct that value")]
    findings = [ok("settings", "every value is valid")]
    findings += _unread(os.environ)
    findings += _data_dir(settings)
    findings += _ports(settings)
    if is_in_use(settings.data_dir / "ingest") and settings.listeners[2].port:
        findings.append(await _service(settings))
    findings += _tls(settings)
    findings += [finding async for finding in _backends(settings)]
    findings += [finding async for finding in _neighbours(settings)]
    findings += await check_scores(settings.score_targets)
    findings += await asyncio.to_thread(check_kafka, settings)
    findings.append(await _model(settings, call_model=call_model))
    return findings


def _unread(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name, meant in unknown_variables(environ).items():
        mend = f"did you mean {meant}?" if meant else "unset it, or see docs/settings.md for all settings"
        yield warning("settings", f"{name} is not a blamespan setting and has no effect", mend)


def _data_dir(settings: Settings) -> Iterator[Finding]:
    path = settings.data_dir
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        yield failed("store", f"{there}: is not writable", "make it writable, or set BLAMESPAN_DATA_DIR")
        return
    free = shutil.disk_usage(there).free
    detail = f"{path}, {free / (1 << 30):.1f} GiB free"
    if free < _LOW_DISK_BYTES:
        yield warning("disk", detail, "free some, or set BLAMESPAN_DATA_DIR to a larger disk")
    else:
        yield ok("disk", detail)
    yield from check_privacy(path)
    yield from check_journal(path)
    yield from check_store(settings)


def _ports(settings: Settings) -> Iterator[Finding]:
    names = ("OTLP/gRPC", "OTLP/HTTP", "web")
    variables = ("BLAMESPAN_OTLP_GRPC_LISTEN", "BLAMESPAN_OTLP_HTTP_LISTEN", "BLAMESPAN_WEB_LISTEN")
    running = is_in_use(settings.data_dir / "ingest")
    for name, variable, listener in zip(names, variables, settings.listeners, strict=True):
        problem = _bind_problem(listener)
        if problem is None:
            yield ok(f"port {name}", f"{listener} is free")
        elif running:
            yield ok(f"port {name}", f"{listener} is taken; a blamespan is running")
        else:
            mend = f"stop the program that listens there, or set {variable} (port 0 takes a free one)"
            yield failed(f"port {name}", f"{listener}: {problem}", mend)


def _tls(settings: Settings) -> Iterator[Finding]:
    files = tls_files(settings)
    if files is None:
        return
    try:
        ServerTls(files)
    except (OSError, ValueError) as error:
        mend = "correct BLAMESPAN_TLS_CERTIFICATE, _KEY or _CLIENT_CA"
        yield failed("TLS", reason_of(error), mend)
    else:
        asks = "; clients need one too" if files.client_ca else ""
        yield ok("TLS", f"{files.certificate} is usable{asks}")
        yield check_certificate("TLS certificate", files.certificate, files.key, time.time())


async def _service(settings: Settings) -> Finding:
    tls = _unverified_tls(settings)
    return await check_listener(f"http{'s' if tls else ''}://{_reached(settings.listeners[2])}", tls)


async def _neighbours(settings: Settings) -> AsyncIterator[Finding]:
    receivers = receiver_names(settings)
    for finding in await check_notifiers(receivers):
        yield finding
    if receivers and not settings.web_url:
        mend = "set it to the address under which people open the pages"
        yield warning("links", "messages have no links: BLAMESPAN_WEB_URL is not set", mend)
    for certificate, key in dict.fromkeys(
        (one.client_certificate, one.client_key) for one in settings.endpoints.values()
    ):
        if certificate is not None:
            yield check_certificate("client certificate", certificate, key, time.time())


def _bind_problem(listener: Address) -> str | None:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listener.host, listener.port))
        except OSError as error:
            return error.strerror or str(error)
    return None


async def _backends(settings: Settings) -> AsyncIterator[Finding]:
    if not settings.endpoints:
        detail = "none set: spans are analysed and kept, not forwarded"
        mend = "set BLAMESPAN_FORWARD_ENDPOINT to Jaeger, Tempo or a Collector to see blame in traces"
        yield warning("backend", detail, mend)
        return
    for signal in Signal:
        destination = settings.endpoints.get(signal)
        if destination is None:
            yield ok(
                f"backend {signal.value}", f"{signal.value} are accepted, counted as kept, and not forwarded"
            )
        else:
            yield await _backend(settings, signal, destination)


async def _backend(settings: Settings, signal: Signal, destination: Destination) -> Finding:
    check, where = f"backend {signal.value}", f"{destination.shown} ({destination.protocol.value})"
    own = own_listener(destination.endpoint, settings.listeners)
    if own is not None:
        mend = "set BLAMESPAN_FORWARD_ENDPOINT to the backend; the shell's OTEL_ variables point agents at us"
        return failed(check, f"{where} is our own listener {own}", mend)
    try:
        exporter = open_exporter(destination, "doctor")
    except DestinationError as error:
        return failed(check, str(error), "correct the endpoint")
    try:
        outcome = await exporter.send(signal, b"", NO_TENANT, ())
    finally:
        await exporter.close()
    return _backend_finding(check, where, signal, outcome)


def _unsupported(check: str, where: str, signal: Signal) -> Finding:
    """Return the finding for a signal that the backend does not support, with the setting that fixes it."""
    if signal is Signal.TRACES:
        mend = "correct BLAMESPAN_FORWARD_ENDPOINT and BLAMESPAN_FORWARD_PROTOCOL: it does not accept traces"
        return failed(check, f"{where} has no such service", mend)
    variable = f"OTEL_EXPORTER_OTLP_{signal.name}_ENDPOINT"
    what = " (evaluation logs among them)" if signal is Signal.LOGS else ""
    return warning(
        check,
        f"{where} has no such service: {signal.value}{what} are acknowledged, then dropped",
        f"set {variable} to a backend that accepts them, or to {NOWHERE} to forward none",
    )


def _backend_finding(check: str, where: str, signal: Signal, outcome: SendOutcome) -> Finding:
    match outcome:
        case Delivered():
            return ok(check, f"{where} accepts them")
        case NoSuchService():
            return _unsupported(check, where, signal)
        case TryLater(reason=reason):
            mend = "start the backend, or correct BLAMESPAN_FORWARD_ENDPOINT and BLAMESPAN_FORWARD_PROTOCOL"
            state = "is unreachable" if setback_of(outcome) is Setback.AWAY else "cannot accept them now"
            return failed(check, f"{where} {state}: {reason}", mend)
        case Rejected(reason=reason):
            mend = "look at the backend's log; headers and certificate are the usual causes"
            return failed(check, f"{where}: {reason}", mend)


async def _model(settings: Settings, *, call_model: bool) -> Finding:
    names = model_names(settings)
    if not names:
        return ok("model", "none set: attribution by signals, at no cost")
    findings = [await _one_model(name, call_model=call_model) for name in names]
    shown = [finding for finding in findings if finding.health is Health.FAILED] or findings
    return replace(shown[0], detail="; ".join(finding.detail for finding in shown))


async def _one_model(name: str, *, call_model: bool) -> Finding:
    model = LiteLLM(name=name)
    missing = model.missing_settings()
    if missing:
        return failed("model", f"{name}: {', '.join(missing)} is not set", "set it, or choose another model")
    if not call_model and model.price(Prompt(messages=(), max_output_tokens=1)) is None:
        detail = f"{name}: litellm knows no price for it, so no budget can stop it"
        mend = "fine for a local model; otherwise choose a name that litellm has a price for"
        return warning("model", detail, mend)
    if not call_model:
        return ok("model", f"{name}: configured; not called", "doctor --call-model asks it")
    question = Message(role="user", content="Answer with the single word: ready")
    try:
        await model.complete(Prompt(messages=(question,), max_output_tokens=16))
    except ModelError as error:
        return failed("model", f"{name}: {error}", "check key, address and quota")
    return ok("model", f"{name} answers")


def _table(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("check", style="bold", no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in findings:
        text = Text(plain(finding.detail))
        if finding.mend:
            text.append(f"\n→ {plain(finding.mend)}", style="cyan")
        table.add_row(Text(finding.health.value, style=_STYLES[finding.health]), finding.check, text)
    return table


def check_ready(timeout_s: float, output: OutputFormat) -> None:
    """Print whether the service on this machine is ready; needs neither token nor certificate.

    Raises:
        CommandFailed: it is not.
        SettingsError: the settings do not say on which port it listens.
    """
    settings = load_settings(os.environ, directory=Path.cwd())
    listener = settings.listeners[2]
    if not listener.port:
        raise SettingsError("BLAMESPAN_WEB_LISTEN has port 0: expected the port of the running service")
    status = _ask(settings, _reached(listener), timeout_s)
    if status != _READY:
        raise CommandFailed(f"{listener}: not ready ({_PATH} answers {status})")
    if output is OutputFormat.JSON:
        print_json({"ready": True, "web": str(listener)})
    else:
        typer.echo("ready")


def _ask(settings: Settings, address: Address, timeout_s: float) -> int:
    connection = _connection(settings, address, timeout_s)
    try:
        connection.request("GET", _PATH)
        return connection.getresponse().status
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CommandFailed(f"{address}: not ready: {reason}; does `blamespan serve` run there?") from error
    finally:
        connection.close()


def _connection(settings: Settings, address: Address, timeout_s: float) -> HTTPConnection:
    tls = _unverified_tls(settings)
    if tls is None:
        return HTTPConnection(address.host, address.port, timeout=timeout_s)
    return HTTPSConnection(address.host, address.port, timeout=timeout_s, context=tls)


def _unverified_tls(settings: Settings) -> ssl.SSLContext | None:
    """Return how to reach our own listener; ``None`` without TLS.

    Unverified: no secret is sent, it is this machine's own listener, and its certificate names another host.
    A corrupt file on the disk, which never replaces a sound certificate, must not fail the probe.
    """
    if settings.tls_certificate is None:
        return None
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _reached(listener: Address) -> Address:
    """Return the local address of a listener on all of the machine's addresses."""
    try:
        address = ip_address(listener.host or "0.0.0.0")  # noqa: S104 - to ask, not to listen
    except ValueError:  # a host name
        return listener
    if not address.is_unspecified:
        return listener
    return Address(host="::1" if address.version == 6 else "127.0.0.1", port=listener.port)
