"""The real embedding model says what it is known to say, whatever is beside a text and however long that is."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from runtimes.embeddings.model import WINDOW_TOKENS, EmbeddingModel, UnusableModelError

TEXTS = ("", "Why is the sky blue?", "naïve café 🙂", "def f(x):\n    return x * 2", "word " * 90, "\0")


@pytest.fixture(scope="module")
def model(embedding_model: Path) -> EmbeddingModel:
    return EmbeddingModel(*files(embedding_model), threads=1)


def files(folder: Path) -> tuple[bytes, bytes]:
    return folder.joinpath("model.onnx").read_bytes(), folder.joinpath("tokenizer.json").read_bytes()


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        # Of the original in float32, from the documentation of sentence-transformers.
        ("The weather is lovely today.", "It's so sunny outside!", 0.6660),
        ("The weather is lovely today.", "He drove to the stadium.", 0.1046),
        ("It's so sunny outside!", "He drove to the stadium.", 0.1411),
        # Measured before with another program, and why similarity decides nothing.
        ("How do I enable two-factor auth?", "How do I turn on 2FA?", 0.656),
        ("How do I enable two-factor auth?", "How do I disable two-factor auth?", 0.885),
        ("Convert 10 USD to EUR", "Convert 100 USD to EUR", 0.907),
        ("Did Alice pay Bob?", "Did Bob pay Alice?", 0.991),
    ],
)
def test_two_texts_are_as_near_as_they_are_known_to_be(
    model: EmbeddingModel, one: str, other: str, cosine: float
) -> None:
    (first, second), _ = model.embed([one, other])
    assert first @ second == pytest.approx(cosine, abs=0.02)


def test_vectors_have_length_one(model: EmbeddingModel) -> None:
    vectors, _ = model.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), model.dimensions)
    assert vectors.dtype == np.dtype(np.float32)
    assert model.dimensions == 384
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_text_is_the_same_whatever_is_beside_it(model: EmbeddingModel) -> None:
    together, n_tokens = model.embed(TEXTS)
    for text, vector, n in zip(TEXTS, together, n_tokens, strict=True):
        alone, n_alone = model.embed([text])
        np.testing.assert_allclose(alone[0], vector, atol=1e-3)
        assert n_alone == (n,)


def test_the_end_of_a_long_text_is_invisible_but_counted(model: EmbeddingModel) -> None:
    window = "word " * (WINDOW_TOKENS - 2)
    vectors, n_tokens = model.embed([window, window + "and more", window + "but not " * 2000])
    assert n_tokens == (256, 258, 4256)
    np.testing.assert_allclose(vectors[1:], vectors[[0, 0]], atol=1e-3)


def test_a_text_is_cut_at_the_window_and_no_sooner(model: EmbeddingModel) -> None:
    """The file itself asks for 128 tokens."""
    (first, second), _ = model.embed(["word " * 200 + "alpha", "word " * 200 + "omega"])
    assert first @ second < 0.999


def test_empty_texts_are_embedded_like_each_other(model: EmbeddingModel) -> None:
    vectors, n_tokens = model.embed(["", " \n ", "\0"])
    assert n_tokens == (2, 2, 2)
    np.testing.assert_allclose(vectors[1:], vectors[[0, 0]], atol=1e-3)


def test_a_text_cannot_speak_in_special_tokens(model: EmbeddingModel, embedding_model: Path) -> None:
    special = Tokenizer.from_file(str(embedding_model / "tokenizer.json")).token_to_id("[SEP]")
    assert special is not None
    _, n_tokens = model.embed(["[SEP]", "[PAD] [MASK]"])
    assert n_tokens[0] > 3
    assert n_tokens[1] > 4


def test_more_threads_change_nothing(model: EmbeddingModel, embedding_model: Path) -> None:
    other = EmbeddingModel(*files(embedding_model), threads=2)
    np.testing.assert_allclose(other.embed(TEXTS)[0], model.embed(TEXTS)[0], atol=1e-3)


@pytest.mark.parametrize("content", [b"", b"junk", bytes(1000)])
def test_a_damaged_file_is_said_to_be_one(embedding_model: Path, content: bytes) -> None:
    model, tokenizer = files(embedding_model)
    with pytest.raises(UnusableModelError, match="tokenizer"):
        EmbeddingModel(model, content, threads=1)
    with pytest.raises(UnusableModelError, match="ONNX"):
        EmbeddingModel(content, tokenizer, threads=1)
    with pytest.raises(UnusableModelError, match="ONNX"):
        EmbeddingModel(model[: len(model) // 2], tokenizer, threads=1)
