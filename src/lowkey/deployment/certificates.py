"""Keys of the transport: a small certificate authority, the server's certificate, and keys by which nodes log in.

For trials and for consortia without an authority of their own. They protect the links; the keys by which clients sign
are in :mod:`lowkey.deployment.enrolment`.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from lowkey.deployment.enrolment import write_secret
from lowkey.durable import replace_file
from lowkey.errors import ConfigError

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_DAYS = 825  # the longest that common TLS clients accept


def new_certificates(directory: Path, hosts: Sequence[str], *, days: int = _DAYS) -> None:
    """Write ca.crt, ca.key, server.pem and server.key, for a server that is reached under these names or addresses."""
    if not hosts:
        raise ConfigError("host is missing; give a name or address under which nodes reach the server")
    names = [_host(host) for host in hosts]
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _name("Lowkey federation authority")
    root = (
        _certificate(issuer, issuer, authority.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(authority, hashes.SHA256())
    )
    server = (
        _certificate(_name(hosts[0]), issuer, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
        .sign(authority, hashes.SHA256())
    )
    for name, secret in (("ca.key", authority), ("server.key", key)):
        write_secret(directory / name, secret.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    replace_file(directory / "ca.crt", root.public_bytes(Encoding.PEM))
    replace_file(directory / "server.pem", server.public_bytes(Encoding.PEM))


def new_node_key(path: Path) -> None:
    """Write the key by which a node logs in at the server, and next to it the public key to register there."""
    key = ec.generate_private_key(ec.SECP384R1())
    write_secret(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    replace_file(path.with_suffix(".pub"), public + b"\n")


def new_executor_secret(path: Path) -> None:
    """Write the secret by which a SuperLink or a node knows the executor that may fetch its tasks."""
    write_secret(path, secrets.token_bytes(32))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOST.fullmatch(host):
        raise ConfigError(f"host is {host!r}; it must be a name such as fl.example.org or an address such as 192.0.2.7")
    return x509.DNSName(host)


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
