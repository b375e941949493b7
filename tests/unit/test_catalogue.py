"""The catalogue: complete, consistent with itself, and right where the facts are known."""

import re
from pathlib import Path

import pytest

from runtimes.models.catalogue import CatalogueEntry, load_catalogue
from runtimes.models.gguf import read_model
from runtimes.models.gguf.encoding import FILE_TYPES
from runtimes.models.shelf import slug
from runtimes.models.sources import HubFile, Wheels

ENTRIES = tuple(load_catalogue())
CHAT = [entry for entry in ENTRIES if entry.kind == "chat"]


def entry(name: str) -> CatalogueEntry:
    found = load_catalogue().get(name)
    assert found is not None
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_complete(entry: CatalogueEntry) -> None:
    assert slug(entry.name) == entry.name  # it is its own folder
    assert entry.parameters < 8_000_000_000
    assert entry.licence
    assert entry.note.endswith(".")
    assert bool(entry.licence_note) == (entry.commercial == "conditions")
    assert [file.role for file in entry.files].count("model") == 1
    for file in entry.files:
        assert "/" not in file.name
        assert file.size_bytes
        assert file.sha256 is None or re.fullmatch(r"[0-9a-f]{64}", file.sha256)
        if isinstance(file.source, Wheels):
            assert file.sha256 is not None  # an index says nothing of what is inside a wheel


@pytest.mark.parametrize("entry", CHAT, ids=lambda entry: entry.name)
def test_a_chat_model_has_one_gguf_file_of_a_plausible_size(entry: CatalogueEntry) -> None:
    assert entry.files[0].name.endswith(".gguf")
    assert entry.quantisation in FILE_TYPES.values()
    expected_bits = {"Q4_1": 5.9, "Q4_K_M": 5.1, "Q6_K": 6.6, "Q8_0": 8.5, "F16": 16.0}[entry.quantisation]
    assert entry.bits_per_weight == pytest.approx(expected_bits, rel=0.15)
    assert entry.kv_bytes_per_token % 1024 == 512 or entry.kv_bytes_per_token % 1024 == 0
    if isinstance(entry.files[0].source, HubFile):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", entry.files[0].source.repo)
        assert entry.files[0].source.file.endswith(".gguf")


def test_the_embedded_defaults_are_those_that_were_verified() -> None:
    files = {(e.name, file.role): (file.sha256, file.size_bytes) for e in ENTRIES for file in e.files}
    assert files["smollm2-135m-instruct", "model"] == (
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        98_362_432,
    )
    assert files["all-minilm-l6-v2", "model"] == (
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        22_928_619,
    )
    assert files["all-minilm-l6-v2", "tokenizer"] == (
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        466_247,
    )
    assert files["gemma-3-270m", "model"] == (
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        253_113_024,
    )
    assert entry("gemma-3-270m").kind == "test"


def test_what_the_catalogue_says_of_the_default_model_is_what_its_file_says(model_path: Path) -> None:
    said, read = entry("smollm2-135m-instruct"), read_model(model_path)
    assert (said.parameters, said.quantisation) == (read.parameters, read.quantisation)
    assert (said.context_tokens, said.kv_bytes_per_token) == (read.context_length, read.kv_bytes_per_token)
    assert said.size_bytes == read.file_bytes


def test_memory_is_weights_and_cache_and_run_time() -> None:
    model = entry("qwen2.5-7b-instruct")
    assert model.memory_bytes(1_000, runtime_bytes=7) == 4_683_074_240 + 16 * 1_000 * 57_344 + 7


def test_names_are_found_whatever_their_case() -> None:
    assert load_catalogue().get("SmolLM2-135M-Instruct") == entry("smollm2-135m-instruct")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("smolm2-135m-instruct", "smollm2-135m-instruct"),
        ("smolm2", "smollm2-135m-instruct"),
        ("qwen2.5-7b-instuct", "qwen2.5-7b-instruct"),
        ("mistral", "mistral-7b-instruct-v0.3"),
        ("Phi4", "phi-4-mini-instruct"),
    ],
)
def test_a_mistyped_name_leads_to_the_one_that_was_meant(typed: str, meant: str) -> None:
    assert meant in load_catalogue().nearest(typed)


def test_a_name_like_no_other_leads_nowhere() -> None:
    assert load_catalogue().nearest("zzzzzz") == ()
