"""A request on its way through the queue and the engine, as admission sees it."""

from dataclasses import dataclass

from appliance.admission.work import Work
from appliance.errors import ApplianceError
from appliance.protocol import Criticality

CLASSES: tuple[Criticality, ...] = ("critical", "normal", "sheddable")  # best first
RANK = {name: i for i, name in enumerate(CLASSES)}


@dataclass(slots=True, eq=False)
class Ticket:
    criticality: Criticality
    key: str  # whose it is
    task: str | None
    work: Work
    seconds: float  # of the whole engine, as estimated
    arrived_s: float
    deadline_s: float
    started_s: float | None = None  # when the engine got it
    aged: bool = False  # it went before its turn, having waited for long
    prompt_tokens: int = 0  # that were computed
    answer_tokens: int = 0
    ended: ApplianceError | None = None  # it is to give its place in the engine back

    @property
    def rank(self) -> int:
        return RANK[self.criticality]
