"""What admission shows of itself: to the status endpoint, the monitor and the metrics."""

from collections import Counter
from typing import Any, Final

from appliance.admission.breaker import Transition
from appliance.admission.controller import Controller
from appliance.admission.gate import Gate
from appliance.admission.ticket import CLASSES, RANK

SHOWN_TRANSITIONS: Final = 10


def admission_status(controller: Controller, now_s: float) -> dict[str, Any]:
    """As `GET /admin/v1/status` has it."""
    breaker, saturation = controller.breaker, controller.saturation
    return {
        "breaker": breaker.state,
        "held_by_owner": breaker.held is not None,
        "saturation": round(saturation.value, 3),
        "cause": saturation.cause,
        "signals": {cause: round(value, 3) for cause, value in saturation.signals.items() if value >= 0.001},
        "transitions": [transition_status(one, now_s) for one in list(controller.transitions)[-SHOWN_TRANSITIONS:]],
        "refused": _by_class(controller),
        "ended": dict(controller.ended),
        "queues": {name: _queue(gate, now_s) for name, gate in controller.gates.items()},
    }


def transition_status(one: Transition, now_s: float) -> dict[str, Any]:
    return {
        "age_s": round(now_s - one.at_s, 3),
        "from": one.before,
        "to": one.after,
        "reason": one.reason,
        "saturation": round(one.saturation, 3),
    }


def _queue(gate: Gate, now_s: float) -> dict[str, Any]:
    queue = gate.queue
    return {
        name: {
            "waiting": len(queue.waiting[name]),
            "running": sum(t.criticality == name for t in queue.running),
            "longest_wait_s": round(queue.longest_wait_s(name, now_s), 3),
            "expected_wait_s": round(queue.expected_wait_s(rank=RANK[name]), 3) if len(queue) else 0.0,
        }
        for name in CLASSES
    }


def _by_class(controller: Controller) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for (criticality, code), count in controller.refused.items():
        counts.setdefault(criticality, Counter())[code] += count
    return {name: dict(codes) for name, codes in counts.items()}
