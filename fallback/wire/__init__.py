"""How providers speak: canonical requests to their bodies, their streams to canonical events. Pure."""

from fallback.wire.contract import Answer, MalformedAnswer, ProviderFault, Wire
from fallback.wire.of_kind import wire_of

__all__ = ["Answer", "MalformedAnswer", "ProviderFault", "Wire", "wire_of"]
