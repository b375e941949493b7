"""GGUF files, read in Python and proven safe before native code is given them.

`read_model(path)` proves the file and says what is in it; `read_header(path)` gives every entry and tensor. Nothing
here loads weights, and nothing of the file is trusted: not a length, not a count, not an offset.
"""

from pathlib import Path

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf.checks import check
from runtimes.models.gguf.cursor import Scalar
from runtimes.models.gguf.facts import Facts
from runtimes.models.gguf.header import Entry, GGUFHeader, Tensor, Unread, elements, opened, parse
from runtimes.models.gguf.summary import ModelSummary, summarize
from runtimes.models.gguf.tokenizer import check_tokenizer

__all__ = [
    "Entry",
    "GGUFHeader",
    "InvalidGGUF",
    "ModelSummary",
    "Tensor",
    "Unread",
    "read_array",
    "read_header",
    "read_model",
]


def read_header(path: Path) -> GGUFHeader:
    """Everything the file describes. Raises InvalidGGUF unless llama.cpp can be given the file safely."""
    return _read(path)[0]


def read_model(path: Path) -> ModelSummary:
    """What the model is. Raises InvalidGGUF as `read_header` does."""
    return _read(path)[1]


def read_array(path: Path, key: str, array: Unread) -> tuple[Scalar | bytes, ...]:
    """The elements of an array of this file's header, strings as bytes. A whole vocabulary takes 10 to 30 MB."""
    with opened(path) as cursor:
        return tuple(elements(cursor, array, key))


def _read(path: Path) -> tuple[GGUFHeader, ModelSummary]:
    with opened(path) as cursor:
        header = parse(cursor)
        facts = Facts(header, cursor)
        check(facts)
        vocabulary = check_tokenizer(facts)
        return header, summarize(facts, vocabulary)
