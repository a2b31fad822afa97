"""How long our certificates last: read by shaking hands with ourselves, in memory."""

from __future__ import annotations

import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from analyzer.checkup.finding import Finding, Health
from collector_processor.tls import reason_of

SOON_S: Final = 14 * 86_400.0
"""Before its end a certificate is warned of: two weeks, half of what automatic renewal leaves of 90 days."""
_EXPIRED: Final = 10
"""X509_V_ERR_CERT_HAS_EXPIRED."""


def check_certificate(check: str, certificate: Path, key: Path | None, now_s: float) -> Finding:
    """Say until when a certificate can be used.

    Args:
        check: what it is called.
        certificate: the chain, leaf first, PEM.
        key: its key; ``None`` where it stands in the same file.
        now_s: seconds since 1970.
    """
    mend = "renew it; it is read again without a restart"
    try:
        ends_s = ends_at(certificate, key)
    except ssl.SSLCertVerificationError as error:
        told = "is past its end" if error.verify_code == _EXPIRED else error.verify_message
        return Finding(check=check, health=Health.FAILED, detail=f"{certificate} {told}", mend=mend)
    except (OSError, ValueError) as error:
        detail = f"{certificate}: {reason_of(error)}"
        return Finding(check=check, health=Health.FAILED, detail=detail, mend="correct the file, or its key")
    detail = f"{certificate} lasts until {datetime.fromtimestamp(ends_s, tz=UTC):%Y-%m-%d %H:%M} UTC"
    if ends_s - now_s < SOON_S:
        return Finding(check=check, health=Health.WARNING, detail=detail, mend=mend)
    return Finding(check=check, health=Health.OK, detail=detail)


def ends_at(certificate: Path, key: Path | None) -> float:
    """Return the end of a certificate, seconds since 1970.

    Raises:
        SSLCertVerificationError: it is past its end, or not yet valid, by this machine's clock.
        OSError: a file cannot be read, or is none such.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key, password=_no_password)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it need not have signed itself
    client.load_verify_locations(cafile=certificate)
    shown = _shaken(server, client).getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(shown["notAfter"])))


def _shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> ssl.SSLObject:
    """Return the client's end of a connection within this process."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking, answering = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for side in (asking, answering):  # hello and answer; the client has the certificate then
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    asking.do_handshake()
    return asking


def _no_password() -> str:
    raise ValueError("the key has a password: expected one without")
