"""Whatever a file contains: a header or InvalidGGUF, quickly, and nothing else."""

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.models.errors import InvalidGGUF
from runtimes.models.gguf import read_model
from runtimes.models.gguf.header import GGUFHeader, opened, parse
from tests.unit.tiny_gguf import ARRAY, Entry, Gguf, Tensor, tiny_model

QUICK = settings(max_examples=200, deadline=1_000, suppress_health_check=[HealthCheck.too_slow], database=None)
SOUND_MODEL = tiny_model()
SOUND = SOUND_MODEL.build()
HEADER_BYTES = max(part.start + part.size for part in SOUND_MODEL.fields)

numbers = st.one_of(
    st.integers(0, 300), st.sampled_from([1 << shift for shift in range(8, 64)]), st.integers(0, (1 << 64) - 1)
)
keys = st.one_of(
    st.text(max_size=20), st.binary(max_size=20), st.sampled_from([entry.key for entry in SOUND_MODEL.entries])
)
scalars = st.one_of(
    st.tuples(st.just(4), st.integers(0, (1 << 32) - 1)),
    st.tuples(st.just(5), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.tuples(st.just(7), st.booleans()),
    st.tuples(st.just(8), st.one_of(st.text(max_size=30), st.binary(max_size=30))),
    st.tuples(st.just(10), st.integers(0, (1 << 64) - 1)),
)
arrays = st.one_of(
    st.tuples(st.lists(st.text(max_size=10), max_size=20), st.just(8)),
    st.tuples(st.lists(st.integers(0, 255), max_size=20), st.just(0)),
    st.tuples(st.lists(st.integers(-9, 9), max_size=20), st.just(5)),
)
entries = st.one_of(
    st.builds(lambda key, scalar: Entry(key, *scalar), keys, scalars),
    st.builds(lambda key, array: Entry(key, ARRAY, *array), keys, arrays),
)
tensors = st.builds(
    Tensor,
    name=st.one_of(st.text(max_size=70), st.sampled_from([tensor.name for tensor in SOUND_MODEL.tensors])),
    shape=st.lists(numbers, max_size=5).map(tuple),
    type=st.one_of(st.integers(0, 45), st.integers(0, (1 << 32) - 1)),
    data=st.binary(max_size=64),
    offset=st.one_of(st.none(), numbers),
)


def survives(data: bytes) -> None:
    """Reading either succeeds, with everything within the file, or is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "hostile.gguf")
        path.write_bytes(data)
        header = structure(path)
        if header is not None:
            ends = [0, *(tensor.offset + tensor.size_bytes for tensor in header.tensors)]
            assert all(end <= tensor.offset for end, tensor in zip(ends, header.tensors, strict=False))
            assert max(*ends, header.data_offset) <= len(data)
        refusal = None
        try:
            read_model(path)
        except InvalidGGUF as error:
            refusal = error
        if refusal is None:
            assert header is not None
        else:
            assert refusal.offset is None or 0 <= refusal.offset <= len(data)


def structure(path: Path) -> GGUFHeader | None:
    try:
        with opened(path) as cursor:
            return parse(cursor)
    except InvalidGGUF:
        return None


@QUICK
@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    survives(data)


@QUICK
@given(st.binary(max_size=300))
def test_random_bytes_after_a_sound_start(data: bytes) -> None:
    survives(b"GGUF\x03\0\0\0" + data)


@QUICK
@given(st.data())
def test_a_sound_file_with_bytes_changed(data: st.DataObject) -> None:
    damaged = bytearray(SOUND)
    for _ in range(data.draw(st.integers(1, 8))):
        damaged[data.draw(st.integers(0, HEADER_BYTES - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(damaged))


@QUICK
@given(st.data())
def test_a_sound_file_with_a_number_changed(data: st.DataObject) -> None:
    part = data.draw(st.sampled_from([part for part in SOUND_MODEL.fields if part.size in (4, 8)]))
    number = data.draw(numbers) & ((1 << (8 * part.size)) - 1)
    survives(SOUND[: part.start] + number.to_bytes(part.size, "little") + SOUND[part.start + part.size :])


@QUICK
@given(st.integers(0, len(SOUND)), st.integers(0, len(SOUND)))
def test_a_sound_file_with_a_piece_cut_out(one: int, other: int) -> None:
    survives(SOUND[: min(one, other)] + SOUND[max(one, other) :])


@QUICK
@given(st.lists(entries, max_size=8), st.lists(tensors, max_size=4), st.sampled_from([32, 64]))
def test_any_entries_and_tensors(some_entries: list[Entry], some_tensors: list[Tensor], alignment: int) -> None:
    survives(Gguf(some_entries, some_tensors, alignment=alignment).build())


@QUICK
@given(
    st.lists(entries, max_size=4), st.lists(st.sampled_from([entry.key for entry in SOUND_MODEL.entries]), max_size=3)
)
def test_a_sound_model_with_entries_exchanged(more: list[Entry], dropped: list[str]) -> None:
    model = tiny_model()
    for key in dropped:
        model.drop(key)
    taken = {entry.key for entry in more}
    model.entries = [entry for entry in model.entries if entry.key not in taken] + more
    survives(model.build())
