"""The prefix tree against a naive model that compares every sequence with the question."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtimes.contracts import TokenArray
from runtimes.engine.prefix_tree import NO_MATCH, PrefixTree

SEQUENCES = st.integers(0, 6)
# Few tokens and short texts: shared prefixes, equal sequences and prefixes of each other are the rule.
TOKENS = st.lists(st.integers(0, 2), max_size=9)


def array(tokens: list[int]) -> TokenArray:
    return np.array(tokens, dtype=np.int32)


def common(a: list[int], b: list[int]) -> int:
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    return n


class TreeMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tree = PrefixTree()
        self.model: dict[int, list[int]] = {}
        self.computed: dict[int, int] = {}

    @rule(sequence=SEQUENCES, tokens=TOKENS, share=st.floats(0, 1))
    def insert(self, sequence: int, tokens: list[int], share: float) -> None:
        self.tree.insert(sequence, array(tokens))
        self.model[sequence] = tokens
        self.computed[sequence] = int(len(tokens) * share)

    @rule(sequence=SEQUENCES)
    def remove(self, sequence: int) -> None:
        self.tree.remove(sequence)
        self.model.pop(sequence, None)
        self.computed.pop(sequence, None)

    @rule(sequence=SEQUENCES, more=st.integers(0, 12))
    def compute(self, sequence: int, more: int) -> None:
        if sequence in self.model:  # generated tokens are computed too, and are not in the tree
            self.computed[sequence] += more

    @rule(tokens=TOKENS)
    def ask(self, tokens: list[int]) -> None:
        now, later = self.tree.longest(array(tokens), self.computed)
        shared = {sequence: common(held, tokens) for sequence, held in self.model.items()}
        assert later.tokens == max(shared.values(), default=0)
        assert now.tokens == max((min(n, self.computed[s]) for s, n in shared.items()), default=0)
        if later.tokens:
            assert shared[later.sequence] == later.tokens
        else:
            assert later == NO_MATCH
        if now.tokens:
            assert min(shared[now.sequence], self.computed[now.sequence]) == now.tokens
        else:
            assert now == NO_MATCH

    @invariant()
    def holds_no_node_of_a_removed_sequence(self) -> None:
        nodes = [self.tree._root]
        for node in nodes:
            nodes.extend(node.children.values())
            assert node.sequences <= set(self.model)
            assert node is self.tree._root or node.sequences


TreeMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_the_tree_agrees_with_comparing_every_sequence = TreeMachine.TestCase


def test_an_empty_tree_matches_nothing() -> None:
    assert PrefixTree().longest(array([1, 2, 3]), {}) == (NO_MATCH, NO_MATCH)


def test_a_prefix_is_found_long_after_the_sequence_that_split_its_edge_is_gone() -> None:
    tree = PrefixTree()
    tree.insert(1, array([1, 2, 3, 4, 5, 6]))
    tree.insert(2, array([1, 2, 3, 9]))
    tree.remove(2)
    now, later = tree.longest(array([1, 2, 3, 4, 5, 7]), {1: 6})
    assert (now.sequence, now.tokens) == (later.sequence, later.tokens) == (1, 5)


def test_what_is_not_computed_yet_is_promised_for_later_only() -> None:
    tree = PrefixTree()
    tree.insert(1, array([1, 2, 3, 4]))
    tree.insert(2, array([1, 2]))
    now, later = tree.longest(array([1, 2, 3, 4]), {1: 1, 2: 2})
    assert (now.sequence, now.tokens) == (2, 2)
    assert (later.sequence, later.tokens) == (1, 4)
