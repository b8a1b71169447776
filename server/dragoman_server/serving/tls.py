"""The certificates of the gateway: as a server, and as a client of its upstreams."""

import ssl

from dragoman_server.serving.sockets import StartupError
from dragoman_server.settings import ServerSettings
from dragoman_server.streams.connect import load_client_certificate


def check_tls(server: ServerSettings) -> None:
    """Raise StartupError if a certificate and its key cannot be used."""
    check_client_certificate(server.upstream_certfile)
    if server.certfile is None or server.keyfile is None:
        return
    for what, name in (("certfile", server.certfile), ("keyfile", server.keyfile)):
        try:
            with open(name, "rb"):
                pass
        except OSError as error:
            raise StartupError(f"cannot read the {what} {name}: {error.strerror}") from None
    try:
        tls_context(server)
    except OSError as error:
        raise StartupError(
            f"certfile {server.certfile} and keyfile {server.keyfile} cannot be used together: {_reason(error)}"
        ) from None


def check_client_certificate(file: str | None) -> None:
    """Raise StartupError if a file is not a certificate with its key. None: there is none."""
    try:
        if file is not None:
            load_client_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), file)
    except OSError as error:
        raise StartupError(
            f"the upstream_certfile {file} is no certificate with its key, or the key has a password: {_reason(error)}"
        ) from None


def _reason(error: OSError) -> str:
    return str(getattr(error, "reason", None) or error.strerror or error)


def tls_context(server: ServerSettings) -> ssl.SSLContext | None:
    """Return what encrypts connections, None for plain TCP. Raises ssl.SSLError and OSError."""
    if server.certfile is None or server.keyfile is None:
        return None
    from hypercorn import Config  # not at the top, because plain TCP does not need it

    config = Config()
    config.certfile, config.keyfile = server.certfile, server.keyfile
    # An encrypted key is an error; without a password here, OpenSSL waits for one on the terminal.
    config.keyfile_password = ""
    config.alpn_protocols = ["http/1.1"]
    if server.http2:
        import dragoman_server.serving.http2  # noqa: F401 - which otherwise the first connection does

        config.alpn_protocols.insert(0, "h2")
    return config.create_ssl_context()
