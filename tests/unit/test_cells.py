"""The ledger of KV cells against a naive model that gives each cell a name."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from runtimes.engine.cells import CellLedger

CAPACITY = 24
SEQUENCES = st.integers(0, 5)


class LedgerMachine(RuleBasedStateMachine):
    """Cells are numbers here, and a sequence is a list of them."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = CellLedger(CAPACITY)
        self.model: dict[int, list[int]] = {}
        self.next_cell = 0

    def in_use(self) -> set[int]:
        return {cell for cells in self.model.values() for cell in cells}

    @rule(sequence=SEQUENCES, n=st.integers(1, 12))
    def extend(self, sequence: int, n: int) -> None:
        if n > CAPACITY - len(self.in_use()):
            with pytest.raises(ValueError, match="free"):
                self.ledger.extend(sequence, n)
            return
        self.ledger.extend(sequence, n)
        self.model.setdefault(sequence, []).extend(range(self.next_cell, self.next_cell + n))
        self.next_cell += n

    @precondition(lambda self: self.model)
    @rule(data=st.data(), empty=SEQUENCES)
    def fork(self, data: st.DataObject, empty: int) -> None:
        source = data.draw(st.sampled_from(sorted(self.model)))
        n = data.draw(st.integers(1, len(self.model[source]) + 1))
        if empty in self.model or n > len(self.model[source]):
            with pytest.raises(ValueError, match="cannot share"):
                self.ledger.fork(source, empty, n)
            return
        self.ledger.fork(source, empty, n)
        self.model[empty] = self.model[source][:n]

    @rule(sequence=SEQUENCES, n=st.integers(0, 14))
    def truncate(self, sequence: int, n: int) -> None:
        self.ledger.truncate(sequence, n)
        if sequence in self.model:
            self.model[sequence] = self.model[sequence][:n]
            if n == 0:
                del self.model[sequence]

    @invariant()
    def counts_what_is_in_use(self) -> None:
        assert self.ledger.used == len(self.in_use())
        assert self.ledger.free == CAPACITY - len(self.in_use())

    @invariant()
    def knows_each_sequence(self) -> None:
        for sequence in range(6):
            assert self.ledger.length(sequence) == len(self.model.get(sequence, []))


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_the_ledger_agrees_with_a_list_of_named_cells = LedgerMachine.TestCase


def test_a_refused_extension_changes_nothing() -> None:
    ledger = CellLedger(4)
    ledger.extend(0, 3)
    with pytest.raises(ValueError, match="2 cells wanted, 1 free"):
        ledger.extend(1, 2)
    assert (ledger.free, ledger.length(0), ledger.length(1)) == (1, 3, 0)


def test_shared_cells_are_given_back_with_their_last_user() -> None:
    ledger = CellLedger(10)
    ledger.extend(0, 6)
    ledger.fork(0, 1, 4)
    ledger.truncate(0, 0)
    assert ledger.used == 4
    ledger.truncate(1, 0)
    assert ledger.used == 0
