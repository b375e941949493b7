"""The structure of a GGUF file: what is read, and what is never believed."""

import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf import Unread, read_array, read_header
from runtimes.models.gguf.cursor import Cursor
from runtimes.models.gguf.encoding import ValueType
from runtimes.models.gguf.header import MAX_KEYS, MAX_TENSORS, parse
from tests.unit.tiny_gguf import ARRAY, BOOL, F32, STRING, U32, Entry, Field, Gguf, Tensor, tiny_model

SCALARS = [
    (ValueType.UINT8, 200),
    (ValueType.INT8, -100),
    (ValueType.UINT16, 60_000),
    (ValueType.INT16, -30_000),
    (ValueType.UINT32, 4_000_000_000),
    (ValueType.INT32, -2_000_000_000),
    (ValueType.FLOAT32, 0.5),
    (ValueType.BOOL, True),
    (ValueType.STRING, "näme"),
    (ValueType.UINT64, 1 << 63),
    (ValueType.INT64, -(1 << 62)),
    (ValueType.FLOAT64, 0.1),
]


@pytest.fixture
def refused(tmp_path: Path) -> Callable[[bytes], InvalidGGUF]:
    """Reads bytes that must be refused, and gives the reason."""

    def read(data: bytes) -> InvalidGGUF:
        path = tmp_path / "wrong.gguf"
        path.write_bytes(data)
        with pytest.raises(InvalidGGUF) as caught:
            read_header(path)
        assert caught.value.path == path
        return caught.value

    return read


def written(tmp_path: Path, model: Gguf) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(model.build())
    return path


@pytest.mark.parametrize(("kind", "value"), SCALARS)
def test_a_value_of_every_type_is_read(tmp_path: Path, kind: ValueType, value: object) -> None:
    header = read_header(written(tmp_path, tiny_model().set("some.key", kind, value)))
    assert header.metadata["some.key"] == value
    assert header.entries["some.key"].kind is kind


@pytest.mark.parametrize("version", [2, 3])
def test_both_current_versions_are_read(tmp_path: Path, version: int) -> None:
    model = tiny_model()
    model.version = version
    assert read_header(written(tmp_path, model)).version == version


def test_an_array_stays_in_the_file_until_it_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, tiny_model().set("some.words", ARRAY, ["one", "", "drei"], STRING))
    words = read_header(path).metadata["some.words"]
    assert isinstance(words, Unread)
    assert (words.element, words.count) == (ValueType.STRING, 3)
    assert read_array(path, "some.words", words) == (b"one", b"", b"drei")


def test_a_very_long_string_stays_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, tiny_model().set("some.document", STRING, "x" * (2 << 20)))
    document = read_header(path).metadata["some.document"]
    assert isinstance(document, Unread)
    assert document.size_bytes == 8 + (2 << 20)


def test_tensors_are_found_at_their_bytes(tmp_path: Path) -> None:
    model = tiny_model()
    data = model.build()
    header = read_header(written(tmp_path, model))
    for described, tensor in zip(model.tensors, header.tensors, strict=True):
        assert data[tensor.offset : tensor.offset + tensor.size_bytes] == described.data
    assert header.data_offset % header.alignment == 0


def test_another_alignment_is_followed(tmp_path: Path) -> None:
    model = tiny_model().set("general.alignment", U32, 256)
    model.alignment = 256
    header = read_header(written(tmp_path, model))
    assert header.alignment == 256
    assert all((tensor.offset - header.data_offset) % 256 == 0 for tensor in header.tensors)


