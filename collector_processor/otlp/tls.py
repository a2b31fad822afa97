"""TLS identities that follow their files: certificates are renewed while we run, not by a restart.

A shell: it reads files and a clock. Whoever renews a certificate writes several
files, one after another, and a reader may come between: what is half written, or
does not fit together, is not used. The identity before stays, the log says so, and
the files are looked at again once they change.

Used by the doors (``ServerTls``) and on the way to backends (``ClientTls``).
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import grpc

logger = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_EVERY_S: Final = 1.0
"""The files are not looked at more often than this, however many shake hands."""


class Renewals:
    """How often changed files could not be used, and the certificate before stayed."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()  # gRPC asks from threads of its own
        self.failed = 0

    def fail(self) -> None:
        """Count one."""
        with self._lock:
            self.failed += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """A server's identity, PEM."""

    certificate: Path
    """The chain, leaf first."""
    key: Path
    client_ca: Path | None = None
    """Authorities of which clients must have a certificate; ``None`` asks for none."""
    renewals: Renewals = field(default_factory=Renewals, compare=False, repr=False)
    """Each door that has these files counts for itself."""

    def ssl_context(self) -> ssl.SSLContext:
        """Return the context for an asyncio server; raises ``OSError`` where a file is none such."""
        return _server_identity(self).context


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """Whom a client trusts and what it shows, PEM; ``None`` is the system's, or nothing."""

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files there are."""
        return tuple(path for path in (self.authorities, self.certificate, self.key) if path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ServerIdentity:
    context: ssl.SSLContext
    for_grpc: grpc.ServerCertificateConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientIdentity:
    """What goes into connections to a backend, in both libraries' words."""

    context: ssl.SSLContext
    credentials: grpc.ChannelCredentials


class Renewed(Generic[T]):
    """A value made from files, and made anew when they change."""

    def __init__(
        self,
        paths: tuple[Path, ...],
        make: Callable[[], T],
        clock: Callable[[], float] = time.monotonic,
        renewals: Renewals | None = None,
    ) -> None:
        """Make the first value.

        Raises:
            OSError: the files are none such; ``ssl.SSLError`` is one.
        """
        self._paths: Final = paths
        self._make: Final = make
        self._clock: Final = clock
        self._renewals: Final = renewals or Renewals()
        self._lock: Final = threading.Lock()  # gRPC asks from threads of its own
        self._seen = self._signature()
        self._looked_at = clock()
        self._value = make()

    def get(self) -> T:
        """Return the value of the files as they are, or as they last were sound."""
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
            said = {"files": names, "reason": reason_of(error)}
            logger.warning("TLS files cannot be used; the certificate before stays", extra=said)
        else:
            logger.info("TLS certificate renewed", extra={"files": names})

    def _signature(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(_file_signature, self._paths))


class ServerTls:
    """A door's certificate, always the newest that is sound."""

    def __init__(
        self,
        files: TlsFiles,
        clients: ssl.VerifyMode = ssl.CERT_REQUIRED,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the files.

        Args:
            files: where the identity is.
            clients: what is asked of clients where ``files.client_ca`` is set.
            clock: seconds, monotonic.

        Raises:
            OSError: a file cannot be read, or is none such.
        """
        self._files: Final = files
        paths = (files.certificate, files.key, *((files.client_ca,) if files.client_ca else ()))
        self._identity: Final = Renewed(
            paths, lambda: _server_identity(files, clients), clock, files.renewals
        )

    def context(self) -> ssl.SSLContext:
        """Return a context for an asyncio server; each handshake is done with the newest certificate."""
        context = self._identity.get().context

        # Called for every handshake, whether the client names a server or not.
        def renew(connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self._identity.get().context

        context.sni_callback = renew
        return context

    def credentials(self) -> grpc.ServerCredentials:
        """Return gRPC's credentials; each handshake is done with the newest certificate."""
        given = self._identity.get().for_grpc

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            found = self._identity.get().for_grpc
            if found is given:
                return None
            given = found
            return found

        ask: Any = newest  # the stubs do not know that nothing new is said by ``None``
        return grpc.dynamic_ssl_server_credentials(
            given, ask, require_client_authentication=self._files.client_ca is not None
        )


class ClientTls:
    """What we trust and show on the way to one backend, always the newest that is sound."""

    def __init__(self, files: ClientFiles, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files; raises ``OSError`` where one cannot be read or is none such."""
        self._identity: Final = Renewed(files.paths, lambda: _client_identity(files), clock)

    def identity(self) -> ClientIdentity:
        """Return the newest; another object means that connections are to be made anew."""
        return self._identity.get()


def reason_of(error: Exception) -> str:
    """Say in a few words what is wrong with a file, without anything that stands in it."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error)


def _server_identity(files: TlsFiles, clients: ssl.VerifyMode = ssl.CERT_REQUIRED) -> _ServerIdentity:
    key, chain = files.key.read_bytes(), files.certificate.read_bytes()
    authorities = files.client_ca.read_bytes() if files.client_ca else None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key, password=_no_password)
    if authorities is not None:
        context.load_verify_locations(cadata=authorities.decode("ascii"))
        context.verify_mode = clients
    _require_unchanged({files.key: key, files.certificate: chain})
    make = grpc.ssl_server_certificate_configuration
    return _ServerIdentity(context=context, for_grpc=make([(key, chain)], root_certificates=authorities))


def _client_identity(files: ClientFiles) -> ClientIdentity:
    read = {path: path.read_bytes() for path in files.paths}
    context = ssl.create_default_context(cafile=str(files.authorities) if files.authorities else None)
    if files.certificate:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    _require_unchanged(read)
    credentials = grpc.ssl_channel_credentials(
        read[files.authorities] if files.authorities else None,
        read[files.key or files.certificate] if files.certificate else None,
        read[files.certificate] if files.certificate else None,
    )
    return ClientIdentity(context=context, credentials=credentials)


def _require_unchanged(read: dict[Path, bytes]) -> None:
    """Make sure that what OpenSSL found sound is what gRPC is given: it checks nothing before it is used."""
    if any(path.read_bytes() != content for path, content in read.items()):
        raise OSError("it changed while it was read")


def _no_password() -> str:
    """Without this, OpenSSL would ask on the terminal and wait."""
    raise ValueError("the key has a password: expected one without")


def _file_signature(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size
