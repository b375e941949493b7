"""A GGUF's tokenizer: arrays that must agree with each other, and tokens that llama.cpp takes for granted.

llama.cpp (`llama-vocab.cpp`) asserts some of this while it loads and some only when text is tokenized, when the
process serves requests already. Knows no text: tokens are bytes here.
"""

from dataclasses import dataclass
from typing import Final

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf.encoding import ValueType
from runtimes.models.gguf.facts import Facts
from runtimes.models.gguf.header import Unread

MODEL: Final = "tokenizer.ggml.model"
PRE: Final = "tokenizer.ggml.pre"
TOKENS: Final = "tokenizer.ggml.tokens"
KINDS: Final = "tokenizer.ggml.token_type"
SCORES: Final = "tokenizer.ggml.scores"
MERGES: Final = "tokenizer.ggml.merges"
MAX_TOKENS: Final = 1 << 19  # twice the largest vocabulary known


@dataclass(frozen=True, slots=True)
class _Family:
    """What llama.cpp assumes of a tokenizer.ggml.model when the file does not say."""

    bos: int | None = None
    eos: int | None = None
    sep: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    add_sep: bool = False
    merges: bool = False
    scores: bool = False
    byte_tokens: bool = False  # text that no token covers is spelled in these
    forced: bool = False  # the file's own add_* flags cannot switch these off


_BPE = _Family(bos=11, eos=11, merges=True)
_FAMILIES: Final[dict[str, _Family]] = {
    "llama": _Family(bos=1, eos=2, add_bos=True, scores=True, byte_tokens=True),
    "bert": _Family(bos=101, sep=102, add_bos=True, add_sep=True, forced=True),
    "gpt2": _BPE,
    "hybriddna": _BPE,
    "whitespace": _BPE,
    "t5": _Family(eos=1, add_eos=True, scores=True),
    "rwkv": _Family(),
    "plamo2": _Family(bos=1, eos=2, byte_tokens=True),
    "gemma4": _Family(add_bos=True, merges=True, forced=True),
}
_NO_TOKENIZER: Final = ("none", "no_vocab")
_PRE_ADDS_BOS: Final = (
    *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
    *("tekken", "chameleon"),
)
_PRE_WITHOUT_MERGES: Final = ("kimi-k2",)


def check_tokenizer(facts: Facts) -> int | None:
    """Raise InvalidGGUF for a tokenizer that llama.cpp would trip over. Returns its number of tokens, if any."""
    model = facts.text(MODEL)
    if model is None or model in _NO_TOKENIZER:
        return None
    family = _FAMILIES.get(model)
    if family is None:
        raise facts.wrong(MODEL, f"is {model!r}, a tokenizer that llama.cpp does not know")
    array = facts.array(TOKENS, ValueType.STRING)
    if array is None:
        raise facts.wrong(TOKENS, "is missing")
    if not 0 < array.count <= MAX_TOKENS:
        raise facts.wrong(TOKENS, f"has {array.count:,} tokens; 1 to {MAX_TOKENS:,} make sense")
    _check_parallel(facts, array.count, scores_needed=family.scores)
    _check_tokens(facts, array, byte_tokens=family.byte_tokens)
    if family.merges and facts.text(PRE) not in _PRE_WITHOUT_MERGES:
        _check_merges(facts)
    _check_special(facts, family, array.count)
    embedding = facts.tensor("token_embd.weight")
    if embedding is not None and embedding.shape[1] != array.count:
        rows = embedding.shape[1]
        raise InvalidGGUF(f"token_embd.weight has {rows:,} rows for {array.count:,} tokens")
    return array.count


def _check_parallel(facts: Facts, tokens: int, *, scores_needed: bool) -> None:
    """Arrays that are read with a token's number as the index."""
    scores = facts.array(SCORES, ValueType.FLOAT32, ValueType.INT32)
    if scores is None and scores_needed:
        raise facts.wrong(SCORES, "is missing: this kind of tokenizer cannot split text without it")
    for key, array in ((SCORES, scores), (KINDS, facts.array(KINDS, ValueType.INT32))):
        if array is not None and array.count != tokens:
            raise facts.wrong(key, f"has {array.count:,} elements for {tokens:,} tokens")


def _check_tokens(facts: Facts, array: Unread, *, byte_tokens: bool) -> None:
    # As llama.cpp sees them: C strings, and a made-up name for an empty one.
    seen = {
        token.partition(b"\0")[0] or b"[EMPTY_%d]" % index for index, token in enumerate(facts.strings(array, TOKENS))
    }
    if len(seen) != array.count:
        twice = array.count - len(seen)
        raise facts.wrong(TOKENS, f"has {twice:,} tokens that appear twice, on which llama.cpp aborts")
    missing = next((byte for byte in range(256) if byte_tokens and b"<0x%02X>" % byte not in seen), None)
    if missing is not None:
        raise facts.wrong(TOKENS, f"lacks the byte token <0x{missing:02X}>: text that needs it ends the process")


def _check_merges(facts: Facts) -> None:
    array = facts.array(MERGES, ValueType.STRING)
    if array is None:
        raise facts.wrong(MERGES, "is missing: this kind of tokenizer cannot join characters without it")
    for index, merge in enumerate(facts.strings(array, MERGES)):
        if merge.find(b" ", 1) < 0:
            raise facts.wrong(MERGES, f"has, at [{index}], one that is not two parts with a space between")


def _check_special(facts: Facts, family: _Family, tokens: int) -> None:
    bos = _special(facts, "tokenizer.ggml.bos_token_id", family.bos, tokens)
    eos = _special(facts, "tokenizer.ggml.eos_token_id", family.eos, tokens)
    _special(facts, "tokenizer.ggml.eot_token_id", None, tokens)
    sep = _special(facts, "tokenizer.ggml.seperator_token_id", family.sep, tokens)  # the format's spelling
    pre_adds_bos = family.merges and facts.text(PRE) in _PRE_ADDS_BOS
    for key, token, default in (
        ("tokenizer.ggml.add_bos_token", bos, family.add_bos or pre_adds_bos),
        ("tokenizer.ggml.add_eos_token", eos, family.add_eos),
        ("tokenizer.ggml.add_sep_token", sep, family.add_sep),
    ):
        said = facts.flag(key)
        added = default if said is None or (family.forced and default) else said
        if added and token is None:
            raise facts.wrong(key, "is on and there is no such token: llama.cpp aborts when it adds it")


def _special(facts: Facts, key: str, default: int | None, tokens: int) -> int | None:
    value = facts.integer(key)
    if value is None:
        return default if default is not None and default < tokens else None
    if value >= tokens:
        raise facts.wrong(key, f"is {value:,} and the vocabulary ends at {tokens - 1:,}")
    return value
