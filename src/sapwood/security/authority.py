"""The certificate authority of a cluster: it says which keys belong to which nodes.

A node makes its key itself and asks for a certificate (a *certificate signing request*, PKCS #10).
Certificates name node ids and no addresses, so a machine may change its address. The authority's
*pin* is the SHA-256 of its public key (SubjectPublicKeyInfo, as in RFC 7469). A peer with the pin
can recognise the authority before it sends a secret.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sapwood.core.errors import SecurityError
from sapwood.core.extras import LazyModule
from sapwood.security.credentials import Credentials

if TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509 import oid
else:
    exceptions = LazyModule("cryptography.exceptions", "cluster")
    x509 = LazyModule("cryptography.x509", "cluster")
    oid = LazyModule("cryptography.x509.oid", "cluster")
    hashes = LazyModule("cryptography.hazmat.primitives.hashes", "cluster")
    serialization = LazyModule("cryptography.hazmat.primitives.serialization", "cluster")
    ec = LazyModule("cryptography.hazmat.primitives.asymmetric.ec", "cluster")

BACK_DATED = dt.timedelta(hours=1)
"""How far before now a certificate begins to be valid: clocks of machines differ."""

NODE_LIFE = dt.timedelta(hours=24)
"""How long a node's certificate is valid."""

AUTHORITY_LIFE = dt.timedelta(days=3650)
"""How long the authority itself is valid."""

HEAD = "head"
"""Name of the machine at the root; no node is called so."""

PLACES = "places-"
"""How the names begin that places show which run as another user than their node's daemon."""

MAX_REQUEST = 16 * 1024
"""Bytes of a certificate signing request."""


