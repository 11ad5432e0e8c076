"""Whom TLS trusts, and as whom it comes: one context, for requests and for streams."""

from __future__ import annotations

import ssl
import tempfile

from tfk8s.backends.kubernetes.access import KeyPair, Server
from tfk8s.errors import InvalidInput


def make_context(server: Server, key_pair: KeyPair | None, about: str) -> ssl.SSLContext:
    """Return the context for connections to an API server.

    Args:
        server: whose certificates are trusted.
        key_pair: of who asks.
        about: who asks, for messages.

    Raises:
        InvalidInput: certificates or the key are none.
    """
    # Not ssl.create_default_context: from Python 3.13 on it refuses authorities without a key identifier, such as many
    # a cluster has. client-go takes each certificate of an authority as an end of the chain, as here.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["http/1.1"])
    if server.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif server.authority:
        try:
            context.load_verify_locations(cadata=server.authority.decode("ascii", "ignore"))
        except (ssl.SSLError, ValueError) as error:
            raise InvalidInput(f"the certificate-authority of {server.about} can't be used: {_reason(error)}") from None
    else:
        context.load_default_certs()
    if key_pair is not None:
        try:
            _load(context, key_pair)
        except (ssl.SSLError, ValueError) as error:
            raise InvalidInput(f"the client certificate and key of {about} can't be used: {_reason(error)}") from None
    return context


def _load(context: ssl.SSLContext, key_pair: KeyPair) -> None:
    # Python's ssl reads keys from files only. This one is for its owner alone (0600), and gone when it has been read.
    with tempfile.NamedTemporaryFile(prefix="tfk8s-") as file:
        file.write(key_pair.certificate + b"\n" + key_pair.key)
        file.flush()
        context.load_cert_chain(file.name, password=_no_password)


def _no_password() -> str:
    """Have a key with a password be refused, where OpenSSL would ask the terminal for it."""
    raise ValueError("the key has a password")


def _reason(error: ssl.SSLError | ValueError) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).lower().replace("_", " ") if reason else str(error).partition("(")[0].strip() or "it is no PEM"
