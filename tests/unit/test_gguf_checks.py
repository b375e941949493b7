"""What llama.cpp would abort on, and what the daemon learns from a sound file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf import ModelSummary, read_model
from tests.unit.tiny_gguf import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    U16,
    U32,
    Gguf,
    byte_tokens,
    tiny_model,
)

Read = Callable[[Gguf], ModelSummary]
TOKENS = "tokenizer.ggml.tokens"


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read_built(model: Gguf) -> ModelSummary:
        path = tmp_path / "model.gguf"
        path.write_bytes(model.build())
        return read_model(path)

    return read_built


def tokens(model: Gguf) -> list[str]:
    value = next(entry.value for entry in model.entries if entry.key == TOKENS)
    assert isinstance(value, list)
    return value


def byte_pair_model() -> Gguf:
    """The same model with a byte-pair vocabulary."""
    model = tiny_model()
    count = len(tokens(model))
    return (
        model.set("tokenizer.ggml.model", STRING, "gpt2")
        .set("tokenizer.ggml.pre", STRING, "gpt-2")
        .set(TOKENS, ARRAY, [f"t{number}" for number in range(count)], STRING)
        .set("tokenizer.ggml.merges", ARRAY, ["a b", "Ġ a", "ab c"], STRING)
        .drop("tokenizer.ggml.scores")
    )


def test_a_sound_model_is_summarised(read: Read) -> None:
    summary = read(tiny_model())
    assert summary.architecture == "llama"
    assert (summary.name, summary.size_label, summary.licence) == ("Tiny", "50K", "apache-2.0")
    assert summary.quantisation == "F32"
    assert (summary.context_length, summary.block_count, summary.embedding_length) == (256, 1, 32)
    assert (summary.head_count, summary.head_count_kv) == (4, 2)
    assert summary.kv_bytes_per_token == 1 * 2 * (8 + 8) * 2  # layers, KV heads, key and value length, 16 bits
    assert summary.vocabulary == 270
    assert summary.has_tokenizer
    assert summary.chat_template == "{% for m in messages %}{{ m.content }}{% endfor %}"
    assert summary.parameters == 17_952


def test_what_a_file_does_not_say_is_none(read: Read) -> None:
    model = tiny_model()
    for key in ("general.name", "general.size_label", "general.license", "tokenizer.chat_template"):
        model.drop(key)
    summary = read(model)
    assert (summary.name, summary.size_label, summary.licence, summary.chat_template) == (None, None, None, None)


def test_what_is_said_for_people_only_may_be_anything(read: Read) -> None:
    model = tiny_model().set("general.license", ARRAY, ["mit", "apache-2.0"], STRING).set("general.size_label", U32, 7)
    summary = read(model)
    assert (summary.licence, summary.size_label) == (None, None)


def test_an_undeclared_quantisation_is_that_of_most_weights(read: Read) -> None:
    model = tiny_model().drop("general.file_type")
    for tensor in model.tensors:
        if len(tensor.shape) == 2:
            tensor.type, tensor.data = 8, bytes(tensor.shape[0] * tensor.shape[1] // 32 * 34)
    assert read(model).quantisation == "Q8_0"


def test_key_and_value_lengths_of_their_own_count(read: Read) -> None:
    model = tiny_model().set("llama.attention.key_length", U32, 64).set("llama.attention.value_length", U32, 32)
    assert read(model).kv_bytes_per_token == 2 * (64 + 32) * 2


def test_head_counts_may_differ_from_layer_to_layer(read: Read) -> None:
    model = tiny_model().set("llama.block_count", U32, 3)
    model.set("llama.attention.head_count_kv", ARRAY, [1, 2, 4], I32)
    summary = read(model)
    assert summary.head_count_kv == 4
    assert summary.kv_bytes_per_token == (1 + 2 + 4) * (8 + 8) * 2


def test_a_model_without_tokenizer_is_read_and_says_so(read: Read) -> None:
    for model in (
        tiny_model().drop("tokenizer.ggml.model"),
        tiny_model().set("tokenizer.ggml.model", STRING, "no_vocab"),
    ):
        assert not read(model).has_tokenizer


def test_a_real_model_is_summarised(model_path: Path) -> None:
    summary = read_model(model_path)
    assert (summary.architecture, summary.quantisation, summary.size_label) == ("llama", "Q4_1", "135M")
    assert (summary.context_length, summary.vocabulary, summary.parameters) == (8_192, 49_152, 134_515_008)
    assert summary.kv_bytes_per_token == 30 * 3 * (64 + 64) * 2
    assert summary.chat_template is not None
    assert "<|im_start|>" in summary.chat_template


def _experts(count: int, used: int, groups: int = 0, groups_used: int = 0) -> Gguf:
    return (
        tiny_model()
        .set("llama.expert_count", U32, count)
        .set("llama.expert_used_count", U32, used)
        .set("llama.expert_group_count", U32, groups)
        .set("llama.expert_group_used_count", U32, groups_used)
    )


def test_experts_that_add_up_are_accepted(read: Read) -> None:
    for model in (_experts(0, 0), _experts(8, 2), _experts(64, 8, 8, 4)):
        read(model)


@pytest.mark.parametrize(
    "model",
    [
        _experts(1_025, 2),
        _experts(8, 9),
        _experts(8, 0),
        _experts(0, 2),
        _experts(0, 0, 2, 1),
        _experts(8, 2, 8, 4),
        _experts(8, 2, 3, 1),
        _experts(8, 2, 4, 0),
        _experts(8, 2, 4, 4),
    ],
)
def test_experts_that_do_not_add_up_are_refused(read: Read, model: Gguf) -> None:
    with pytest.raises(InvalidGGUF, match="expert_count"):
        read(model)


def _wrong_models() -> dict[str, tuple[Gguf, str]]:
    spare = tiny_model()
    count = len(tokens(spare))
    no_tensors = tiny_model()
    no_tensors.tensors = []
    odd_norm, odd_weight = tiny_model(), tiny_model()
    odd_norm.tensor("output_norm.weight").type, odd_norm.tensor("output_norm.weight").data = 1, bytes(64)
    odd_weight.tensor("blk.0.attn_q.weight").type = 26
    narrow = tiny_model()
    narrow.tensor("token_embd.weight").shape = (16, 540)
    short = tiny_model()
    short.tensor("token_embd.weight").shape, short.tensor("token_embd.weight").data = (32, 200), bytes(32 * 200 * 4)
    return {
        "no architecture": (tiny_model().drop("general.architecture"), "general.architecture is missing"),
        "a number for an architecture": (tiny_model().set("general.architecture", U32, 1), "must be a STRING"),
        "a vision projector": (tiny_model().set("general.architecture", STRING, "clip"), "vision projector"),
        "an adapter": (tiny_model().set("general.type", STRING, "adapter"), "companion"),
        "the second of three parts": (
            tiny_model().set("split.count", U16, 3).set("split.no", U16, 1),
            "part 2 of a model in 3 files and the other 2 are missing",
        ),
        "a part count of another type": (tiny_model().set("split.count", I32, 3), "split.count must be a UINT16"),
        "no tensors": (no_tensors, "no tensors"),
        "a norm in another type than F32": (odd_norm, "output_norm.weight has one dimension and the type F16"),
        "weights in a type of indices": (odd_weight, "the type I32, in which no weights are kept"),
        "no layers": (tiny_model().drop("llama.block_count"), "llama.block_count is missing"),
        "zero layers": (tiny_model().set("llama.block_count", U32, 0), "llama.block_count is 0"),
        "too many layers": (tiny_model().set("llama.block_count", U32, 513), "room for 512"),
        "layers of another type": (tiny_model().set("llama.block_count", I32, 1), "must be a UINT32"),
        "no context": (tiny_model().drop("llama.context_length"), "llama.context_length is missing"),
        "no width": (tiny_model().set("llama.embedding_length", U32, 0), "llama.embedding_length is 0"),
        "heads for another number of layers": (
            tiny_model().set("llama.attention.head_count", ARRAY, [4, 4], U32),
            "1 elements, one for each layer",
        ),
        "negative heads": (tiny_model().set("llama.attention.head_count", ARRAY, [-4], I32), "negative"),
        "more predicted layers than layers": (
            tiny_model().set("llama.nextn_predict_layers", U32, 2),
            "larger than block_count",
        ),
        "an unknown rope scaling": (tiny_model().set("llama.rope.scaling.type", STRING, "cubic"), "none, linear, yarn"),
        "an embedding of another width": (narrow, "token_embd.weight"),
        "an embedding of fewer tokens": (short, "200 rows for 270 tokens"),
        "an unknown tokenizer": (tiny_model().set("tokenizer.ggml.model", STRING, "abacus"), "abacus"),
        "no tokens": (tiny_model().drop(TOKENS), "tokens is missing"),
        "zero tokens": (tiny_model().set(TOKENS, ARRAY, [], STRING), "0 tokens"),
        "numbers for tokens": (tiny_model().set(TOKENS, ARRAY, [1, 2], I32), "array of STRING"),
        "a token that appears twice": (
            tiny_model().set(TOKENS, ARRAY, [*tokens(spare)[:-1], "a"], STRING),
            "1 tokens that appear twice",
        ),
        "tokens that differ after a zero byte": (
            tiny_model().set(TOKENS, ARRAY, [*tokens(spare)[:-2], "q\0r", "q\0s"], STRING),
            "twice",
        ),
        "an empty token and its stand-in": (
            tiny_model().set(TOKENS, ARRAY, [*tokens(spare)[:-2], "", f"[EMPTY_{count - 2}]"], STRING),
            "twice",
        ),
        "a missing byte token": (
            tiny_model().set(TOKENS, ARRAY, ["z" if token == "<0x9F>" else token for token in tokens(spare)], STRING),
            "<0x9F>",
        ),
        "no scores": (tiny_model().drop("tokenizer.ggml.scores"), "scores is missing"),
        "too few scores": (
            tiny_model().set("tokenizer.ggml.scores", ARRAY, [0.0] * (count - 1), F32),
            "269 elements for 270 tokens",
        ),
        "too few token types": (
            tiny_model().set("tokenizer.ggml.token_type", ARRAY, [1] * 5, I32),
            "5 elements for 270 tokens",
        ),
        "token types of another type": (
            tiny_model().set("tokenizer.ggml.token_type", ARRAY, [1.0] * count, F32),
            "array of INT32",
        ),
        "an end outside the vocabulary": (tiny_model().set("tokenizer.ggml.eos_token_id", U32, 270), "ends at 269"),
        "a start outside the vocabulary": (
            tiny_model().set("tokenizer.ggml.bos_token_id", U32, 4_294_967_295),
            "ends at 269",
        ),
        "a separator to add that is not there": (
            byte_pair_model().set("tokenizer.ggml.add_sep_token", BOOL, value=True),
            "no such token",
        ),
        "no merges": (byte_pair_model().drop("tokenizer.ggml.merges"), "merges is missing"),
        "a merge of one part": (
            byte_pair_model().set("tokenizer.ggml.merges", ARRAY, ["a b", "ab"], STRING),
            "at [1], one that is not two parts",
        ),
        "a template of another type": (tiny_model().set("tokenizer.chat_template", U32, 1), "must be a STRING"),
        "an endless template": (tiny_model().set("tokenizer.chat_template", STRING, "x" * (2 << 20)), "too long"),
    }


@pytest.mark.parametrize(("model", "words"), _wrong_models().values(), ids=_wrong_models().keys())
def test_is_refused(read: Read, model: Gguf, words: str) -> None:
    with pytest.raises(InvalidGGUF) as caught:
        read(model)
    assert words in caught.value.reason


def test_a_byte_pair_vocabulary_needs_no_scores_and_no_byte_tokens(read: Read) -> None:
    assert read(byte_pair_model()).vocabulary == 270


def test_a_vocabulary_whose_start_token_lies_outside_cannot_have_it_added(read: Read) -> None:
    model = byte_pair_model().drop("tokenizer.ggml.bos_token_id")  # the default, 11, exists
    model.set("tokenizer.ggml.add_bos_token", BOOL, value=True)
    read(model)
    small = [f"t{number}" for number in range(11)]
    model.set(TOKENS, ARRAY, small, STRING).drop("tokenizer.ggml.token_type")
    embedding = model.tensor("token_embd.weight")
    embedding.shape, embedding.data = (32, 11), bytes(32 * 11 * 4)
    with pytest.raises(InvalidGGUF, match="add_bos_token is on"):
        read(model)


def test_every_byte_token_is_needed(read: Read) -> None:
    for missing in ("<0x00>", "<0x41>", "<0xFF>"):
        assert missing in byte_tokens()
        model = tiny_model()
        model.set(TOKENS, ARRAY, ["z" if token == missing else token for token in tokens(model)], STRING)
        with pytest.raises(InvalidGGUF, match=missing):
            read(model)
