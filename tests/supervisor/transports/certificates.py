"""Owns certificates for tests: authorities and what they sign, minted in memory and written as PEM files."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = dt.timedelta(days=1)
USES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
    "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip


@dataclass(frozen=True)
class Issued:
    """A certificate and its key, as files."""

    cert: str
    key: str


class Authority:
    """A certificate authority with its own root; `cert` is the PEM file to trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} of the tests")])
        self._root = self._build(self._subject, self._key, days=2, authority=True).sign(self._key, hashes.SHA256())
        self.cert = self._write(f"{name}.pem", self._root.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str = "leaf", *, host: str = "127.0.0.1", days: int = 2, self_signed: bool = False) -> Issued:
        """A certificate for a host, by address or by name; negative `days` make one that has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        builder = self._build(subject, key, days=days, authority=False, issuer=subject if self_signed else self._subject)
        builder = builder.add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        made = builder.sign(key if self_signed else self._key, hashes.SHA256())
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        cert = self._write(f"{self._name}-{name}.pem", made.public_bytes(serialization.Encoding.PEM))
        return Issued(cert, self._write(f"{self._name}-{name}.key", pem))

    def _build(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        days: int,
        authority: bool,
        issuer: x509.Name | None = None,
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        signer = key if issuer == subject else self._key
        uses = {name: name in (("key_cert_sign", "crl_sign") if authority else ("digital_signature",)) for name in USES}
        # All that newer Pythons insist on (RFC 5280).
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 10 * DAY)
            .not_valid_after(now + days * DAY)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(**uses), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )

    def _write(self, name: str, data: bytes) -> str:
        path = self._folder / name
        path.write_bytes(data)
        return str(path)
