"""``blamespan doctor``: is everything as it should be, and if not, what mends it?"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.table import Table
from rich.text import Text

from analyzer.checkup import (
    Finding,
    Health,
    check_analyzer,
    check_certificate,
    check_clock,
    check_door,
    check_notifiers,
    check_parents,
    check_privacy,
    check_stores,
)
from analyzer.commands.output import FormatOption, OutputFormat, print_json
from analyzer.completion import LiteLLM
from analyzer.composition import model_names, open_analyst, tls_files
from analyzer.errors import AnalyzerError, ModelError
from analyzer.method import Message, Prompt
from analyzer.present import console, plain
from collector_processor.endpoints import NOWHERE
from collector_processor.exporters import Destination, DestinationError, open_exporter
from collector_processor.journal import is_in_use
from collector_processor.loops import own_listener
from collector_processor.otlp import (
    NO_TENANT,
    CollectorError,
    Delivered,
    NoSuchService,
    Rejected,
    SendOutcome,
    Setback,
    Signal,
    TryLater,
    setback_of,
)
from collector_processor.runstore import RUNS, RunStore
from collector_processor.settings import (
    Address,
    Settings,
    SettingsError,
    load_settings,
    require_token,
    unknown_variables,
)
from collector_processor.tls import ClientFiles, ClientTls, ServerTls, reason_of

_LOW_DISK_BYTES: Final = 1 << 30


_STYLES: Final = {Health.OK: "green", Health.WARNING: "yellow", Health.FAILED: "red", Health.SKIPPED: "dim"}


def doctor(
    call_model: Annotated[
        bool,
        typer.Option(
            "--call-model", help="Also ask the model one short question (may cost a fraction of a cent)."
        ),
    ] = False,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Check settings, ports, stores, certificates, backend, model and neighbours; say what mends them.

    Neighbours are analyzers and those who are told of issues; their clocks are compared with ours. Sends
    the backend one empty request for each signal, tells nobody anything, and changes nothing.
    Exit code 1 if anything failed; warnings alone are 0.
    """
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
        return [
            Finding(check="settings", health=Health.FAILED, detail=str(error), mend="correct the value named")
        ]
    findings = [Finding(check="settings", health=Health.OK, detail="every value is one that can be")]
    findings += _unknown(os.environ)
    findings += _data_dir(settings.data_dir)
    findings += _ports(settings)
    if is_in_use(settings.data_dir / "ingest") and settings.listeners[2].port:
        findings.append(await _service(settings))
    findings += _tls(settings)
    findings += [finding async for finding in _backends(settings)]
    findings += [finding async for finding in _neighbours(settings)]
    findings.append(await _model(settings, call_model=call_model))
    return findings


