"""Services on loopback that tools reach by plain sockets: TLS, HTTP, and mail."""

import asyncio
import ssl
import subprocess
from pathlib import Path

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


def self_signed(folder: Path, name: str) -> tuple[str, ssl.SSLContext]:
    """Make a certificate for a host: the certificate, and what a server of that name uses."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return certificate.read_text(), context
