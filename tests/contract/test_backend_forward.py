"""What every backend's forward pass and KV cache promise (`runtimes.contracts.Backend`)."""

import numpy as np
import numpy.typing as npt
import pytest

from runtimes.contracts import Backend, KVCacheFullError, Logits, Row

TEXT = "The quick brown fox jumps over the lazy dog, and the dog sleeps on beside the river."


def tokens(backend: Backend, text: str = TEXT) -> list[int]:
    return backend.tokenize(text, add_special=False, parse_special=False)


def rows(held: list[int], sequence: int, *, start: int = 0, every: bool = False) -> list[Row]:
    """Those of a sequence's tokens from `start` on; logits of the last, or of `every` one."""
    last = len(held) - 1
    return [Row(held[i], i, sequence, every or i == last) for i in range(start, len(held))]


def compute(backend: Backend, held: list[int], sequence: int = 0, *, start: int = 0) -> Logits:
    """The distribution after all of `held`, of which the first `start` are in the cache."""
    logits: Logits = backend.forward(rows(held, sequence, start=start))[0].copy()
    return logits


def near(a: Logits, b: Logits) -> bool:
    """The same distribution, computed in batches of another shape: kernels round differently."""
    return distance(a, b) < 0.05


def distance(a: Logits, b: Logits) -> float:
    """The largest difference of two probabilities (total variation needs more than the eye)."""

    def softmax(x: Logits) -> npt.NDArray[np.float64]:
        weights = np.exp(x.astype(np.float64) - float(x.max()))
        result: npt.NDArray[np.float64] = weights / weights.sum()
        return result

    return float(np.abs(softmax(a) - softmax(b)).max())


def test_logits_have_a_row_for_each_that_asked(backend: Backend) -> None:
    held = tokens(backend)[:6]
    asked = [Row(token, i, 0, i in (1, 4, 5)) for i, token in enumerate(held)]
    logits = backend.forward(asked)
    assert logits.shape == (3, backend.info.n_vocab)
    assert logits.dtype == np.float32
    assert np.isfinite(logits).all()


def test_rows_that_ask_for_nothing_are_computed_all_the_same(backend: Backend) -> None:
    held = tokens(backend)
    half = len(held) // 2
    silent = backend.forward([Row(token, i, 0, logits=False) for i, token in enumerate(held[:half])])
    assert silent.shape == (0, backend.info.n_vocab)
    continued = compute(backend, held, start=half)
    assert near(continued, compute(backend, held, sequence=1))


def test_logits_come_in_the_order_of_their_rows(backend: Backend) -> None:
    texts = [tokens(backend, text) for text in (TEXT, "Numbers: 1, 2, 3, 4,", "import numpy as")]
    wanted = [compute(backend, held, sequence=i) for i, held in enumerate(texts)]
    # Interleaved: a token of each in turn, the shorter ones ending between the tokens of the longest.
    mixed = [
        Row(held[i], i, 3 + s, i == len(held) - 1)
        for i in range(max(map(len, texts)))
        for s, held in enumerate(texts)
        if i < len(held)
    ]
    ends = [row.sequence - 3 for row in mixed if row.logits]
    logits = backend.forward(mixed)
    for got, sequence in zip(logits, ends, strict=True):
        distances = [distance(got, each) for each in wanted]
        assert int(np.argmin(distances)) == sequence
        assert near(got, wanted[sequence])


def test_the_same_batch_twice_gives_the_same_logits(backend: Backend) -> None:
    held = tokens(backend)
    first = compute(backend, held)
    backend.truncate(0, 0)
    assert np.array_equal(first, compute(backend, held))


def test_every_position_can_be_asked_for(backend: Backend) -> None:
    held = tokens(backend)[:10]
    logits = backend.forward(rows(held, 0, every=True)).copy()
    assert logits.shape[0] == len(held)
    for i in (0, 4, 9):
        assert near(logits[i], compute(backend, held[: i + 1], sequence=1 + i))


def test_a_prompt_in_pieces_is_the_prompt_in_one(backend: Backend) -> None:
    held = tokens(backend)
    whole = compute(backend, held, sequence=0)
    for start in range(0, len(held), 7):
        logits = backend.forward([row for row in rows(held, 1, start=start) if row.position < start + 7])
    assert near(whole, logits[0])


def test_a_fork_predicts_what_its_source_would(backend: Backend) -> None:
    held = tokens(backend)
    direct = compute(backend, held, sequence=0)
    cut = len(held) - 4
    backend.fork(0, 1, cut)
    forked = compute(backend, held, sequence=1, start=cut)
    assert near(direct, forked)


def test_a_fork_goes_its_own_way_and_leaves_its_source_alone(backend: Backend) -> None:
    held, other = tokens(backend), tokens(backend, " No fox was ever seen here again")
    cut = len(held) // 2
    compute(backend, held[:-1], sequence=0)
    backend.fork(0, 1, cut)
    branch = held[:cut] + other
    forked = compute(backend, branch, sequence=1, start=cut)
    source = compute(backend, held, sequence=0, start=len(held) - 1)
    assert near(forked, compute(backend, branch, sequence=2))
    assert near(source, compute(backend, held, sequence=3))


def test_a_fork_outlives_its_source(backend: Backend) -> None:
    held = tokens(backend)
    compute(backend, held, sequence=0)
    backend.fork(0, 1, len(held) - 1)
    backend.truncate(0, 0)
    compute(backend, tokens(backend, "Quite another text takes the cells."), sequence=0)
    assert near(compute(backend, held, sequence=1, start=len(held) - 1), compute(backend, held, sequence=2))


