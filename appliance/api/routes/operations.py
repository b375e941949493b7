"""For owners and their monitors: health, readiness, metrics, and one snapshot of everything."""

import dataclasses
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from appliance import __version__
from appliance.admission.status import admission_status
from appliance.api.routes.description import described, errors
from appliance.api.state import DaemonState, daemon
from appliance.errors import ModelLoading, Overloaded
from appliance.telemetry.hardware import HardwareSample
from appliance.telemetry.metrics import CONTENT_TYPE
from runtimes.supervisor import Status

router = APIRouter()


@router.head("/healthz", include_in_schema=False)
@router.get("/healthz")
async def health() -> dict[str, str]:
    """The daemon lives."""
    return {"status": "ok"}


@router.head("/readyz", include_in_schema=False)
@router.get("/readyz", responses=errors(503))
async def readiness(request: Request) -> Response:
    """Every model has made a token and can make another."""
    state = daemon(request)
    if state.ready:
        return JSONResponse({"status": "ready"})
    if state.draining:
        raise Overloaded("The daemon is stopping.")
    waiting = {name: s.status() for name, s in state.engines.supervisors.items()}
    reasons = [f"{name} is {s.state}" + (f" ({s.problem})" if s.problem else "") for name, s in waiting.items()]
    raise ModelLoading("; ".join(reasons))


@router.head("/metrics", include_in_schema=False)
@router.get("/metrics", responses={**errors(401, 403), **described("text/plain", "Metrics.")})
async def metrics(request: Request) -> Response:
    """Prometheus metrics."""
    return Response(daemon(request).metrics.text(), headers={"content-type": CONTENT_TYPE})


@router.head("/admin/v1/status", include_in_schema=False)
@router.get("/admin/v1/status", responses=errors(401, 403, 429))
async def status(request: Request) -> dict[str, Any]:
    """One snapshot of everything the monitor shows."""
    return snapshot(daemon(request))


def snapshot(state: DaemonState) -> dict[str, Any]:
    return {
        "version": __version__,
        "uptime_s": round(time.monotonic() - state.started_s, 3),
        "ready": state.ready,
        "draining": state.draining,
        "offline": state.frontier.gate.offline,
        "requests_in_flight": sum(s.status().in_flight for s in state.engines.supervisors.values()),
        "admission": admission_status(state.admission.controller, state.admission.now_s()),
        "hardware": _hardware(state.hardware.latest(), state.loaded.settings.telemetry.hardware_trace),
        "frontier": _frontier(state),
        "cache": state.caching.cache.status(),
        "ledger": dataclasses.asdict(state.ledger.status()),
        "models": {
            name: _model(s.status(), len(state.admission.controller.gates[name].queue))
            for name, s in state.engines.supervisors.items()
        },
    }


def _hardware(sample: HardwareSample | None, trace: str | None) -> dict[str, Any] | None:
    """`trace`: what is replayed. None: it is this machine's own hardware."""
    if sample is None:
        return None
    host = dataclasses.asdict(sample.host)
    gpus = {str(gpu.index): {**dataclasses.asdict(gpu), "throttle": sorted(gpu.throttle or ())} for gpu in sample.gpus}
    gpu = {"gpu_state": sample.gpu_state, "gpu_problem": sample.problem}
    return {"replayed_from": trace, **gpu, **host, "gpus": gpus}


def _frontier(state: DaemonState) -> dict[str, Any]:
    frontier, limits = state.frontier, state.loaded.settings.economics
    return {
        "egress": dataclasses.asdict(frontier.gate.counts),
        "providers": {
            provider.name: {key: value for key, value in dataclasses.asdict(provider).items() if key != "name"}
            for provider in frontier.status()
        },
        "spent_day_usd": frontier.budget.spent_usd("day"),
        "day_budget_usd": limits.day_budget_usd,
        "spent_month_usd": frontier.budget.spent_usd("month"),
        "month_budget_usd": limits.month_budget_usd,
        "reserved_usd": frontier.budget.reserved_usd(),
    }


def _model(status: Status, waiting: int) -> dict[str, Any]:
    """`waiting`: requests above the engine."""
    info, stats = status.info, status.stats
    shown: dict[str, Any] = {
        "state": status.state,
        "problem": status.problem,
        "worker_pid": status.pid,
        "restarts": status.restarts,
        "load_s": None if status.load_s is None else round(status.load_s, 3),
        "requests_in_flight": status.in_flight,
    }
    if info is not None:
        shown["model"] = {
            "name": info.name,
            "description": info.description,
            "context_tokens": info.context_tokens,
            "parameters": info.n_parameters,
            "size_bytes": info.size_bytes,
        }
    if status.curve is not None:
        shown["cost_curve"] = {
            "step_ms": {str(streams): round(seconds * 1000, 3) for streams, seconds in status.curve.decode},
            "prefill_row_ms": round(status.curve.prefill_row_s * 1000, 4),
        }
    if stats is not None:
        shown["slots"] = {"used": stats.running, "total": stats.slots}
        shown["waiting"] = waiting + stats.waiting
        shown["kv_tokens"] = {"used": stats.kv_used_tokens, "total": stats.kv_total_tokens}
        shown["counters"] = {
            key: value
            for key, value in dataclasses.asdict(stats).items()
            if key not in {"running", "slots", "waiting", "kv_used_tokens", "kv_total_tokens"}
        }
    return shown
