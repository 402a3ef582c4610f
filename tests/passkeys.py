"""An authenticator in software: makes passkeys and signs challenges as a browser and its device do."""

import hashlib
import json
import os
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from fido2.cose import ES256
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import AttestationObject, AttestedCredentialData, AuthenticatorData

ORIGIN = "https://toolgate.example"
HOST = "toolgate.example"
FLAGS = AuthenticatorData.FLAG


class Passkey:
    """One passkey. `verifies` is False for a device that cannot tell who uses it."""

    def __init__(self, *, verifies: bool = True, origin: str = ORIGIN, host: str = HOST) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._id = os.urandom(32)
        self._user_handle = ""
        self.verifies = verifies
        self._origin = origin
        self._host = host

    def create(self, options: Mapping[str, Any]) -> str:
        """Return the credential for options of a registration, as JSON."""
        public = options["publicKey"]
        self._user_handle = public["user"]["id"]
        attested = AttestedCredentialData.create(
            b"\0" * 16, self._id, ES256.from_cryptography_key(self._key.public_key())
        )
        data = AuthenticatorData.create(self._host_hash(), self._flags() | FLAGS.AT, 0, attested)
        attestation = AttestationObject.create("none", data, {})
        return self._credential(
            clientDataJSON=self._client_data("webauthn.create", public["challenge"]),
            attestationObject=websafe_encode(attestation),
        )

    def sign(self, options: Mapping[str, Any]) -> str:
        """Return the signed challenge of the options, as JSON."""
        client_data = self._client_data("webauthn.get", options["publicKey"]["challenge"])
        data = AuthenticatorData.create(self._host_hash(), self._flags(), 0)
        signed = bytes(data) + hashlib.sha256(websafe_decode(client_data)).digest()
        return self._credential(
            clientDataJSON=client_data,
            authenticatorData=websafe_encode(data),
            signature=websafe_encode(self._key.sign(signed, ec.ECDSA(SHA256()))),
            userHandle=self._user_handle,
        )

    def _credential(self, **response: str) -> str:
        id_text = websafe_encode(self._id)
        found = {"id": id_text, "rawId": id_text, "type": "public-key", "response": response}
        return json.dumps({**found, "clientExtensionResults": {}})

    def _client_data(self, kind: str, challenge: str) -> str:
        return websafe_encode(json.dumps({"type": kind, "challenge": challenge, "origin": self._origin}).encode())

    def _host_hash(self) -> bytes:
        return hashlib.sha256(self._host.encode()).digest()

    def _flags(self) -> AuthenticatorData.FLAG:
        return FLAGS.UP | FLAGS.UV if self.verifies else FLAGS.UP
