"""Certificates of a cluster: the names in them and their issuers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sapwood.core.errors import SecurityError
from sapwood.security.authority import (
    BACK_DATED,
    HEAD,
    MAX_REQUEST,
    Authority,
    is_head,
    is_issued_by,
    make_request,
    new_cluster_id,
    pin_of,
)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("grove")


@pytest.fixture(scope="module")
def stranger() -> Authority:
    return Authority.create("grove")


def certificate_of(authority: Authority, node: str = "n1") -> x509.Certificate:
    _, request = make_request()
    return x509.load_pem_x509_certificate(authority.sign(request, node))


def name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def test_a_certificate_names_the_node_that_the_authority_says(authority: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    greedy = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(name("head.grove"))
        .add_extension(x509.BasicConstraints(ca=True, path_length=9), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("head.grove")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    made = authority.sign(greedy.public_bytes(Encoding.PEM), "n7")
    certificate = x509.load_pem_x509_certificate(made)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n7.grove"]
    assert certificate.subject == name("n7.grove")
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    assert not usage.key_cert_sign
    uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}


def test_a_certificate_begins_before_now_and_ends_when_it_is_told(authority: Authority) -> None:
    _, request = make_request()
    made = authority.sign(request, "n1", dt.timedelta(minutes=5))
    certificate = x509.load_pem_x509_certificate(made)
    now = dt.datetime.now(dt.UTC)
    assert now - certificate.not_valid_before_utc >= BACK_DATED
    assert (
        dt.timedelta(minutes=4) < certificate.not_valid_after_utc - now <= dt.timedelta(minutes=5)
    )


def test_serial_numbers_differ(authority: Authority) -> None:
    numbers = {certificate_of(authority).serial_number for _ in range(5)}
    assert len(numbers) == 5


def test_only_its_own_authority_vouches_for_a_certificate(
    authority: Authority, stranger: Authority
) -> None:
    made = certificate_of(authority).public_bytes(Encoding.PEM)
    assert is_issued_by(made, authority.certificate)
    assert not is_issued_by(made, stranger.certificate)  # of the same name
    assert authority.pin != stranger.pin


def test_only_the_head_is_the_head(authority: Authority, stranger: Authority) -> None:
    head = certificate_of(authority, HEAD).public_bytes(Encoding.DER)
    node = certificate_of(authority, "n1").public_bytes(Encoding.DER)
    foreign = certificate_of(stranger, HEAD).public_bytes(Encoding.DER)
    assert is_head(head, authority.certificate)
    assert not is_head(node, authority.certificate)
    assert not is_head(foreign, authority.certificate)


def test_the_pin_is_that_of_the_key_and_not_of_the_certificate(authority: Authority) -> None:
    again = Authority.load(authority.key, authority.certificate)
    assert again.pin == authority.pin == pin_of(authority.certificate)
    assert again.cluster == "grove"
    made = certificate_of(again).public_bytes(Encoding.PEM)
    assert is_issued_by(made, authority.certificate)


def _encrypted(authority: Authority) -> tuple[bytes, bytes]:
    key = load_pem_private_key(authority.key, None)
    hidden = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    return hidden, authority.certificate


def _of_another(authority: Authority) -> tuple[bytes, bytes]:
    return Authority.create("other").key, authority.certificate


def _of_nobody(authority: Authority) -> tuple[bytes, bytes]:
    loaded = load_pem_private_key(authority.key, None)
    assert isinstance(loaded, ec.EllipticCurvePrivateKey)
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([]))
        .issuer_name(x509.Name([]))
        .public_key(loaded.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now)
        .sign(loaded, hashes.SHA256())
    )
    return authority.key, certificate.public_bytes(Encoding.PEM)


def _of_another_kind(authority: Authority) -> tuple[bytes, bytes]:
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem, authority.certificate


@pytest.mark.parametrize(
    "broken",
    [
        lambda authority: (b"", authority.certificate),
        lambda authority: (authority.key, b"no certificate"),
        lambda authority: (authority.key[:100], authority.certificate),
        _encrypted,
        _of_another,
        _of_another_kind,
        _of_nobody,
    ],
    ids=["no key", "no certificate", "half", "encrypted", "another", "another kind", "nobody"],
)
def test_what_is_no_authority_is_refused(
    authority: Authority, broken: Callable[[Authority], tuple[bytes, bytes]]
) -> None:
    with pytest.raises(SecurityError):
        Authority.load(*broken(authority))


def _tampered() -> bytes:
    _, request = make_request()
    found = x509.load_pem_x509_csr(request)
    der = bytearray(found.public_bytes(Encoding.DER))
    at = der.index(b"node")
    der[at : at + 4] = b"head"
    return x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)


def _of_rsa() -> bytes:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    request = x509.CertificateSigningRequestBuilder().subject_name(name("node"))
    return request.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.parametrize(
    "request_",
    [b"", b"-----BEGIN", b"\xff" * 100, b"x" * (MAX_REQUEST + 1), _tampered(), _of_rsa()],
    ids=["nothing", "beginning", "garbage", "too large", "tampered", "RSA"],
)
def test_a_bad_request_gets_no_certificate(authority: Authority, request_: bytes) -> None:
    with pytest.raises(SecurityError):
        authority.sign(request_, "n1")


@pytest.mark.parametrize("data", [b"", b"-----BEGIN CERTIFICATE-----", b"\x30\x03\x02\x01\x01"])
def test_what_is_no_certificate_has_no_pin_and_no_issuer(authority: Authority, data: bytes) -> None:
    with pytest.raises(SecurityError):
        pin_of(data)
    with pytest.raises(SecurityError):
        is_issued_by(data, authority.certificate)


def test_cluster_ids_are_dns_labels_and_differ() -> None:
    found = {new_cluster_id() for _ in range(20)}
    assert len(found) == 20
    assert all(len(one) <= 63 and one.replace("-", "").isalnum() for one in found)


def test_a_private_key_is_in_no_text(authority: Authority) -> None:
    key, request = make_request()
    credentials = authority.issue(request, "n1", key)
    for shown in (repr(authority), str(authority), repr(credentials)):
        assert "PRIVATE" not in shown
        assert key.decode().splitlines()[1] not in shown
