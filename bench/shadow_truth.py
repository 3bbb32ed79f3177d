"""Ghosts of a running proxy, and the proxy with the configuration of each: the predicted hit ratios have to come true.

    python3 plan_workloads.py LOGS
    python3 shadow_truth.py STOCKADE LOGS [MEMORY]

For each log the busiest 60,000 requests, at most, run through a proxy with `[shadow]` in half a minute, on the loopback; then through
proxies with half and twice the memory, another policy, and twice the ttl. The difference of predicted and measured hit ratio is in points.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request

CONFIG = """
listen = ["127.0.0.1:0"]
[admin]
listen = "127.0.0.1:0"
[log]
format = "none"
[cache]
strategy = "swr"
ttl = "{ttl}ms"
swr = "167ms"
limit = {{ bytes = "{bytes}B", policy = "{policy}" }}
[[origin]]
url = "{origin}"
{shadow}
"""
SHADOW = '[shadow]\nsizes = ["0.5x", "2x"]\npolicies = ["lru"]\nttls = ["2x"]\n'


class Child:
    """A server that says where it listens, and ends with its standard input."""

    def __init__(self, *command):
        self.process = subprocess.Popen(
            [*command, "--ready-json", "--until-stdin-ends"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        ready = json.loads(self.process.stdout.readline())
        self.url, self.admin = ready["listen"][0], ready.get("admin")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(30)


def run(stockade, origin, folder, configuration, shadow=""):
    """The proxy's figures after all requests."""
    file = os.path.join(folder, "proxy.toml")
    with open(file, "w", encoding="utf-8") as out:
        out.write(CONFIG.format(origin=origin, shadow=shadow, **configuration))
    with Child(stockade, "proxy", "--config", file) as proxy:
        subprocess.run(
            [stockade, "load", proxy.url, "--replay", os.path.join(folder, "requests.jsonl")],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False,
        )
        with urllib.request.urlopen(f"{proxy.admin}/stats") as answer:
            return json.load(answer)


def hit_ratio(stats):
    outcomes = {}
    for route in stats["routes"]:
        for name, count in route["outcomes"].items():
            outcomes[name] = outcomes.get(name, 0) + count
    return outcomes["hit"] / (sum(outcomes.values()) - outcomes.get("bypass", 0))


def compare(stockade, log, memory):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [stockade, "plan", log, "--ttl", "60s", "--memory", memory, "--experiment", folder],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True,
        )
        with open(os.path.join(folder, "plan.toml"), encoding="utf-8") as plan:
            speed = float(re.search(r"([0-9.]+) times as fast", plan.read())[1])
        size = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[memory[-3:]] * int(memory[:-3])
        now = {"bytes": size, "policy": "sieve", "ttl": round(60_000 / speed)}
        others = {
            "0.5x size": {**now, "bytes": size // 2},
            "2x size": {**now, "bytes": size * 2},
            "lru": {**now, "policy": "lru"},
            "2x ttl": {**now, "ttl": 2 * now["ttl"]},
        }
        with Child(stockade, "origin", os.path.join(folder, "recipe.json"), "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0") as origin:
            stats = run(stockade, origin.url, folder, now, SHADOW)
            shadow = stats["shadow"]
            changes = {ghost["name"]: ghost["hit_ratio_change"] for ghost in shadow["ghosts"]}
            print(
                f"{os.path.basename(log)}: {memory}, hit ratio {100 * hit_ratio(stats):.2f} %, "
                f"{100 * shadow['sampled_share']:.1f} % of the keys, {shadow['sampled_requests']} requests in the sample"
            )
            for name, configuration in others.items():
                predicted = hit_ratio(stats) + changes[name]
                measured = hit_ratio(run(stockade, origin.url, folder, configuration))
                print(f"  {name:10} predicted {100 * predicted:6.2f} %, measured {100 * measured:6.2f} %, {100 * (predicted - measured):+.2f} points", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    for path in sorted(glob.glob(os.path.join(sys.argv[2], "*.jsonl"))):
        compare(sys.argv[1], path, sys.argv[3] if len(sys.argv) == 4 else "8MiB")
