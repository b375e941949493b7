"""What the daemon wants to know of a model before an engine has loaded it."""

from dataclasses import dataclass
from typing import Final

from runtimes.models.gguf.encoding import FILE_TYPES
from runtimes.models.gguf.facts import Facts

CHAT_TEMPLATE: Final = "tokenizer.chat_template"
_KV_ELEMENT_BYTES: Final = 2  # keys and values are kept as 16-bit floats


@dataclass(frozen=True, slots=True)
class ModelSummary:
    architecture: str
    name: str | None
    size_label: str | None  # "135M", as the maker wrote it
    quantisation: str
    licence: str | None
    context_length: int  # tokens the model was trained for
    block_count: int
    embedding_length: int
    head_count: int | None  # None: the architecture has no attention heads
    head_count_kv: int | None  # the largest of any layer
    kv_bytes_per_token: int | None  # every layer at full context: an upper bound for sliding-window models
    vocabulary: int | None  # tokens; None: no tokenizer
    chat_template: str | None
    parameters: int
    file_bytes: int

    @property
    def has_tokenizer(self) -> bool:
        return self.vocabulary is not None


def summarize(facts: Facts, vocabulary: int | None) -> ModelSummary:
    """`facts` must have passed `check`; `vocabulary` is what `check_tokenizer` returned."""
    prefix = facts.architecture
    layers = facts.positive(f"{prefix}.block_count")
    width = facts.positive(f"{prefix}.embedding_length")
    heads = facts.per_layer(f"{prefix}.attention.head_count", layers)
    kv_heads = facts.per_layer(f"{prefix}.attention.head_count_kv", layers) or heads
    return ModelSummary(
        architecture=prefix,
        name=_said(facts, "general.name"),
        size_label=_said(facts, "general.size_label"),
        quantisation=_quantisation(facts),
        licence=_said(facts, "general.license"),
        context_length=facts.positive(f"{prefix}.context_length"),
        block_count=layers,
        embedding_length=width,
        head_count=max(heads) if heads else None,
        head_count_kv=max(kv_heads) if kv_heads else None,
        kv_bytes_per_token=_kv_bytes(facts, width, heads, kv_heads),
        vocabulary=vocabulary,
        chat_template=facts.text(CHAT_TEMPLATE),
        parameters=sum(tensor.elements for tensor in facts.header.tensors),
        file_bytes=facts.header.file_bytes,
    )


def _said(facts: Facts, key: str) -> str | None:
    """What a file says for people only: of no consequence when it is missing, empty or no text."""
    value = facts.header.metadata.get(key)
    return value if isinstance(value, str) and value else None


def _quantisation(facts: Facts) -> str:
    """The declared file type, else the type that most of the weights have."""
    declared = facts.integer("general.file_type")
    if declared is not None and declared in FILE_TYPES:
        return FILE_TYPES[declared]
    elements: dict[str, int] = {}
    for tensor in facts.header.tensors:
        elements[tensor.type] = elements.get(tensor.type, 0) + tensor.elements
    return max(elements, key=lambda name: elements[name])


def _kv_bytes(facts: Facts, width: int, heads: tuple[int, ...] | None, kv_heads: tuple[int, ...] | None) -> int | None:
    if not heads or not kv_heads or not max(heads):
        return None
    key_length = facts.integer(f"{facts.architecture}.attention.key_length") or width // max(heads)
    value_length = facts.integer(f"{facts.architecture}.attention.value_length") or width // max(heads)
    return sum(kv_heads) * (key_length + value_length) * _KV_ELEMENT_BYTES
