"""The validator against the real llama.cpp: same constants, and nothing that passes it ends the process."""

import ctypes
import importlib.util
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf import read_model
from runtimes.models.gguf.encoding import TENSOR_TYPES
from tests.unit.tiny_gguf import F32, STRING, U32, Gguf, tiny_model

# Loads each file that it is told, tokenizes, writes every token out and computes one batch.
_PLAYER = """
import ctypes, sys
import llama_cpp as lib
quiet = lib.llama_log_callback(lambda *_: None)
lib.llama_log_set(quiet, ctypes.c_void_p(0))
lib.llama_backend_init()
for line in sys.stdin:
    model = lib.llama_model_load_from_file(line.strip().encode(), lib.llama_model_default_params())
    verdict = "refused"
    if model:
        vocab = lib.llama_model_get_vocab(model)
        tokens = (ctypes.c_int32 * 64)()
        text = "abc \\u00e9\\n".encode()
        count = lib.llama_tokenize(vocab, text, len(text), tokens, 64, True, True)
        piece = ctypes.create_string_buffer(64)
        for token in range(lib.llama_vocab_n_tokens(vocab)):
            lib.llama_token_to_piece(vocab, token, piece, 64, 0, True)
        options = lib.llama_context_default_params()
        options.n_ctx = options.n_batch = 64
        options.n_threads = options.n_threads_batch = 1
        context = lib.llama_init_from_model(model, options)
        if context:
            if count > 0:
                lib.llama_decode(context, lib.llama_batch_get_one(tokens, count))
            lib.llama_free(context)
            verdict = "ran"
        lib.llama_model_free(model)
    print(verdict, flush=True)
"""
SEED = 20
MUTANTS = 300
PLAIN_KEYS = ("llama.attention.key_length", "llama.attention.value_length", "llama.vocab_size", "llama.expert_count")
NUMBERS = (0, 1, 2, 3, 5, 8, 31, 32, 33, 64, 255, 511, 1 << 16, 1 << 31, (1 << 32) - 1)


@pytest.fixture
def player() -> Iterator["Player"]:
    started = Player()
    yield started
    started.close()


class Player:
    """llama.cpp in a process of its own."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PLAYER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def play(self, path: Path) -> str:
        """`ran`, `refused`, or how the process ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{path}\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        return answer or f"ended with {self._process.wait()}"

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()


def test_tensor_types_are_those_of_the_library() -> None:
    package = importlib.util.find_spec("llama_cpp")
    assert package is not None
    assert package.origin is not None
    library = ctypes.CDLL(str(next((Path(package.origin).parent / "lib").glob("*ggml-base.*"))))
    library.ggml_blck_size.restype = ctypes.c_int64
    library.ggml_type_size.restype = ctypes.c_size_t
    library.ggml_type_name.restype = ctypes.c_char_p
    known = {}
    for number in range(max(TENSOR_TYPES) + 1):
        block = library.ggml_blck_size(number)
        if block:
            name = library.ggml_type_name(number).decode().upper()
            known[number] = (name, block, library.ggml_type_size(number))
    assert {number: (name.upper(), *sizes) for number, (name, *sizes) in TENSOR_TYPES.items()} == known


def test_the_smallest_model_runs(player: Player, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(tiny_model().build())
    assert player.play(path) == "ran"


def test_no_damaged_file_that_is_accepted_ends_the_process(player: Player, tmp_path: Path) -> None:
    dice = random.Random(SEED)
    verdicts: Counter[str] = Counter()
    path = tmp_path / "mutant.gguf"
    for number in range(MUTANTS):
        path.write_bytes(_damaged_bytes(dice) if number % 2 else _damaged_model(dice).build())
        try:
            read_model(path)
        except InvalidGGUF:
            verdicts["invalid"] += 1
            continue
        verdict = player.play(path)
        assert verdict in ("ran", "refused"), f"mutant {number} of seed {SEED}: {verdict}"
        verdicts[verdict] += 1
    assert min(verdicts["invalid"], verdicts["ran"]) > MUTANTS / 20  # the mutants are neither all wrong nor all right


def _damaged_bytes(dice: random.Random) -> bytes:
    model = tiny_model()
    data = bytearray(model.build())
    for _ in range(dice.choice((1, 1, 2, 3))):
        part = dice.choice(model.fields if dice.random() < 0.4 else model.fields[:200])
        if part.kind == "bytes" and part.size:
            data[part.start + dice.randrange(part.size)] = dice.choice((0, 32, dice.randrange(256)))
        elif part.size in (4, 8):
            data[part.start : part.start + part.size] = dice.choice(NUMBERS).to_bytes(part.size, "little")
    return bytes(data)


def _damaged_model(dice: random.Random) -> Gguf:
    model = tiny_model()
    entry = dice.choice(model.entries)
    kind = dice.randrange(4)
    if kind == 0 and isinstance(entry.key, str):
        model.drop(entry.key)
    elif kind == 1 and entry.kind == U32:
        entry.value = dice.choice(NUMBERS)
    elif kind == 2:
        model.set(
            dice.choice(PLAIN_KEYS), *dice.choice(((U32, dice.choice(NUMBERS)), (F32, float("nan")), (STRING, "x")))
        )
    if kind == 3 or dice.random() < 0.2:
        dice.choice(model.tensors).type = dice.choice(list(TENSOR_TYPES))
    if dice.random() < 0.1:
        model.tensors.remove(dice.choice(model.tensors))
    return model
