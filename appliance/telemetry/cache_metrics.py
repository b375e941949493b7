"""Prometheus metrics of the cache, read when they are asked for."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# By their key in the cache's status: what they are called, what they say, and the label that tells their parts apart.
_PARTED: Final = {
    "hits": ("hits", "Requests answered from the cache.", "tier"),
    "prompt_tokens_saved": ("prompt_tokens_saved", "Prompt tokens of these requests.", "tier"),
    "near_misses": ("near_misses", "Similar texts whose answer was refused, by the first guard.", "guard"),
    "not_cached": ("not_cached", "Requests that may not be answered from a cache.", "reason"),
}
_COUNTERS: Final = {
    "misses": "Requests with nothing similar in the cache.",
    "unproven": "Would-be hits of a class whose share of wrong ones is not known yet.",
    "stored": "Answers kept.",
    "dropped": "Answers that the file did not take.",
    "evictions": "Answers that went to make room.",
    "quarantines": "Broken files put aside.",
    "failures": "Reads and writes that the file refused.",
    "failed": "Lookups and stores that ended in a fault.",
}
_GAUGES: Final = {"entries": "Answers in the cache.", "bytes": "Its size on disk."}


class CacheCollector(Collector):
    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        """`status`: as `SemanticCache.status`."""
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        for key, (name, text, label) in _PARTED.items():
            family = CounterMetricFamily(f"appliance_cache_{name}", text, labels=[label])
            for part, count in status[key].items():
                family.add_metric([part], count)
            yield family
        for key, text in _COUNTERS.items():
            yield CounterMetricFamily(f"appliance_cache_{key}", text, value=status[key])
        for key, text in _GAUGES.items():
            yield GaugeMetricFamily(f"appliance_cache_{key}", text, value=status[key])
        checks = CounterMetricFamily("appliance_cache_checks", "Semantic hits answered afresh.", labels=["outcome"])
        checked, wrong = (sum(line[key] for line in status["false_hits"]) for key in ("checked", "wrong"))
        checks.add_metric(["same"], checked - wrong)
        checks.add_metric(["other"], wrong)
        yield checks
