"""Encryption at rest: the codec that users give to an engine."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from actorflow.runtime.errors import ActorflowError, BadOption, install_hint

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Encrypted", "WrongKey"]

_SIZES = (16, 24, 32)
_NAME = 4  # bytes that name a key
_NONCE = 12


class WrongKey(ActorflowError, ValueError):
    """Stored data cannot be decrypted: the key is another one, or the data were changed."""


class Encrypted:
    """Encrypt with AES-GCM all bodies, states, results and errors that an engine stores.

    >>> codec = Encrypted(bytes(32))
    >>> codec.decode(codec.encode(b"secret"))
    b'secret'

    Ids, names of kinds, taskers and timers, tags, keys of messages, times and sizes stay readable,
    because the store looks for them.

    Args:
        key: 16, 24 or 32 random bytes: `os.urandom(32)`, kept where your other secrets are.
        old_keys: keys of before. What they have encrypted can be read, and is encrypted with `key`
            when it is written again.

    Raises:
        BadOption: a key has another length, or the package `cryptography` is missing.

    """

    __slots__ = ("_ciphers", "_name")

    def __init__(self, key: bytes, *, old_keys: Sequence[bytes] = ()) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import (  # noqa: PLC0415 - an extra
                AESGCM,
            )
        except ImportError as error:
            msg = f"Encrypted() needs {error.name}: {install_hint('encryption')}"
            raise BadOption(msg) from error
        self._ciphers: dict[bytes, Any] = {}
        for each in (key, *old_keys):
            given: object = each
            if not isinstance(given, bytes) or len(given) not in _SIZES:
                msg = "a key must be 16, 24 or 32 bytes, as os.urandom(32) makes them"
                raise BadOption(msg)
            self._ciphers.setdefault(_name_of(given), AESGCM(given))
        self._name = _name_of(key)

    def __repr__(self) -> str:
        return f"Encrypted({len(self._ciphers)} keys)"

    def encode(self, data: bytes) -> bytes:
        """Return data encrypted with the present key."""
        nonce = os.urandom(_NONCE)
        sealed: bytes = self._ciphers[self._name].encrypt(nonce, data, None)
        return self._name + nonce + sealed

    def decode(self, data: bytes) -> bytes:
        """Return what `encode` has encrypted, with any of the keys.

        Raises:
            WrongKey: none of the keys fits, or the data were changed.

        """
        cipher = self._ciphers.get(data[:_NAME])
        if cipher is None:
            msg = (
                "stored data were encrypted with another key: give it as well, as in "
                "Encrypted(new_key, old_keys=[old_key])"
            )
            raise WrongKey(msg)
        end = _NAME + _NONCE
        try:
            plain: bytes = cipher.decrypt(data[_NAME:end], data[end:], None)
        except Exception as error:
            msg = "stored data were changed after they were encrypted"
            raise WrongKey(msg) from error
        return plain


def _name_of(key: bytes) -> bytes:
    """Return what names a key and does not tell it."""
    return hashlib.sha256(b"actorflow key" + key).digest()[:_NAME]
