"""The wire format of each kind of provider."""

from fallback.provider import Kind
from fallback.wire.anthropic import AnthropicWire
from fallback.wire.contract import Wire
from fallback.wire.openai import AzureWire, OpenAIWire


def wire_of(kind: Kind) -> Wire:
    wires: dict[Kind, Wire] = {"openai": OpenAIWire(), "azure": AzureWire(), "anthropic": AnthropicWire()}
    return wires[kind]
