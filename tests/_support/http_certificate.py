"""A certificate for 127.0.0.1 that lives as long as the test session, made by the openssl command."""

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificate:
    cert: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        return context

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.cert)


def make_certificate(directory: Path) -> Certificate:
    """Skips the test where there is no openssl command: the standard library cannot make certificates."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl command to make a certificate")
    made = Certificate(directory / "cert.pem", directory / "key.pem")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(made.key), "-out", str(made.cert)),
        ],
        check=True,
        capture_output=True,
    )
    return made


# `openssl req` makes no certificate that has expired.
_AUTHORITY = """\
[ca]
default_ca = default
[default]
database = database
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = policy
copy_extensions = copy
[policy]
commonName = supplied
"""


def make_expired_certificate(directory: Path) -> Certificate:
    """Return a certificate of 2020. Skips the test as make_certificate does."""
    made = make_certificate(directory)
    (directory / "database").touch()
    (directory / "authority").write_text(_AUTHORITY)
    for command in (
        "req -new -key key.pem -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -out request.pem",
        "ca -batch -notext -config authority -selfsign -keyfile key.pem -in request.pem -out cert.pem"
        " -startdate 20200101000000Z -enddate 20210101000000Z",
    ):
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True, cwd=directory)
    return made