class Authority:
    """A certificate authority.

    Args:
        key: Its private key.
        certificate: Its own certificate.

    Example:
        >>> authority = Authority.create("demo")
        >>> key, request = make_request()
        >>> credentials = authority.issue(request, "n1", key)
        >>> credentials.node
        'n1.demo'
        >>> is_issued_by(credentials.certificate, credentials.authority)
        True
    """

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate
        self.cluster = _common_name(certificate)

    @classmethod
    def create(cls, cluster: str) -> Authority:
        """Make a new authority.

        Args:
            cluster: Name of the cluster, a DNS label.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(cluster)
        now = dt.datetime.now(dt.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACK_DATED)
            .not_valid_after(now + AUTHORITY_LIFE)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(_key_id(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, key: bytes, certificate: bytes) -> Authority:
        """Return the authority of a key and a certificate, both PEM.

        Raises:
            SecurityError: They are none, or do not belong together.
        """
        try:
            loaded = serialization.load_pem_private_key(key, None)
            found = x509.load_pem_x509_certificate(certificate)
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as error:
            raise SecurityError("not a certificate authority") from error
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or _spki(
            loaded.public_key()
        ) != _spki(found.public_key()):
            raise SecurityError("key and certificate of the authority do not belong together")
        return cls(loaded, found)

    @property
    def certificate(self) -> bytes:
        """Its certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """Its private key, PEM."""
        return _private(self._key)

    @property
    def pin(self) -> str:
        """SHA-256 of its public key, 64 hexadecimal digits."""
        return pin_of(self.certificate)

    def node_id(self, node: str) -> str:
        """Return the whole id of a node."""
        return f"{node}.{self.cluster}"

    def sign(self, request: bytes, node: str, life: dt.timedelta = NODE_LIFE) -> bytes:
        """Return a certificate for the key of a request, PEM.

        Whatever the request says of itself is ignored: the authority decides what the node is
        called and what its certificate may be used for.

        Args:
            request: The certificate signing request, PEM.
            node: Name of the node, a DNS label.
            life: How long it is valid.

        Raises:
            SecurityError: The request is malformed, or not signed by its own key.
        """
        uses = [oid.ExtendedKeyUsageOID.CLIENT_AUTH, oid.ExtendedKeyUsageOID.SERVER_AUTH]
        named = [x509.DNSName(self.node_id(node))]
        return self._signed(_requested_key(request), node, named, uses, life)

    def _signed(
        self,
        public: ec.EllipticCurvePublicKey,
        node: str,
        named: Sequence[x509.GeneralName],
        uses: Sequence[x509.ObjectIdentifier],
        life: dt.timedelta,
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(_name(self.node_id(node)))
            .issuer_name(self._certificate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - BACK_DATED)
            .not_valid_after(now + life)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(named), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    def sign_server(
        self, request: bytes, name: str, hosts: Sequence[str], life: dt.timedelta = NODE_LIFE
    ) -> bytes:
        """Return a certificate by which browsers and scripts know a server, PEM.

        Trees accept it from no process: it names several hosts, and cannot authenticate a client.

        Args:
            request: The certificate signing request, PEM.
            name: Name of the server, a DNS label.
            hosts: Names and addresses under which it is reached.
            life: How long it is valid.

        Raises:
            SecurityError: See :meth:`sign`.
        """
        named: list[x509.GeneralName] = [x509.DNSName(self.node_id(name))]
        for host in dict.fromkeys(hosts):
            try:
                named.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                named.append(x509.DNSName(host))
        uses = [oid.ExtendedKeyUsageOID.SERVER_AUTH]
        return self._signed(_requested_key(request), name, named, uses, life)

    def issue(
        self, request: bytes, node: str, key: bytes, life: dt.timedelta = NODE_LIFE
    ) -> Credentials:
        """Return a node's credentials, where its key was made in this process.

        Raises:
            SecurityError: See :meth:`sign`.
        """
        certificate = self.sign(request, node, life)
        return Credentials(
            node=self.node_id(node),
            certificate=certificate,
            key=key,
            authority=self.certificate,
        )

    def __repr__(self) -> str:
        return f"<Authority of {self.cluster}, pin {self.pin[:8]}…>"


def places_id(node: str) -> str:
    """Return what places of a node show that run as another user than its daemon.

    Such a user can read the key. So it is not the node's key, and has another name: no process
    becomes the node by it.

    Example:
        >>> places_id("n1-1.demo")
        'places-n1-1.demo'
    """
    return PLACES + node


def new_cluster_id() -> str:
    """Return a name for a cluster that no other has."""
    return f"sw-{secrets.token_hex(8)}"


def make_request() -> tuple[bytes, bytes]:
    """Make a key; return it and the request for a certificate, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_name("node"))
        .sign(key, hashes.SHA256())
    )
    return _private(key), request.public_bytes(serialization.Encoding.PEM)


def fingerprint(request: bytes) -> str:
    """Return the SHA-256 of the key of a certificate request (PEM), 64 hexadecimal digits.

    Raises:
        SecurityError: The request is malformed, or not signed by its own key.

    Example:
        >>> _, request = make_request()
        >>> len(fingerprint(request))
        64
    """
    return hashlib.sha256(_spki(_requested_key(request))).hexdigest()


def pin_of(certificate: bytes) -> str:
    """Return the pin of an authority's certificate (PEM).

    Raises:
        SecurityError: It is not a certificate.
    """
    return hashlib.sha256(_spki(_load(certificate).public_key())).hexdigest()


def is_issued_by(certificate: bytes, authority: bytes) -> bool:
    """Say whether an authority signed a certificate; both PEM or DER.

    Raises:
        SecurityError: One of them is not a certificate.
    """
    try:
        _load(certificate).verify_directly_issued_by(_load(authority))
    except (exceptions.InvalidSignature, ValueError, TypeError, exceptions.UnsupportedAlgorithm):
        return False
    return True


def valid_until(certificate: bytes) -> float:
    """Return when a certificate (PEM or DER) ends, seconds since 1970.

    Raises:
        SecurityError: It is not a certificate.
    """
    return _load(certificate).not_valid_after_utc.timestamp()


def is_head(certificate: bytes, authority: bytes) -> bool:
    """Return whether a certificate belongs to the head of an authority's cluster; both PEM or DER.

    The other nodes of the cluster have certificates of the same authority, and are not the head.

    Raises:
        SecurityError: One of them is not a certificate.
    """
    head = f"{HEAD}.{_common_name(_load(authority))}"
    return is_issued_by(certificate, authority) and _common_name(_load(certificate)) == head


def _requested_key(request: bytes) -> ec.EllipticCurvePublicKey:
    """Return the key of a request.

    Raises:
        SecurityError: The request is malformed, or not signed by its own key.
    """
    if len(request) > MAX_REQUEST:
        raise SecurityError(f"a certificate request has more than {MAX_REQUEST} bytes")
    try:
        asked = x509.load_pem_x509_csr(request)
        valid = asked.is_signature_valid
        public = asked.public_key()
    except (ValueError, exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm) as error:
        raise SecurityError("malformed certificate request") from error
    if not valid or not isinstance(public, ec.EllipticCurvePublicKey):
        raise SecurityError("a certificate request is not signed by its own key")
    return public


def _load(certificate: bytes) -> x509.Certificate:
    try:
        if certificate.startswith(b"-----"):
            return x509.load_pem_x509_certificate(certificate)
        return x509.load_der_x509_certificate(certificate)
    except ValueError as error:
        raise SecurityError("malformed certificate") from error


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.get_attributes_for_oid(oid.NameOID.COMMON_NAME)
    if len(names) != 1:
        raise SecurityError("the certificate has no common name")
    return str(names[0].value)


def _spki(key: object) -> bytes:
    der, whole = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    found: bytes = key.public_bytes(der, whole)  # type: ignore[attr-defined]  # all public keys have it
    return found


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(pem, kind, serialization.NoEncryption())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, common)])


def _key_id(key: ec.EllipticCurvePublicKey) -> x509.SubjectKeyIdentifier:
    return x509.SubjectKeyIdentifier.from_public_key(key)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
