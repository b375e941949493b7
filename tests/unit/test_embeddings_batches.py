"""What waits for the embedding worker goes in turn, in batches that cost about the same."""

import random

from runtimes.embeddings.batches import MAX_PADDED_BYTES, MAX_TEXTS, Waiting


def texts_of(waiting: Waiting[str]) -> list[str]:
    return [piece.text for piece in waiting.next_batch()]


def test_a_text_that_waits_alone_goes_alone() -> None:
    waiting = Waiting[str]()
    assert waiting.next_batch() == []
    waiting.add("a", ["hello"])
    assert texts_of(waiting) == ["hello"]
    assert waiting.next_batch() == []


def test_short_texts_go_together_up_to_a_bound() -> None:
    waiting = Waiting[str]()
    for n in range(MAX_TEXTS + 4):
        waiting.add(f"request {n}", [f"text {n}"])
    assert texts_of(waiting) == [f"text {n}" for n in range(MAX_TEXTS)]
    assert len(waiting) == 4
    assert len(waiting.next_batch()) == 4


def test_a_long_text_does_not_make_a_batch_of_short_ones_long() -> None:
    waiting = Waiting[str]()
    for n, text in enumerate(["short", "x" * MAX_PADDED_BYTES, "short", "short"]):
        waiting.add(f"request {n}", [text])
    assert [len(texts_of(waiting)) for _ in range(3)] == [1, 1, 2]


def test_what_counts_is_bytes_since_other_scripts_take_more_tokens() -> None:
    waiting = Waiting[str]()
    for n in range(16):
        waiting.add(str(n), ["語" * (MAX_PADDED_BYTES // 12)])
    assert len(waiting.next_batch()) == 4


def test_a_request_of_many_texts_lets_others_in_between() -> None:
    waiting = Waiting[str]()
    waiting.add("large", [str(n) for n in range(1000)])
    waiting.next_batch()
    waiting.add("small", ["hello"])
    batch = waiting.next_batch()
    assert [(piece.owner, piece.index) for piece in batch[:3]] == [("large", 16), ("small", 0), ("large", 17)]


def test_what_nobody_waits_for_any_more_does_not_go() -> None:
    waiting = Waiting[str]()
    waiting.add("leaves", ["a", "b"])
    waiting.add("stays", ["c"])
    waiting.drop("leaves")
    waiting.drop("leaves")
    assert texts_of(waiting) == ["c"]
    waiting.add("d", ["d"])
    assert waiting.drop_all() == ["d"]
    assert len(waiting) == 0


def test_every_text_goes_once_and_in_its_order() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    waiting = Waiting[int]()
    expected = {}
    for owner in range(200):
        expected[owner] = [rng.choice("aé語") * rng.choice([0, 1, 30, 400, 5000]) for _ in range(rng.randint(1, 9))]
        waiting.add(owner, expected[owner])
    gone: dict[int, list[str]] = {owner: [] for owner in expected}
    while batch := waiting.next_batch():
        assert len(batch) <= MAX_TEXTS
        assert len(batch) == 1 or len(batch) * max(len(p.text.encode()) for p in batch) <= MAX_PADDED_BYTES
        for piece in batch:
            assert piece.index == len(gone[piece.owner])
            gone[piece.owner].append(piece.text)
    assert gone == expected
