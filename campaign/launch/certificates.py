"""The TLS certificate of a campaign: driver and workers of a cluster share one new key."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from distributed.security import Security

NOT_BEFORE = datetime.datetime(1970, 1, 2)
NOT_AFTER = datetime.datetime(9999, 12, 31, 23, 59, 59)
"""RFC 5280, section 4.1.2.5: the certificate does not expire."""


def make_security() -> Security:
    """Dask's settings for TLS with a new self-signed certificate, the only one that driver and
    workers trust. It stays in memory, only as long as the cluster.

    It is valid at any time. The certificate that Dask makes is valid from its creation on, so that
    a node whose clock is behind the driver's could not connect until its clock has caught up.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "campaign")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOT_BEFORE)
        .not_valid_after(NOT_AFTER)
        .sign(key, hashes.SHA256())
    )
    trusted = certificate.public_bytes(serialization.Encoding.PEM).decode()
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    return Security(
        require_encryption=True,
        tls_ca_file=trusted,
        tls_client_key=secret,
        tls_client_cert=trusted,
        tls_scheduler_key=secret,
        tls_scheduler_cert=trusted,
        tls_worker_key=secret,
        tls_worker_cert=trusted,
    )
