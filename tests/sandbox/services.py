"""Services on loopback that tools reach by plain sockets: TLS with a CA of its own, and mail."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sandbox.network.loopback import Handler


async def web(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one HTTP request with its first line."""
    head = await reader.readuntil(b"\r\n\r\n")
    line = head.partition(b"\r\n")[0]
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(line), line))
    await writer.drain()


def mail_server(received: list[str]) -> Handler:
    """Return a handler that speaks enough SMTP to accept messages."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.internal ESMTP\r\n")  # a server that speaks first
        while line := await reader.readline():
            word = line.split()[0].upper()
            if word == b"DATA":
                writer.write(b"354 go on\r\n")
                received.append((await reader.readuntil(b"\r\n.\r\n")).decode())
            writer.write(b"221 bye\r\n" if word == b"QUIT" else b"250 OK\r\n")
            await writer.drain()
            if word == b"QUIT":
                return

    return serve


def certificate_authority(folder: Path, *names: str) -> tuple[str, dict[str, ssl.SSLContext]]:
    """Make a CA: its certificate, and for each host name what a server of that name uses."""
    folder.mkdir()
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("Test CA", ca_key.public_key(), "Test CA", ca_key, is_ca=True)
    contexts = {}
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        server = _certificate(name, key.public_key(), "Test CA", ca_key, is_ca=False)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        file = folder / f"{name}.pem"
        file.write_bytes(private + server.public_bytes(serialization.Encoding.PEM))
        contexts[name] = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        contexts[name].load_cert_chain(file)
    return ca.public_bytes(serialization.Encoding.PEM).decode(), contexts


def _certificate(
    name: str,
    key: ec.EllipticCurvePublicKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    *,
    is_ca: bool,
) -> x509.Certificate:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key), critical=False
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .add_extension(
            x509.KeyUsage(
                digital_signature=True, key_cert_sign=is_ca, crl_sign=is_ca,
                content_commitment=False, key_encipherment=False, data_encipherment=False,
                key_agreement=False, encipher_only=False, decipher_only=False,
            ),
            critical=True,
        )
        .sign(issuer_key, hashes.SHA256())
    )  # fmt: skip
