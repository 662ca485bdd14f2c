"""Identities of clients and the list of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from lowkey.deployment.enrolment import (
    Enrolled,
    OwnKeys,
    fingerprint,
    new_identity,
    read_enrolment,
    read_identity,
    revoke,
    verify_keys_of,
    write_enrolment,
    write_secret,
)
from lowkey.errors import ConfigError
from lowkey.secagg.keys import is_signed_by

KEY = "A" * 43 + "="  # 32 bytes


def listed(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_client_signs_with_the_key_that_it_enrolled(tmp_path: Path) -> None:
    entry = new_identity(tmp_path / "home", 2, "St. Ann")
    [read] = read_enrolment(tmp_path / "home/identity.toml")
    identity = read_identity(tmp_path / "home", 2)
    assert read == entry == Enrolled(client=2, name="St. Ann", key=identity.verify_key)
    assert is_signed_by(entry.key, b"text", identity.sign(b"text"))


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    new_identity(tmp_path / "home", 0, "")
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home/identity.pem").stat().st_mode & 0o777 == 0o600


def test_identities_differ(tmp_path: Path) -> None:
    assert new_identity(tmp_path / "a", 0, "").key != new_identity(tmp_path / "b", 0, "").key


def test_an_identity_is_not_overwritten(tmp_path: Path) -> None:
    before = new_identity(tmp_path, 0, "")
    with pytest.raises(ConfigError, match=r"identity\.pem exists"):
        new_identity(tmp_path, 0, "")
    assert read_identity(tmp_path, 0).verify_key == before.key


def test_a_name_that_would_not_be_read_makes_no_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one line"):
        new_identity(tmp_path / "home", 0, "a\nb")
    assert not (tmp_path / "home").exists()


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    new_identity(tmp_path, 0, "")
    (tmp_path / "identity.pem").chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_identity(tmp_path, 0)


def test_a_missing_or_damaged_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lowkey flower identity"):
        read_identity(tmp_path, 0)
    write_secret(tmp_path / "identity.pem", b"no key")
    with pytest.raises(ConfigError, match="is not a private key"):
        read_identity(tmp_path, 0)


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_secret(tmp_path / "identity.pem", other)
    with pytest.raises(ConfigError, match="Ed25519"):
        read_identity(tmp_path, 0)


def test_a_secret_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written"):
        write_secret(tmp_path / "file/below/secret", b"")


def test_a_list_comes_back_sorted(tmp_path: Path) -> None:
    clients = [Enrolled(client=n, name=f"node {n}", key=bytes([n]) * 32) for n in (2, 0, 1)]
    write_enrolment(tmp_path / "list.toml", clients)
    assert read_enrolment(tmp_path / "list.toml") == sorted(clients, key=lambda c: c.client)
    assert verify_keys_of(clients) == {n: bytes([n]) * 32 for n in range(3)}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "lists no"),
        ("client = 5", "lists no"),
        ("[client]\nnumber = 0", "lists no"),
        ("[[client", "not valid TOML"),
        ("client = [1]", "needs number, name and key"),
        (f'[[client]]\nkey = "{KEY}"', "needs number, name and key"),
        ("[[client]]\nnumber = 0", "needs number, name and key"),
        ("[[client]]\nnumber = 0\nkey = 7", "needs number, name and key"),
        ('[[client]]\nnumber = 0\nkey = "%%%"', "needs number, name and key"),
        ('[[client]]\nnumber = 0\nkey = "AAAA"', "has 3 bytes"),
        (f'[[client]]\nnumber = -1\nkey = "{KEY}"', "it must be a whole number"),
        (f'[[client]]\nnumber = 4294967296\nkey = "{KEY}"', "it must be a whole number"),
        (f'[[client]]\nnumber = true\nkey = "{KEY}"', "it must be a whole number"),
        (f'[[client]]\nnumber = 1.5\nkey = "{KEY}"', "it must be a whole number"),
        (f'[[client]]\nnumber = 0\nname = "\\u001b[2J"\nkey = "{KEY}"', "one line"),
        (f'[[client]]\nnumber = 0\nkey = "{KEY}"\nrevoked = 1', "true or false"),
        (f'[[client]]\nnumber = 0\nkey = "{KEY}"\nrevoked = "false"', "true or false"),
        (f'[[client]]\nnumber = 0\nkey = "é{KEY}"', "needs number, name and key"),
        (f'[[client]]\nnumber = 0\nkey = "{KEY}"\nweight = 2', "'weight' is unknown"),
        (f'more = 1\n[[client]]\nnumber = 0\nkey = "{KEY}"', "'more' is unknown"),
        (f'version = 3\nnew = 1\n[[client]]\nnumber = 0\nkey = "{KEY}"', "reads versions 1 to 2; upgrade Lowkey"),
        (f'version = "2"\n[[client]]\nnumber = 0\nkey = "{KEY}"', "another version"),
        (f'[[client]]\nnumber = 0\nkey = "{KEY}"\n' * 2, "same number"),
        (f'[[client]]\nnumber = 0\nkey = "{KEY}"\n[[client]]\nnumber = 1\nkey = "{KEY}"', "same key"),
    ],
)
def test_a_list_that_is_not_sound_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_enrolment(listed(tmp_path / "enrolled.toml", text))


def test_a_list_of_the_first_release_which_states_no_version_is_read(tmp_path: Path) -> None:
    old = listed(tmp_path / "old.toml", f'[[client]]\nnumber = 0\nname = "St. Ann"\nkey = "{KEY}"\n')
    clients = read_enrolment(old)
    assert clients == [Enrolled(client=0, name="St. Ann", key=bytes(32))]
    write_enrolment(tmp_path / "new.toml", clients)
    assert (tmp_path / "new.toml").read_text().startswith("version = 2\n")
    assert read_enrolment(tmp_path / "new.toml") == clients


def test_a_list_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_enrolment(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_enrolment(tmp_path / "binary.toml")


def test_fingerprints_follow_numbers_and_keys_and_nothing_else() -> None:
    a, b = (Enrolled(client=n, name="x", key=bytes([n]) * 32) for n in (1, 2))
    renamed = Enrolled(client=1, name="y", key=a.key)
    swapped = [Enrolled(client=1, name="x", key=b.key), Enrolled(client=2, name="x", key=a.key)]
    assert fingerprint([a, b]) == fingerprint([b, renamed])
    assert len({fingerprint(clients) for clients in ([a, b], [a], [b], swapped)}) == 4


def test_a_revoked_client_keeps_its_number_and_is_trusted_no_more(tmp_path: Path) -> None:
    clients = [Enrolled(client=n, name=f"node {n}", key=bytes([n]) * 32) for n in range(3)]
    write_enrolment(tmp_path / "list.toml", revoke(clients, 1))
    read = read_enrolment(tmp_path / "list.toml")
    assert [(c.client, c.name, c.revoked) for c in read] == [
        (0, "node 0", False),
        (1, "node 1", True),
        (2, "node 2", False),
    ]
    assert verify_keys_of(read) == {0: clients[0].key, 2: clients[2].key}
    assert fingerprint(read) != fingerprint(clients)
    assert fingerprint(read) != fingerprint(revoke(clients, 2))
    for unknown in (1, 3):
        with pytest.raises(ConfigError, match=f"client {unknown} is revoked already, or not in the list"):
            revoke(read, unknown)


def test_a_fingerprint_can_be_read_aloud() -> None:
    groups = fingerprint([Enrolled(client=1, name="x", key=bytes(32))]).split(" ")
    assert [len(group) for group in groups] == [4] * 12


def test_a_node_whose_key_is_not_the_enrolled_one_does_not_start(tmp_path: Path) -> None:
    new_identity(tmp_path / "a", 0, "")
    other = new_identity(tmp_path / "b", 0, "")
    mine = read_identity(tmp_path / "a", 0)
    with pytest.raises(ConfigError, match="another key for client 0"):
        OwnKeys(mine, verify_keys_of([other]))
    for directory in ({}, {1: mine.verify_key}, verify_keys_of(revoke([other], 0))):
        with pytest.raises(ConfigError, match="client 0 is revoked in"):
            OwnKeys(mine, directory)
    keys = OwnKeys(mine, {0: mine.verify_key})
    assert keys.identity(0) is mine
    with pytest.raises(ConfigError, match="this node is client 0, not 1"):
        keys.identity(1)
