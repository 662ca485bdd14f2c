"""Keys of the transport."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from lowkey.deployment.certificates import new_certificates, new_node_key
from lowkey.errors import ConfigError


def handshake(server: Path, authority: Path, name: str) -> None:
    """A TLS connection in memory; raises as a real one would."""
    offered = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    offered.load_cert_chain(server / "server.pem", server / "server.key")
    trusting = ssl.create_default_context(cafile=str(authority / "ca.crt"))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = trusting.wrap_bio(to_client, to_server, server_hostname=name)
    far = offered.wrap_bio(to_server, to_client, server_side=True)
    for side in (near, far, near, far):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert near.version() == far.version() == "TLSv1.3"  # on both sides it is done


@pytest.mark.parametrize("name", ["fl.example.org", "127.0.0.1", "::1"])
def test_nodes_accept_the_server_under_each_of_its_names(tmp_path: Path, name: str) -> None:
    new_certificates(tmp_path, ["fl.example.org", "127.0.0.1", "::1"])
    handshake(tmp_path, tmp_path, name)


def test_nodes_refuse_another_name_and_another_authority(tmp_path: Path) -> None:
    new_certificates(tmp_path / "a", ["fl.example.org"])
    new_certificates(tmp_path / "b", ["fl.example.org"])
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(tmp_path / "a", tmp_path / "a", "other.example.org")
    with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
        handshake(tmp_path / "a", tmp_path / "b", "fl.example.org")


def test_an_expired_certificate_is_refused(tmp_path: Path) -> None:
    new_certificates(tmp_path, ["fl.example.org"], days=0)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(tmp_path, tmp_path, "fl.example.org")


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    new_certificates(tmp_path / "tls", ["fl.example.org"])
    new_node_key(tmp_path / "node/node.key")
    assert (tmp_path / "tls").stat().st_mode & 0o777 == 0o700
    for secret in ("tls/ca.key", "tls/server.key", "node/node.key"):
        assert (tmp_path / secret).stat().st_mode & 0o777 == 0o600


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    new_certificates(tmp_path, ["fl.example.org"])
    new_node_key(tmp_path / "node.key")
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ConfigError, match=r"ca\.key exists"):
        new_certificates(tmp_path, ["fl.example.org"])
    with pytest.raises(ConfigError, match=r"node\.key exists"):
        new_node_key(tmp_path / "node.key")
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("host", ["", "https://fl.example.org", "fl.example.org:8000", "für.example", "-x", "a b"])
def test_what_is_no_host_makes_no_certificate(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigError, match="host is"):
        new_certificates(tmp_path / "tls", [host])
    assert not (tmp_path / "tls").exists()


def test_a_certificate_needs_a_host(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="host is missing"):
        new_certificates(tmp_path, [])


def test_a_node_key_is_one_that_flower_reads(tmp_path: Path) -> None:
    new_node_key(tmp_path / "node.key")
    secret = load_ssh_private_key((tmp_path / "node.key").read_bytes(), None)
    public = load_ssh_public_key((tmp_path / "node.pub").read_bytes())
    assert secret.public_key() == public
    assert (tmp_path / "node.pub").read_text().startswith("ecdsa-sha2-nistp384 ")
