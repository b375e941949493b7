"""A writer of small GGUF files, sound or wrong on purpose, and the smallest model that llama.cpp loads.

The writer remembers where it put what, so that a test can damage exactly one field.
"""

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from runtimes.models.gguf.encoding import SCALAR_FORMAT, ValueType

U16, U32, I32, F32 = ValueType.UINT16, ValueType.UINT32, ValueType.INT32, ValueType.FLOAT32
BOOL, STRING, ARRAY = ValueType.BOOL, ValueType.STRING, ValueType.ARRAY

FieldKind = Literal["magic", "version", "count", "length", "type", "dimension", "offset", "value", "bytes"]


@dataclass(frozen=True)
class Field:
    kind: FieldKind
    start: int
    size: int


@dataclass
class Entry:
    key: str | bytes
    kind: int
    value: object
    element: int | None = None  # of an array


@dataclass
class Tensor:
    name: str | bytes
    shape: tuple[int, ...]
    type: int = 0
    data: bytes = b""
    offset: int | None = None  # None: where it belongs


@dataclass
class Gguf:
    entries: list[Entry]
    tensors: list[Tensor]
    version: int = 3
    alignment: int = 32
    magic: bytes = b"GGUF"
    fields: list[Field] = field(default_factory=list)

    def set(self, key: str, kind: int, value: object, element: int | None = None) -> "Gguf":
        self.drop(key)
        self.entries.append(Entry(key, kind, value, element))
        return self

    def drop(self, key: str) -> "Gguf":
        self.entries = [entry for entry in self.entries if entry.key != key]
        return self

    def tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def build(self) -> bytes:
        writer = _Writer()
        writer.put("magic", self.magic)
        writer.put("version", struct.pack("<I", self.version))
        writer.put("count", struct.pack("<Q", len(self.tensors)))
        writer.put("count", struct.pack("<Q", len(self.entries)))
        for entry in self.entries:
            writer.entry(entry)
        position = 0
        for tensor in self.tensors:
            writer.described(tensor, position)
            position += -(-len(tensor.data) // self.alignment) * self.alignment
        for tensor in self.tensors:
            writer.out.extend(b"\0" * (-len(writer.out) % self.alignment))
            writer.out.extend(tensor.data)
        self.fields = writer.fields
        return bytes(writer.out)


class _Writer:
    def __init__(self) -> None:
        self.out = bytearray()
        self.fields: list[Field] = []

    def put(self, kind: FieldKind, data: bytes) -> None:
        self.fields.append(Field(kind, len(self.out), len(data)))
        self.out.extend(data)

    def text(self, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else value
        self.put("length", struct.pack("<Q", len(data)))
        self.put("bytes", data)

    def single(self, kind: int, value: object) -> None:
        if kind == STRING:
            assert isinstance(value, str | bytes)
            self.text(value)
        else:
            self.put("value", struct.pack(SCALAR_FORMAT[ValueType(kind)], value))

    def entry(self, entry: Entry) -> None:
        self.text(entry.key)
        self.put("type", struct.pack("<I", entry.kind))
        if entry.kind != ARRAY:
            self.single(entry.kind, entry.value)
            return
        assert isinstance(entry.value, Sequence)
        assert entry.element is not None
        self.put("type", struct.pack("<I", entry.element))
        self.put("length", struct.pack("<Q", len(entry.value)))
        for value in entry.value:
            self.single(entry.element, value)

    def described(self, tensor: Tensor, position: int) -> None:
        self.text(tensor.name)
        self.put("count", struct.pack("<I", len(tensor.shape)))
        for length in tensor.shape:
            self.put("dimension", struct.pack("<Q", length))
        self.put("type", struct.pack("<I", tensor.type))
        self.put("offset", struct.pack("<Q", position if tensor.offset is None else tensor.offset))


def byte_tokens() -> list[str]:
    return [f"<0x{byte:02X}>" for byte in range(256)]


def tiny_model() -> Gguf:
    """A one-layer Llama with a sentencepiece vocabulary of 270 tokens: 90 kB, and llama.cpp answers with it."""
    tokens = ["<unk>", "<s>", "</s>", *byte_tokens(), "▁", "a", "b", "c", "▁a", "ab", "abc", "d", "e", "f", "g"]
    kinds = [2, 3, 3, *([6] * 256), *([1] * (len(tokens) - 259))]
    width, inner = 32, 64
    entries = [
        Entry("general.architecture", STRING, "llama"),
        Entry("general.type", STRING, "model"),
        Entry("general.name", STRING, "Tiny"),
        Entry("general.size_label", STRING, "50K"),
        Entry("general.license", STRING, "apache-2.0"),
        Entry("general.file_type", U32, 0),
        Entry("llama.block_count", U32, 1),
        Entry("llama.context_length", U32, 256),
        Entry("llama.embedding_length", U32, width),
        Entry("llama.feed_forward_length", U32, inner),
        Entry("llama.attention.head_count", U32, 4),
        Entry("llama.attention.head_count_kv", U32, 2),
        Entry("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        Entry("llama.rope.dimension_count", U32, width // 4),
        Entry("tokenizer.ggml.model", STRING, "llama"),
        Entry("tokenizer.ggml.tokens", ARRAY, tokens, STRING),
        Entry("tokenizer.ggml.scores", ARRAY, [-float(number) for number in range(len(tokens))], F32),
        Entry("tokenizer.ggml.token_type", ARRAY, kinds, I32),
        Entry("tokenizer.ggml.bos_token_id", U32, 1),
        Entry("tokenizer.ggml.eos_token_id", U32, 2),
        Entry("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m.content }}{% endfor %}"),
    ]
    shapes = {
        "token_embd.weight": (width, len(tokens)),
        "output_norm.weight": (width,),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.attn_q.weight": (width, width),
        "blk.0.attn_k.weight": (width, width // 2),
        "blk.0.attn_v.weight": (width, width // 2),
        "blk.0.attn_output.weight": (width, width),
        "blk.0.ffn_norm.weight": (width,),
        "blk.0.ffn_gate.weight": (width, inner),
        "blk.0.ffn_up.weight": (width, inner),
        "blk.0.ffn_down.weight": (inner, width),
    }
    dice = random.Random(0)
    tensors = []
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors.append(Tensor(name, shape, 0, struct.pack(f"<{count}f", *(dice.gauss(0, 0.1) for _ in range(count)))))
    return Gguf(entries, tensors)
