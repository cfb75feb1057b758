"""Counters of the server, in the text format of Prometheus."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

BUCKETS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0)  # seconds


class Metrics:
    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._slower: Counter[float] = Counter()
        self._seconds = 0.0
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[
                method if method in ("GET", "HEAD", "POST", "PUT", "DELETE") else "other", route, status
            ] += 1
            self._seconds += seconds
            for bucket in BUCKETS:
                self._slower[bucket] += seconds <= bucket

    def add(self, name: str, amount: int = 1) -> None:
        with self._lock:
            self._counts[name] += amount

    def text(self, gauges: Mapping[str, float]) -> str:
        """All of them; `gauges` are values of this moment."""
        with self._lock:
            lines = ["# TYPE headstart_requests_total counter"]
            for (method, route, status), count in sorted(self._requests.items()):
                lines.append(f'headstart_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}')
            total = sum(self._requests.values())
            lines.append("# TYPE headstart_request_seconds histogram")
            lines += [f'headstart_request_seconds_bucket{{le="{b:g}"}} {self._slower[b]}' for b in BUCKETS]
            lines += [f'headstart_request_seconds_bucket{{le="+Inf"}} {total}', f"headstart_request_seconds_sum {self._seconds:.6f}", f"headstart_request_seconds_count {total}"]  # fmt: skip
            for name, count in sorted(self._counts.items()):
                lines += [f"# TYPE headstart_{name}_total counter", f"headstart_{name}_total {count}"]
        for name, value in sorted(gauges.items()):
            lines += [f"# TYPE headstart_{name} gauge", f"headstart_{name} {value:g}"]
        return "\n".join(lines) + "\n"
