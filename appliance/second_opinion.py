"""The local model is asked whether two questions have one answer, where it was found good enough for that."""

import asyncio
import logging
import time
import uuid
from contextlib import aclosing
from pathlib import Path
from typing import Final

from appliance.exchange import Exchange
from appliance.legs import Legs
from appliance.protocol import ChatPrompt, Delta, Message, Reasoning, Request, Sampling, Stopping, TextPart
from appliance.security.auth import LOCAL
from cache.second_opinion import CALIBRATION_FILE, PROMPT, certainty, mark_of, read_worth

PATIENCE_S: Final = 1.0  # a lookup waits for no longer
ALTERNATIVES: Final = 20

log = logging.getLogger(__name__)


class SecondOpinion:
    def __init__(self, legs: Legs, model: str, threshold: float) -> None:
        self._legs = legs
        self._model = model
        self._threshold = threshold

    async def __call__(self, a: str, b: str) -> bool:
        """Whether one answer does; False also where the model is busy, slow or silent."""
        status = self._legs.engines.supervisors[self._model].status()
        if status.state != "ready" or status.in_flight:
            return False
        try:
            async with asyncio.timeout(PATIENCE_S):
                sure = await self._certainty(a, b)
        except Exception as error:  # noqa: BLE001 - unsure is no
            log.debug("no second opinion", extra={"fields": {"reason": str(error)}})
            return False
        return sure is not None and sure >= self._threshold

    async def _certainty(self, a: str, b: str) -> float | None:
        asked = Message("user", (TextPart(PROMPT.format(first=a, second=b)),))
        request = Request(
            id=uuid.uuid4().hex,
            model=self._model,
            prompts=(ChatPrompt((asked,)),),
            sampling=Sampling(temperature=0),
            stopping=Stopping(max_tokens=1),
            logprobs=ALTERNATIVES,
            reasoning=Reasoning(enabled=False),
        )
        exchange = Exchange(request.id, time.monotonic(), reason="second-opinion", route="local")
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        sure: float | None = None
        async with aclosing(self._legs.local(request, self._model, exchange, LOCAL, deadline_s)) as events:
            async for event in events:
                if isinstance(event, Delta) and event.logprobs and sure is None:
                    top = event.logprobs[0].top
                    sure = certainty((token.token.decode(errors="replace"), token.logprob) for token in top)
        return sure


def second_opinion(legs: Legs, state_dir: Path) -> SecondOpinion | None:
    """Of the first model, where `appliance calibrate` found it good enough."""
    model = legs.engines.models[0]
    found = read_worth(state_dir / CALIBRATION_FILE, mark_of(model.name, model.created))
    if found is None or found.threshold is None:
        return None
    return SecondOpinion(legs, model.name, found.threshold)
