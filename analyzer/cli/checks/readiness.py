"""``blamespan doctor --quick``: readiness check of the local service, for container probes. Not pure."""

from __future__ import annotations

import os
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import typer

from analyzer.cli.output import CommandFailed, OutputFormat, print_json
from collector_processor.otlp import Address
from collector_processor.settings import Settings, SettingsError, load_settings

_PATH: Final = "/readyz"
_READY: Final = 200


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
        raise CommandFailed(f"{address}: not ready: {reason}") from error
    finally:
        connection.close()


def _connection(settings: Settings, address: Address, timeout_s: float) -> HTTPConnection:
    if settings.tls_certificate is None:
        return HTTPConnection(address.host, address.port, timeout=timeout_s)
    # Unverified: no secret is sent, it is this machine's own listener, and its certificate names another
    # host. A corrupt file on the disk, which never replaces a sound certificate, must not fail the probe.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return HTTPSConnection(address.host, address.port, timeout=timeout_s, context=context)


def _reached(listener: Address) -> Address:
    """Return the local address of a listener on all of the machine's addresses."""
    try:
        address = ip_address(listener.host)
    except ValueError:  # a host name
        return listener
    if not address.is_unspecified:
        return listener
    return Address(host="::1" if address.version == 6 else "127.0.0.1", port=listener.port)
