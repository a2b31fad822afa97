"""Certificates for tests: a new authority, what it signs, and files that are renewed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme

from collector_processor.otlp.tls import TlsFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A certificate's files in their own folder."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "certificate.pem"

    @property
    def key(self) -> Path:
        return self.folder / "key.pem"

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    def server(self, client_ca: Path | None = None) -> TlsFiles:
        return TlsFiles(certificate=self.certificate, key=self.key, client_ca=client_ca)


def issue(folder: Path, ca: trustme.CA | None = None, name: str = "localhost") -> Identity:
    """Write a certificate, its key and its authority; in an existing folder, this renews them."""
    authority = ca or trustme.CA()
    leaf = authority.issue_cert(name)
    identity = Identity(folder=folder)
    folder.mkdir(exist_ok=True)
    chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    for path, content in (
        (identity.certificate, chain),
        (identity.key, leaf.private_key_pem.bytes()),
        (identity.authority, authority.cert_pem.bytes()),
    ):
        replaced = path.with_suffix(".new")
        replaced.write_bytes(content)
        replaced.replace(path)
    return identity
