"""Whom a backend must be, and who we are to it."""

from __future__ import annotations

from collector_processor.destination import Destination, DestinationError
from collector_processor.tls import ClientFiles, ClientTls, reason_of


def open_tls(destination: Destination) -> ClientTls:
    """Return what TLS to ``destination`` is made with, renewed as its files are.

    Raises:
        DestinationError: a file cannot be read, or is none such.
    """
    files = ClientFiles(
        authorities=destination.certificate,
        certificate=destination.client_certificate,
        key=destination.client_key,
    )
    try:
        return ClientTls(files)
    except (OSError, ValueError) as error:
        shown = ", ".join(map(str, files.paths))
        raise DestinationError(f"certificate {shown}: {reason_of(error)}") from error