def _unknown(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name, meant in unknown_variables(environ).items():
        mend = f"did you mean {meant}?" if meant else "unset it, or see docs/settings.md for what there is"
        detail = f"{name} is no setting of ours and does nothing"
        yield Finding(check="settings", health=Health.WARNING, detail=detail, mend=mend)


def _data_dir(path: Path) -> Iterator[Finding]:
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        mend = "make it writable, or set BLAMESPAN_DATA_DIR"
        detail = f"{there}: cannot be written to"
        yield Finding(check="store", health=Health.FAILED, detail=detail, mend=mend)
        return
    free = shutil.disk_usage(there).free
    low = free < _LOW_DISK_BYTES
    mend = "free some, or set BLAMESPAN_DATA_DIR to a larger disk" if low else ""
    detail = f"{path}, {free / (1 << 30):.1f} GiB free"
    yield Finding(check="disk", health=Health.WARNING if low else Health.OK, detail=detail, mend=mend)
    yield from check_privacy(path)
    yield _store(path)
    yield from check_stores(path)
    yield from check_parents(path)


def _store(path: Path) -> Finding:
    if is_in_use(path / "ingest"):
        return Finding(check="store", health=Health.OK, detail="in use by a running blamespan")
    if not (path / RUNS).exists():
        return Finding(check="store", health=Health.OK, detail="is made at the first start")
    try:
        RunStore(path / RUNS).close()
    except CollectorError as error:
        mend = "use the newer version, or set BLAMESPAN_DATA_DIR to another folder"
        return Finding(check="store", health=Health.FAILED, detail=str(error), mend=mend)
    return Finding(check="store", health=Health.OK, detail="opens")


def _ports(settings: Settings) -> Iterator[Finding]:
    names = ("OTLP/gRPC", "OTLP/HTTP", "web")
    variables = ("BLAMESPAN_OTLP_GRPC_LISTEN", "BLAMESPAN_OTLP_HTTP_LISTEN", "BLAMESPAN_WEB_LISTEN")
    running = is_in_use(settings.data_dir / "ingest")
    for name, variable, listener in zip(names, variables, settings.listeners, strict=True):
        problem = _bind_problem(listener)
        if problem is None:
            yield Finding(check=f"port {name}", health=Health.OK, detail=f"{listener} is free")
        elif running:
            yield Finding(
                check=f"port {name}", health=Health.OK, detail=f"{listener} is taken; a blamespan is running"
            )
        else:
            mend = f"stop what listens there, or set {variable} (port 0 takes a free one)"
            yield Finding(
                check=f"port {name}", health=Health.FAILED, detail=f"{listener}: {problem}", mend=mend
            )


def _tls(settings: Settings) -> Iterator[Finding]:
    files = tls_files(settings)
    if files is None:
        return
    try:
        ServerTls(files)
    except (OSError, ValueError) as error:
        mend = "correct BLAMESPAN_TLS_CERTIFICATE, _KEY or _CLIENT_CA"
        yield Finding(check="TLS", health=Health.FAILED, detail=reason_of(error), mend=mend)
    else:
        asks = "; clients need one too" if files.client_ca else ""
        yield Finding(check="TLS", health=Health.OK, detail=f"{files.certificate} can be used{asks}")
        yield check_certificate("TLS certificate", files.certificate, files.key, time.time())


async def _service(settings: Settings) -> Finding:
    files, web = tls_files(settings), settings.listeners[2]
    host = "127.0.0.1" if web.host in {"0.0.0.0", ""} else web.host  # noqa: S104 - to ask, not to listen
    host = f"[{host}]" if ":" in host else host
    tls = None
    if files is not None:  # by its address we are ourselves, whatever name stands in the certificate
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return await check_door(f"http{'s' if files else ''}://{host}:{web.port}", time.time, tls)


async def _neighbours(settings: Settings) -> AsyncIterator[Finding]:
    found = []
    endpoint = settings.analyzer_endpoint
    try:
        secure = endpoint is not None and endpoint.startswith("https:")
        trust = _trust(settings) if secure else None
    except (OSError, ValueError) as error:
        mend = "correct BLAMESPAN_ANALYZER_CERTIFICATE, or our own certificate"
        yield Finding(check="analyzer", health=Health.FAILED, detail=reason_of(error), mend=mend)
    else:
        if endpoint:
            found.append(await check_analyzer(endpoint, settings.token, time.time, trust))
    told = {
        "webhook": settings.notify_webhook,
        "slack": settings.notify_slack,
        "alertmanager": settings.notify_alertmanager,
    }
    receivers = {name: url for name, url in told.items() if url}
    found += await check_notifiers(receivers, time.time)
    for one in found:
        yield one.finding
    if receivers and not settings.web_url:
        detail = "messages have no links: BLAMESPAN_WEB_URL is not set"
        mend = "set it to the address at which people reach the page"
        yield Finding(check="links", health=Health.WARNING, detail=detail, mend=mend)
    for certificate, key in dict.fromkeys(
        (one.client_certificate, one.client_key) for one in settings.endpoints.values()
    ):
        if certificate is not None:
            yield check_certificate("client certificate", certificate, key, time.time())
    yield check_clock(found)


def _trust(settings: Settings) -> ssl.SSLContext:
    """Return what a collector half asks analyzers with; raises ``OSError`` where a file is none such."""
    shown = settings.tls_certificate, settings.tls_key
    files = ClientFiles(authorities=settings.analyzer_certificate, certificate=shown[0], key=shown[1])
    return ClientTls(files).identity().context


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
        yield Finding(check="backend", health=Health.WARNING, detail=detail, mend=mend)
        return
    for signal in Signal:
        destination = settings.endpoints.get(signal)
        if destination is None:
            detail = f"{signal.value} are accepted, counted as kept, and sent nowhere"
            yield Finding(check=f"backend {signal.value}", health=Health.OK, detail=detail)
        else:
            yield await _backend(settings, signal, destination)


async def _backend(settings: Settings, signal: Signal, destination: Destination) -> Finding:
    check, where = f"backend {signal.value}", f"{destination.shown} ({destination.protocol.value})"
    own = own_listener(destination.endpoint, settings.listeners)
    if own is not None:
        mend = "set BLAMESPAN_FORWARD_ENDPOINT to the backend; the shell's OTEL_ variables point agents at us"
        return Finding(
            check=check, health=Health.FAILED, detail=f"{where} is our own listener {own}", mend=mend
        )
    try:
        exporter = open_exporter(destination, "doctor")
    except DestinationError as error:
        return Finding(check=check, health=Health.FAILED, detail=str(error), mend="correct the endpoint")
    try:
        outcome = await exporter.send(signal, b"", NO_TENANT, ())
    finally:
        await exporter.close()
    return _backend_finding(check, where, signal, outcome)


def _homeless(check: str, where: str, signal: Signal) -> Finding:
    """Return the finding for a signal that the backend has no service for, with what to set."""
    if signal is Signal.TRACES:
        mend = "correct BLAMESPAN_FORWARD_ENDPOINT and BLAMESPAN_FORWARD_PROTOCOL: it does not accept traces"
        return Finding(check=check, health=Health.FAILED, detail=f"{where} has no such service", mend=mend)
    variable = f"OTEL_EXPORTER_OTLP_{signal.name}_ENDPOINT"
    what = " (evaluation logs among them)" if signal is Signal.LOGS else ""
    return Finding(
        check=check,
        health=Health.WARNING,
        detail=f"{where} has no such service: {signal.value}{what} are acknowledged, then dropped",
        mend=f"set {variable} to a backend that accepts them, or to {NOWHERE} to forward none",
    )


def _backend_finding(check: str, where: str, signal: Signal, outcome: SendOutcome) -> Finding:
    match outcome:
        case Delivered():
            return Finding(check=check, health=Health.OK, detail=f"{where} takes them")
        case NoSuchService():
            return _homeless(check, where, signal)
        case TryLater(reason=reason):
            mend = "start the backend, or correct BLAMESPAN_FORWARD_ENDPOINT and BLAMESPAN_FORWARD_PROTOCOL"
            state = "is away" if setback_of(outcome) is Setback.AWAY else "cannot accept them now"
            detail = f"{where} {state}: {reason}"
            return Finding(check=check, health=Health.FAILED, detail=detail, mend=mend)
        case Rejected(reason=reason):
            mend = "look at the backend's log; headers and certificate are the usual causes"
            return Finding(check=check, health=Health.FAILED, detail=f"{where}: {reason}", mend=mend)


async def _model(settings: Settings, *, call_model: bool) -> Finding:
    names = model_names(settings)
    if not names:
        detail = "none set: attribution by signals, at no cost"
        return Finding(check="model", health=Health.OK, detail=detail)
    findings = [await _one_model(name, call_model=call_model) for name in names]
    failed = [finding for finding in findings if finding.health is Health.FAILED]
    detail = "; ".join(finding.detail for finding in failed or findings)
    return replace((failed or findings)[0], detail=detail)


async def _one_model(name: str, *, call_model: bool) -> Finding:
    model = LiteLLM(name=name)
    missing = model.missing_settings()
    if missing:
        detail = f"{name}: {', '.join(missing)} is not set"
        return Finding(
            check="model", health=Health.FAILED, detail=detail, mend="set it, or choose another model"
        )
    if not call_model and model.price(Prompt(messages=(), max_output_tokens=1)) is None:
        detail = f"{name}: litellm knows no price for it, so no budget can stop it"
        mend = "fine for a local model; else choose a name that litellm has a price for"
        return Finding(check="model", health=Health.WARNING, detail=detail, mend=mend)
    if not call_model:
        detail = f"{name}: settings are there; not called"
        return Finding(check="model", health=Health.OK, detail=detail, mend="doctor --call-model asks it")
    question = Message(role="user", content="Answer with the single word: ready")
    try:
        await model.complete(Prompt(messages=(question,), max_output_tokens=16))
    except ModelError as error:
        mend = "check key, address and quota"
        return Finding(check="model", health=Health.FAILED, detail=f"{name}: {error}", mend=mend)
    return Finding(check="model", health=Health.OK, detail=f"{name} answers")


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