def test_a_fork_of_a_fork_shares_too(backend: Backend) -> None:
    held = tokens(backend)
    compute(backend, held, sequence=0)
    backend.fork(0, 1, len(held) - 2)
    backend.fork(1, 2, len(held) - 4)
    assert near(compute(backend, held, sequence=2, start=len(held) - 4), compute(backend, held, sequence=3))


def test_truncating_takes_the_end_back(backend: Backend) -> None:
    held, other = tokens(backend), tokens(backend, " Then it rained for a week.")
    keep = len(held) // 2
    compute(backend, held, sequence=0)
    backend.truncate(0, keep)
    branch = held[:keep] + other
    assert near(compute(backend, branch, sequence=0, start=keep), compute(backend, branch, sequence=1))


def test_truncating_to_nothing_lets_a_sequence_begin_again(backend: Backend) -> None:
    held = tokens(backend)
    compute(backend, held, sequence=0)
    backend.truncate(0, 0)
    assert near(compute(backend, held, sequence=0), compute(backend, held, sequence=1))


@pytest.mark.parametrize("n", [0, 5])
def test_truncating_what_is_not_there_does_nothing(backend: Backend, n: int) -> None:
    backend.truncate(0, n)
    held = tokens(backend)
    wanted = compute(backend, held, sequence=0)
    backend.truncate(0, len(held) + 3)
    backend.truncate(1, n)
    backend.truncate(0, len(held) - 1)
    assert near(wanted, compute(backend, held, sequence=0, start=len(held) - 1))


def test_sequences_do_not_see_each_other(backend: Backend) -> None:
    held = tokens(backend)
    alone = compute(backend, held, sequence=0)
    backend.truncate(0, 0)
    others = tokens(backend, "Something else entirely, about the sea.")
    for sequence in range(1, 6):
        compute(backend, others, sequence=sequence)
    assert near(alone, compute(backend, held, sequence=0))


def fill(backend: Backend, *, leave: int) -> None:
    """Occupies all cells but `leave`, by sequences 10, 11 and so on of 64 tokens each."""
    filler = tokens(backend, "x y z " * 64)[:64]
    sequence, room = 10, backend.info.kv_tokens - leave
    while room:
        part = filler[:room]
        backend.forward([Row(token, i, sequence, logits=False) for i, token in enumerate(part)])
        sequence, room = sequence + 1, room - len(part)


def test_all_cells_it_tells_of_can_be_used(backend: Backend) -> None:
    fill(backend, leave=0)


def test_a_fork_costs_no_cells(backend: Backend) -> None:
    """Nearly all cells are in use; forks of more than there are fit all the same."""
    fill(backend, leave=8)
    for target in range(6):
        backend.fork(10, target, 64)
    held = tokens(backend)[:4]
    backend.forward([Row(token, 64 + i, 0, i == 3) for i, token in enumerate(held)])


def test_a_full_cache_says_so_and_changes_nothing(backend: Backend) -> None:
    held = tokens(backend)
    wanted = compute(backend, held, sequence=0)
    backend.truncate(0, len(held) - 1)
    fill(backend, leave=len(held) + 10)
    too_much = tokens(backend, "a b c d " * 60)[:110]
    for _ in range(2):
        with pytest.raises(KVCacheFullError):
            backend.forward([Row(token, i, 1, logits=False) for i, token in enumerate(too_much)])
    assert near(wanted, compute(backend, held, sequence=0, start=len(held) - 1))
    for sequence in (10, 11):
        backend.truncate(sequence, 0)
    assert near(wanted, compute(backend, held, sequence=1))  # nothing of the refused batch is left there


def test_freed_cells_are_used_again_wherever_they_are(backend: Backend) -> None:
    held = tokens(backend)
    wanted = compute(backend, held, sequence=0)
    fill(backend, leave=len(held))
    for sequence in (10, 11, 12):  # holes, none of which takes the whole sequence
        backend.truncate(sequence, 64 - len(held) // 2)
    assert near(wanted, compute(backend, held, sequence=1))


def test_a_saved_sequence_goes_on_as_if_it_had_stayed(backend: Backend) -> None:
    held = tokens(backend)
    before = compute(backend, held[:-1])
    expected = compute(backend, held, start=len(held) - 1)
    backend.truncate(0, len(held) - 1)
    state = backend.save(0)
    backend.truncate(0, 0)
    backend.restore(5, state)
    assert near(compute(backend, held, sequence=5, start=len(held) - 1), expected)
    assert not near(before, expected)


def test_a_sequence_can_be_restored_into_the_holes_that_others_left_and_cut(backend: Backend) -> None:
    held = tokens(backend)
    compute(backend, held)
    state = backend.save(0)
    backend.truncate(0, 0)
    for sequence in range(1, 7):  # short ones, every second of which leaves a hole
        compute(backend, held[:5], sequence)
    for sequence in range(1, 7, 2):
        backend.truncate(sequence, 0)
    backend.restore(0, state)
    backend.truncate(0, 8)
    other = [*held[:8], *reversed(held[8:14])]
    assert near(compute(backend, other, start=8), compute(backend, other, sequence=7))


def test_a_saved_copy_can_be_restored_more_than_once_beside_its_original(backend: Backend) -> None:
    held = tokens(backend)[:12]
    compute(backend, held[:-1])
    state = backend.save(0)
    backend.restore(1, state)
    backend.restore(2, state)
    expected = compute(backend, held, start=len(held) - 1)
    for sequence in (1, 2):
        assert near(compute(backend, held, sequence, start=len(held) - 1), expected)
