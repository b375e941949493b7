"""Prometheus metrics. Names are vLLM's where it has one, with `appliance_` for its `vllm:`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from appliance import __version__
from appliance.exchange import Exchange
from fallback import AttemptRecord
from runtimes.supervisor import Status

# vLLM's buckets, seconds.
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
_INTER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    def __init__(self, engines: Callable[[], Mapping[str, Status]]) -> None:
        """`engines` gives the state of each model's engine at the time of a scrape."""
        self._registry = CollectorRegistry()
        model = ["model_name"]

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"appliance_{name}", text, model, buckets=buckets, registry=self._registry)

        self._ttft = histogram("time_to_first_token_seconds", "From arrival to the first token.", _TTFT)
        self._inter_token = histogram("inter_token_latency_seconds", "Between two tokens of a stream.", _INTER_TOKEN)
        self._inter_token_of: dict[str, Histogram] = {}
        self._whole = histogram("e2e_request_latency_seconds", "From arrival to the end of the answer.", _WHOLE)
        self._queue = histogram("request_queue_time_seconds", "Waiting for a slot.", _WHOLE)
        self._prompt = histogram("request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self._generation = histogram("request_generation_tokens", "Generated tokens of a request.", _TOKENS)
        self._success = Counter(
            "appliance_request_success", "Finished choices.", [*model, "finished_reason"], registry=self._registry
        )
        self._responses = Counter(
            "appliance_http_responses", "Answers by status; 499: the client left first.", ["status"],
            registry=self._registry,
        )  # fmt: skip
        self._attempts = Counter(
            "appliance_frontier_attempts", "Tries at a provider.", ["provider", "outcome"], registry=self._registry
        )
        self._cost = Counter(
            "appliance_frontier_cost_usd", "What providers have cost, where the price is known.", ["provider"],
            registry=self._registry,
        )  # fmt: skip
        self.connections = Gauge(
            "appliance_http_requests_in_flight", "Requests being answered.", registry=self._registry
        )
        build: Any = Info("appliance_build", "What runs.", registry=self._registry)
        build.info({"version": __version__})
        self._registry.register(_EngineCollector(engines))

    def register(self, collector: Collector) -> None:
        self._registry.register(collector)

    def inter_token(self, model: str, seconds: float) -> None:
        series = self._inter_token_of.get(model)
        if series is None:  # looked up once: this runs for every token
            series = self._inter_token_of[model] = self._inter_token.labels(model)
        series.observe(seconds)

    def frontier_attempt(self, attempt: AttemptRecord) -> None:
        self._attempts.labels(attempt.provider, attempt.outcome).inc()
        if attempt.cost_usd:
            self._cost.labels(attempt.provider).inc(attempt.cost_usd)

    def finished(self, exchange: Exchange, seconds: float) -> None:
        """An HTTP exchange has ended."""
        self._responses.labels(str(exchange.status)).inc()
        if exchange.model is None or exchange.queue_s is None:  # no engine has begun with it
            return
        self._queue.labels(exchange.model).observe(exchange.queue_s)
        self._prompt.labels(exchange.model).observe(exchange.prompt_tokens)
        self._generation.labels(exchange.model).observe(exchange.completion_tokens)
        if exchange.ttft_s is not None:
            self._ttft.labels(exchange.model).observe(exchange.ttft_s)
        if exchange.finish_reasons:
            self._whole.labels(exchange.model).observe(seconds)
        for reason in exchange.finish_reasons:
            self._success.labels(exchange.model, reason).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, engines: Callable[[], Mapping[str, Status]]) -> None:
        self._engines = engines

    def collect(self) -> Iterator[Metric]:
        statuses = self._engines()
        gauges = {
            "num_requests_running": ("Sequences that hold a slot.", lambda s: s.running),
            "num_requests_waiting": ("Sequences that wait for a slot.", lambda s: s.waiting),
            "kv_cache_usage_perc": (
                "Share of KV cells in use, 0 to 1.",
                lambda s: s.kv_used_tokens / s.kv_total_tokens,
            ),
        }
        counters = {
            "prompt_tokens": ("Prompt tokens, computed or found resident.", lambda s: s.prompt_tokens),
            "generation_tokens": ("Tokens generated.", lambda s: s.generated_tokens),
            "prefix_cache_queries": ("Prompt tokens looked for among resident prefixes.", lambda s: s.prompt_tokens),
            "prefix_cache_hits": ("Prompt tokens found there.", lambda s: s.cached_prompt_tokens),
            "num_preemptions": ("Sequences that gave up their KV cells.", lambda s: s.preemptions),
            "engine_steps": ("Forward passes.", lambda s: s.steps),
        }
        up = GaugeMetricFamily("appliance_engine_ready", "Whether the engine can answer.", labels=["model_name"])
        restarts = CounterMetricFamily("appliance_engine_restarts", "Workers replaced.", labels=["model_name"])
        for name, status in statuses.items():
            up.add_metric([name], float(status.state == "ready"))
            restarts.add_metric([name], status.restarts)
        yield up
        yield restarts
        kinds: tuple[tuple[Any, Any], ...] = ((gauges, GaugeMetricFamily), (counters, CounterMetricFamily))
        for families, make in kinds:
            for metric, (text, read) in families.items():
                family = make(f"appliance_{metric}", text, labels=["model_name"])
                for name, status in statuses.items():
                    if status.stats is not None:
                        family.add_metric([name], float(read(status.stats)))
                yield family
