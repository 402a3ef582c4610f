"""Certificates of servers in tests, signed by an authority of the tests or by nobody."""

import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from catalog.core import clock


@dataclass(frozen=True)
class Signer:
    """A name and a key: those of an authority, or those of a server that signs for itself."""

    common_name: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def name(self) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.common_name)])

    def sign(self, signer: "Signer", more: x509.ExtensionType, *, days: int = 1) -> x509.Certificate:
        """Return a certificate for `signer` that is valid for `days` from now, or ended as many days ago."""
        ends = clock.now() + timedelta(days=days)
        builder = x509.CertificateBuilder(
            issuer_name=self.name,
            subject_name=signer.name,
            public_key=signer.key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=ends - timedelta(days=abs(days) + 1),
            not_valid_after=ends,
        )
        return builder.add_extension(more, critical=True).sign(self.key, SHA256())


def write_authority(path: Path) -> Signer:
    """Make an authority, and write its certificate to a file for the clients that are to trust it."""
    authority = Signer("Authority of the tests")
    certificate = authority.sign(authority, x509.BasicConstraints(ca=True, path_length=0))
    path.write_bytes(certificate.public_bytes(Encoding.PEM))
    return authority


def server_context(folder: Path, authority: Signer | None, host: str = "localhost", days: int = 1) -> ssl.SSLContext:
    """Return the TLS context of a server named `host`; without an authority its certificate is signed by itself."""
    server, path = Signer(host), folder / "server.pem"
    names = x509.SubjectAlternativeName([x509.DNSName(host)])
    certificate = (authority or server).sign(server, names, days=days)
    secret = server.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + certificate.public_bytes(Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
