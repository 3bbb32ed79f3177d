"""Logs of four workloads, for `stockade plan --verify`: the predictions have to hold for each of them.

    python3 plan_workloads.py DIR
    for log in DIR/*.jsonl; do stockade plan $log --ttl 60s --verify; done

Each has 120,000 requests of an hour, with sizes from 200 bytes to 1 MB (log-normal, median 8 kB). The same in every run.
"""

import json
import math
import os
import random
import sys

REQUESTS = 120_000
HOUR_S = 3_600.0


def zipf(keys, exponent):
    weights = [1 / rank**exponent for rank in range(1, keys + 1)]
    total, sums = 0.0, []
    for weight in weights:
        total += weight
        sums.append(total)
    return sums


def even(_random):
    return [HOUR_S * n / REQUESTS for n in range(REQUESTS)]


def churn(rng):
    """Zipf, and once a second one of 20,000 keys gives its place to a new one."""
    sums = zipf(20_000, 0.9)
    for at in even(rng):
        rank = rng.choices(range(len(sums)), cum_weights=sums)[0]
        # A key of rank r is replaced once in 20,000 seconds, each at another moment.
        yield at, f"{rank}-{int((at + rank * 7919 % 20_000) / 20_000)}"


def scan(rng):
    """Zipf, and every fifth request reads the next of all keys once."""
    sums = zipf(5_000, 0.8)
    for n, at in enumerate(even(rng)):
        yield at, f"scan-{n}" if n % 5 == 0 else str(rng.choices(range(len(sums)), cum_weights=sums)[0])


def daily(rng):
    """Zipf, ten times as many requests at the peak as at the bottom."""
    sums = zipf(20_000, 0.9)
    times = sorted(
        HOUR_S * t
        for t in (rng.random() for _ in range(20 * REQUESTS))
        if rng.random() < (0.55 - 0.45 * math.cos(2 * math.pi * t))
    )
    for at in rng.sample(times, REQUESTS) if len(times) > REQUESTS else times:
        yield at, str(rng.choices(range(len(sums)), cum_weights=sums)[0])


def flash(rng):
    """Zipf, and from the middle on two thirds of the requests are for ten new keys."""
    sums = zipf(20_000, 0.9)
    for at in even(rng):
        if at > HOUR_S / 2 and rng.random() < 2 / 3:
            yield at, f"flash-{rng.randrange(10)}"
        else:
            yield at, str(rng.choices(range(len(sums)), cum_weights=sums)[0])


def main(directory):
    os.makedirs(directory, exist_ok=True)
    for workload in (churn, scan, daily, flash):
        rng = random.Random(workload.__name__)
        sizes = {}
        with open(f"{directory}/{workload.__name__}.jsonl", "w", encoding="utf-8") as log:
            for at, key in sorted(workload(rng)):
                if key not in sizes:
                    sizes[key] = int(min(1_000_000, max(200, rng.lognormvariate(math.log(8_000), 1.2))))
                line = {"ts": round(1_700_000_000 + at, 3), "method": "GET", "uri": f"/{key}", "status": 200, "size": sizes[key]}
                log.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
