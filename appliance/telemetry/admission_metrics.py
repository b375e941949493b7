"""Prometheus metrics of admission, read when they are asked for."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from appliance.admission.breaker import State
from appliance.admission.controller import Controller
from appliance.admission.ticket import CLASSES

_STATES: tuple[State, ...] = ("closed", "half-open", "open")


class AdmissionCollector(Collector):
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        controller = self._controller
        yield GaugeMetricFamily(
            "appliance_saturation", "Load against what there is; 1 is full.", value=controller.saturation.value
        )
        signals = GaugeMetricFamily("appliance_saturation_signal", "Its signals, smoothed.", labels=["signal"])
        for cause, value in controller.saturation.signals.items():
            signals.add_metric([cause], value)
        yield signals
        state = GaugeMetricFamily("appliance_breaker_state", "1 for the state it is in.", labels=["state"])
        for name in _STATES:
            state.add_metric([name], float(controller.breaker.state == name))
        yield state
        changes = CounterMetricFamily("appliance_breaker_transitions", "Changes of state.", labels=["to"])
        for name in _STATES:
            changes.add_metric([name], controller.changes[name])
        yield changes
        refused = CounterMetricFamily(
            "appliance_requests_refused", "Requests that admission refused.", labels=["criticality", "code"]
        )
        for one, count in controller.refused.items():
            refused.add_metric([one.criticality, one.code], count)
        yield refused
        ended = CounterMetricFamily("appliance_branches_ended", "Running branches that were shed.")
        ended.add_metric([], sum(controller.ended.values()))
        yield ended
        waiting = GaugeMetricFamily(
            "appliance_requests_waiting", "Requests that wait above the engine.", labels=["model_name", "criticality"]
        )
        for model, gate in controller.gates.items():
            for criticality in CLASSES:
                waiting.add_metric([model, criticality], len(gate.queue.waiting[criticality]))
        yield waiting