def test_a_file_cut_at_any_field_is_refused(refused: Callable[[bytes], InvalidGGUF]) -> None:
    model = tiny_model()
    data = model.build()
    # Every token is a field like its neighbours: the first and the last fields stand for all.
    for part in model.fields[:150] + model.fields[-150:]:
        for cut in {part.start, part.start + part.size // 2}:
            reason = refused(data[:cut]).reason
            assert "ends" in reason or "room" in reason, f"cut at {cut}"


def test_a_file_cut_anywhere_in_its_first_kilobyte_is_refused(refused: Callable[[bytes], InvalidGGUF]) -> None:
    data = tiny_model().build()
    for cut in range(0, 1024, 3):
        refused(data[:cut])


def test_a_file_cut_within_its_tensors_is_called_incomplete(refused: Callable[[bytes], InvalidGGUF]) -> None:
    model = tiny_model()
    data = model.build()
    assert "incomplete" in refused(data[:-1]).reason
    assert "incomplete" in refused(data[: len(data) // 2]).reason


@pytest.mark.parametrize("huge", [1 << 30, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_huge_number_in_any_length_or_count_fails_at_once(refused: Callable[[bytes], InvalidGGUF], huge: int) -> None:
    model = tiny_model()
    data = model.build()
    targets = [part for part in model.fields if part.kind in ("length", "count", "dimension")]
    # Every token has a length of its own: the first and the last of them stand for all.
    targets = targets[:60] + targets[-60:]
    started = time.perf_counter()
    tracemalloc.start()
    for part in targets:
        refused(_with(data, part, huge))
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 16 << 20
    assert time.perf_counter() - started < 10  # 120 files; a single believed length would take longer or all memory


def _with(data: bytes, part: Field, number: int) -> bytes:
    damaged = (number & ((1 << (8 * part.size)) - 1)).to_bytes(part.size, "little")
    return data[: part.start] + damaged + data[part.start + part.size :]


def test_the_reason_names_the_byte(refused: Callable[[bytes], InvalidGGUF]) -> None:
    model = tiny_model()
    data = model.build()
    part = [part for part in model.fields if part.kind == "type"][3]
    error = refused(_with(data, part, 77))
    assert error.offset == part.start
    assert f"at byte {part.start:,}" in str(error)
    assert "77" in str(error)


def test_a_file_of_another_kind_is_named_by_its_first_bytes(refused: Callable[[bytes], InvalidGGUF]) -> None:
    assert "b'PK\\x03\\x04'" in refused(b"PK\x03\x04" + bytes(100)).reason
    assert "magic" in refused(b"").reason


def test_big_endian_is_refused_with_advice(refused: Callable[[bytes], InvalidGGUF]) -> None:
    error = refused(b"GGUF" + struct.pack(">I", 3) + struct.pack(">QQ", 0, 0))
    assert "big-endian" in error.reason
    assert "little-endian" in error.reason


@pytest.mark.parametrize("version", [0, 1, 4, 100])
def test_an_unknown_version_is_refused(refused: Callable[[bytes], InvalidGGUF], version: int) -> None:
    model = tiny_model()
    model.version = version
    assert f"version {version}" in refused(model.build()).reason


def test_more_tensors_or_entries_than_make_sense_are_refused(refused: Callable[[bytes], InvalidGGUF]) -> None:
    padding = bytes(4 << 20)
    many_tensors = b"GGUF" + struct.pack("<IQQ", 3, MAX_TENSORS + 1, 0) + padding
    many_entries = b"GGUF" + struct.pack("<IQQ", 3, 0, MAX_KEYS + 1) + padding
    assert "tensors" in refused(many_tensors).reason
    assert "metadata entries" in refused(many_entries).reason


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        (Entry("", U32, 1), "empty"),
        (Entry("llama.block_count", U32, 1), "twice"),
        (Entry(b"zero\0byte", U32, 1), "zero byte"),
        (Entry(b"\xff\xfe", U32, 1), "UTF-8"),
        (Entry("k" * 2000, U32, 1), "at most"),
    ],
)
def test_a_key_that_llama_cpp_would_misread_is_refused(
    refused: Callable[[bytes], InvalidGGUF], entry: Entry, word: str
) -> None:
    model = tiny_model()
    model.entries.append(entry)
    assert word in refused(model.build()).reason


def test_an_array_of_arrays_is_refused(refused: Callable[[bytes], InvalidGGUF]) -> None:
    model = tiny_model().set("some.nest", ARRAY, [], ARRAY)
    assert "array of arrays" in refused(model.build()).reason


@pytest.mark.parametrize(
    ("kind", "alignment"), [(U32, 0), (U32, 48), (U32, 1 << 30), (F32, 32.0), (BOOL, True), (STRING, "32")]
)
def test_an_alignment_that_is_not_a_power_of_two_is_refused(
    refused: Callable[[bytes], InvalidGGUF], kind: ValueType, alignment: object
) -> None:
    assert "general.alignment" in refused(tiny_model().set("general.alignment", kind, alignment).build()).reason


def test_a_tensor_name_too_long_for_llama_cpp_is_refused(refused: Callable[[bytes], InvalidGGUF]) -> None:
    model = tiny_model()
    model.tensors[3].name = "x" * 64
    assert "at most 63" in refused(model.build()).reason


def test_two_tensors_of_one_name_are_refused(refused: Callable[[bytes], InvalidGGUF]) -> None:
    model = tiny_model()
    model.tensors[3].name = model.tensors[4].name
    assert "two tensors" in refused(model.build()).reason


@pytest.mark.parametrize(
    ("shape", "word"),
    [
        ((1, 1, 1, 1, 1), "5 dimensions"),
        ((32, 0), "element count"),
        ((1 << 32, 1 << 32), "element count"),
        ((1 << 63,), "element count"),
        (((1 << 64) - 1, (1 << 64) - 1, (1 << 64) - 1, (1 << 64) - 1), "element count"),
        ((1 << 40,), "incomplete"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(
    refused: Callable[[bytes], InvalidGGUF], shape: tuple[int, ...], word: str
) -> None:
    model = tiny_model()
    model.tensors[-1].shape = shape
    assert word in refused(model.build()).reason


@pytest.mark.parametrize("number", [4, 5, 31, 33, 36, 38, 43, 1 << 31])
def test_a_tensor_type_that_llama_cpp_does_not_have_is_refused(
    refused: Callable[[bytes], InvalidGGUF], number: int
) -> None:
    model = tiny_model()
    model.tensors[-1].type = number
    assert f"type {number}" in refused(model.build()).reason


def test_rows_must_be_whole_blocks_of_the_type(refused: Callable[[bytes], InvalidGGUF]) -> None:
    model = tiny_model()
    model.tensors.append(Tensor("extra", (33,), 2, bytes(36)))  # Q4_0 packs 32 elements
    assert "multiple of 32" in refused(model.build()).reason


@pytest.mark.parametrize(
    ("shift", "word"),
    [(-32, "overlaps"), (32, "gap"), (1, "alignment"), (1 << 62, "gap"), ((1 << 63) - 5, "alignment")],
)
def test_a_tensor_anywhere_but_after_the_last_one_is_refused(
    refused: Callable[[bytes], InvalidGGUF], shift: int, word: str
) -> None:
    model = tiny_model()
    model.tensors[1].offset = len(model.tensors[0].data) + shift
    error = refused(model.build())
    assert word in error.reason
    assert "output_norm.weight" in error.reason


def test_tensors_that_share_their_bytes_are_refused(refused: Callable[[bytes], InvalidGGUF]) -> None:
    model = tiny_model()
    for tensor in model.tensors:
        tensor.offset = 0
    assert "overlaps" in refused(model.build()).reason


def test_what_is_not_a_regular_file_is_refused_and_does_not_hang(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path, word in (
        (pipe, "regular"),
        (tmp_path, "regular"),
        (Path("/dev/zero"), "regular"),
        (tmp_path / "none", "read"),
    ):
        with pytest.raises(InvalidGGUF, match=word):
            read_header(path)


def test_strings_are_read_across_the_chunks_of_a_long_array(tmp_path: Path) -> None:
    words = [f"{number:x}" * (number % 97) for number in range(30_000)]  # seven megabytes
    path = written(tmp_path, tiny_model().set("some.words", ARRAY, words, STRING))
    array = read_header(path).metadata["some.words"]
    assert isinstance(array, Unread)
    assert read_array(path, "some.words", array) == tuple(word.encode() for word in words)


def test_a_string_of_an_array_may_be_a_megabyte_and_no_more(
    tmp_path: Path, refused: Callable[[bytes], InvalidGGUF]
) -> None:
    longest = "x" * (1 << 20)
    read_header(written(tmp_path, tiny_model().set("some.words", ARRAY, ["a", longest, "b"], STRING)))
    too_long = tiny_model().set("some.words", ARRAY, ["a", longest + "x", "b"], STRING)
    assert "some.words[1] claims 1,048,577 bytes" in refused(too_long.build()).reason


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, tiny_model())
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        cursor = Cursor(file, size_bytes)
        os.truncate(path, 100)
        with pytest.raises(InvalidGGUF, match="ends"):
            parse(cursor)
