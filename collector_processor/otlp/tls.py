"""TLS identities that follow their files: certificates are renewed without a restart.

Reads files and a clock. A renewal writes several files one after another, and a read may fall in between:
incomplete or mismatched files are not used. The previous identity stays in use, the log says so,
and the files are read again once they change.

Used by our servers (``ServerTls``) and for connections to backends (``ClientTls``).
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    import grpc

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_EVERY_S: Final = 1.0
"""Seconds between checks of the files, at least."""


class Renewals:
    """Counts failed renewals of certificates; the previous certificate stays in use."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()  # gRPC calls from threads of its own
        self.failed = 0

    def fail(self) -> None:
        """Count a failed renewal."""
        with self._lock:
            self.failed += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of a server's identity."""

    certificate: Path
    """Certificate chain, leaf first."""
    key: Path
    client_ca: Path | None
    """Authorities that must have signed clients' certificates; ``None`` if clients need none."""
    renewals: Renewals = field(default_factory=Renewals, compare=False, repr=False)
    """Shared by all servers with these files; each counts its own renewals in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """PEM files of a client: trusted authorities (``None``: the system's), certificate and key."""

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are set."""
        return tuple(path for path in (self.authorities, self.certificate, self.key) if path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerIdentity:
    context: ssl.SSLContext
    for_grpc: grpc.ServerCertificateConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """TLS identity for connections to a backend, for aiohttp and for gRPC."""

    context: ssl.SSLContext
    credentials: grpc.ChannelCredentials


class Renewed(Generic[T]):
    """A value built from files, rebuilt when they change."""

    def __init__(
        self,
        paths: tuple[Path, ...],
        make: Callable[[], T],
        clock: Callable[[], float],
        renewals: Renewals | None = None,
    ) -> None:
        """Build the first value.

        Raises:
            OSError: a file is invalid; includes ``ssl.SSLError``.
        """
        self._paths: Final = paths
        self._make: Final = make
        self._clock: Final = clock
        self._renewals: Final = renewals or Renewals()
        self._lock: Final = threading.Lock()  # gRPC calls from threads of its own
        self._seen = self._signature()
        self._looked_at = clock()
        self._value = make()

    def get(self) -> T:
        """Return the value of the current files, or of the last valid ones."""
        with self._lock:
            now = self._clock()
            if now - self._looked_at >= LOOK_EVERY_S:
                self._looked_at = now
                self._renew()
            return self._value

    def _renew(self) -> None:
        found = self._signature()
        if found == self._seen:
            return
        self._seen = found
        names = [str(path) for path in self._paths]
        try:
            self._value = self._make()
        except (OSError, ValueError) as error:
            self._renewals.fail()
            details = {"files": names, "reason": reason_of(error)}
            logger.warning(
                "cannot use the changed TLS files: the previous certificate stays in use", extra=details
            )
        else:
            logger.info("TLS certificate renewed", extra={"files": names})

    def _signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_file_signature, self._paths))


class ServerTls:
    """A server's certificate, always the newest valid one."""

    def __init__(
        self,
        files: TlsFiles,
        clients: ssl.VerifyMode = ssl.CERT_REQUIRED,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files.

        Args:
            files: the PEM files.
            clients: whether clients need a certificate, if ``files.client_ca`` is set.
            clock: seconds, monotonic.

        Raises:
            OSError: a file cannot be read, or is invalid.
        """
        self._files: Final = files
        paths = (files.certificate, files.key, *((files.client_ca,) if files.client_ca else ()))
        self._identity: Final = Renewed(
            paths, lambda: _server_identity(files, clients), clock, files.renewals
        )

    def context(self) -> ssl.SSLContext:
        """Return a context for an asyncio server; each handshake uses the newest certificate."""
        context = self._identity.get().context

        # Called at every handshake, with or without a server name.
        def renew(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self._identity.get().context

        context.sni_callback = renew
        return context

    def credentials(self) -> grpc.ServerCredentials:
        """Return gRPC's credentials; each handshake uses the newest certificate."""
        import grpc  # noqa: PLC0415 - with TLS alone; the pages speak no gRPC

        given = self._identity.get().for_grpc

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            found = self._identity.get().for_grpc
            if found is given:
                return None
            given = found
            return found

        ask: Any = newest  # the stubs lack that ``None`` means unchanged
        return grpc.dynamic_ssl_server_credentials(
            given, ask, require_client_authentication=self._files.client_ca is not None
        )


class ClientTls:
    """TLS identity for one backend, always the newest valid one."""

    def __init__(self, files: ClientFiles, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files; raises ``OSError`` if one cannot be read or is invalid."""
        self._identity: Final = Renewed(files.paths, lambda: _client_identity(files), clock)

    def identity(self) -> ClientIdentity:
        """Return the newest identity; callers reconnect if it is a different object than before."""
        return self._identity.get()


def reason_of(error: Exception) -> str:
    """Return a short reason why a file is unusable, without quoting the file."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _server_identity(files: TlsFiles, clients: ssl.VerifyMode) -> _ServerIdentity:
    key, chain = files.key.read_bytes(), files.certificate.read_bytes()
    authorities = files.client_ca.read_bytes() if files.client_ca else None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2  # Debian's Python leaves it to OpenSSL's configuration
    context.load_cert_chain(files.certificate, files.key, password=_no_password)
    if authorities is not None:
        context.load_verify_locations(cadata=authorities.decode("ascii"))
        context.verify_mode = clients
    _require_unchanged({files.key: key, files.certificate: chain})
    import grpc  # noqa: PLC0415 - as above

    make = grpc.ssl_server_certificate_configuration
    return _ServerIdentity(context=context, for_grpc=make([(key, chain)], root_certificates=authorities))


def _client_identity(files: ClientFiles) -> ClientIdentity:
    read = {path: path.read_bytes() for path in files.paths}
    context = ssl.create_default_context(cafile=str(files.authorities) if files.authorities else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.certificate:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    _require_unchanged(read)
    import grpc  # noqa: PLC0415 - as above

    credentials = grpc.ssl_channel_credentials(
        read[files.authorities] if files.authorities else None,
        read[files.key or files.certificate] if files.certificate else None,
        read[files.certificate] if files.certificate else None,
    )
    return ClientIdentity(context=context, credentials=credentials)


def _require_unchanged(read: dict[Path, bytes]) -> None:
    """Require that gRPC, which checks nothing itself, gets the same bytes that OpenSSL accepted."""
    if any(path.read_bytes() != content for path, content in read.items()):
        raise OSError("the file changed while it was read")


def _no_password() -> str:
    """Raise, because OpenSSL would otherwise prompt on the terminal and wait."""
    raise ValueError("the key has a password: use a key without one")


def _file_signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
