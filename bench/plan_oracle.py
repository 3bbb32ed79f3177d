"""`stockade plan` compared with libCacheSim: miss counts and requests a second, on the traces of Caffeine's simulator.

    pip install libcachesim==0.3.5 numpy
    mvn dependency:get -Dartifact=com.github.ben-manes.caffeine:simulator:3.2.3 -Dtransitive=false
    python3 plan_oracle.py traces SIMULATOR.jar DIR        # the traces as oracleGeneral, objects of one size
    python3 plan_oracle.py exact STOCKADE DIR [POLICY,...] # miss counts at five sizes
    python3 plan_oracle.py sample STOCKADE DIR             # errors of sampled curves
    python3 plan_oracle.py speed STOCKADE TRACE            # requests a second, both on one core

In `speed` both read the trace and simulate five sizes; `stockade plan` also chooses one, which takes three more replays. `exact` skips traces of more than 600,000 requests, `sample` those whose log is
replayed as a whole anyway.
"""

import collections
import gzip
import json
import lzma
import os
import pathlib
import subprocess
import sys
import time
import zipfile

import numpy as np

POLICIES = {
    "fifo": "FIFO", "lru": "LRU", "clock": "Clock", "sieve": "Sieve", "lfu-no-aging": "LFU", "belady": "Belady",
    "arc": "ARC", "s3-fifo": "S3FIFO", "2q": "TwoQ", "gdsf": "GDSF", "lirs": "LIRS", "w-tinylfu": "WTinyLFU",
    "clock2q+": "Clock2QPlus",
}
SHARES = (0.005, 0.01, 0.05, 0.1, 0.4)
RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
REQUESTS_MAX = 4_000_000


def keys(name, data):
    """The requested keys of a trace, as numbers. Their meaning does not matter, their equality does."""
    lines = lambda: (line for line in data.splitlines() if line.strip())
    if name.startswith(("web", "w106")):
        return np.frombuffer(data[: len(data) // 4 * 4], "<u4").astype("<u8")
    if name.startswith("orm"):
        return np.frombuffer(data[: len(data) // 2 * 2], "<u2").astype("<u8")
    if "vault" in name or name.startswith(("scarab", "prods", "recs")):
        return np.frombuffer(data[: len(data) // 8 * 8], "<u8")
    if name.startswith("build"):
        return np.array([int(line[:15], 16) for line in lines()], "<u8")
    if name.startswith("request"):
        return np.array([int(line.split()[1]) for line in lines()], "<u8")
    if name.startswith(("gcc", "gzip", "mcf", "swim", "twolf")):
        return np.array([int(line.split()[1], 16) for line in lines()], "<u8")
    return np.array([int(word) for word in data.split() if word.isdigit()], "<u8")


def traces(jar, directory):
    os.makedirs(directory, exist_ok=True)
    with zipfile.ZipFile(jar) as archive:
        for path in archive.namelist():
            name = pathlib.Path(path).name
            if not path.endswith((".gz", ".xz")) or "penalties" in path:
                continue
            data = (gzip if path.endswith(".gz") else lzma).decompress(archive.read(path))
            _, ids = np.unique(keys(name, data)[:REQUESTS_MAX], return_inverse=True)
            records = np.zeros(len(ids), RECORD)
            records["time"] = np.arange(len(ids)) // 1000
            records["id"], records["size"], records["next"] = ids + 1, 1, -1
            order = np.argsort(ids, kind="stable")
            same = ids[order][1:] == ids[order][:-1]
            records["next"][order[:-1][same]] = order[1:][same] + 1
            records.tofile(f"{directory}/{name.replace('.', '_')}.oracleGeneral")
            print(name, len(ids), "requests", ids.max() + 1, "keys")


def planned(program, file, policies, sizes, *more):
    command = [program, "plan", file, "--input", "oracle-general", "--ttl", "never", "--origin-latency", "0", "--warmup", "0"]
    command += ["--policy", ",".join(policies), "--sizes", ",".join(map(str, sizes)), "--format", "json", *more]
    plan = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {
        (curve["policy"], point["entries"]): (round(point["miss_ratio"] * plan["requests"]), point)
        for curve in plan["curves"]
        for point in curve["points"]
    }


def libcachesim_misses(file, policy, size, requests):
    import libcachesim as lcs

    reader = lcs.TraceReader(
        trace=file,
        trace_type=lcs.TraceType.ORACLE_GENERAL_TRACE,
        reader_init_params=lcs.ReaderInitParam(ignore_obj_size=True),
    )
    ratio, _ = getattr(lcs, POLICIES[policy])(size).process_trace(reader)
    return round(ratio * requests)


def files(directory):
    for file in sorted(pathlib.Path(directory).glob("*.oracleGeneral")):
        ids = np.fromfile(file, RECORD)["id"]
        count = len(np.unique(ids))
        yield str(file), len(ids), sorted({max(10, int(count * share)) for share in SHARES}), count


def exact(program, directory, names=",".join(POLICIES)):
    names = names.split(",")
    differences = collections.defaultdict(list)
    for file, requests, sizes, _ in files(directory):
        if requests > 600_000:
            continue
        ours = planned(program, file, names, sizes, "--exact")
        for name in names:
            for size in sizes:
                theirs = libcachesim_misses(file, name, size, requests)
                differences[name].append(100 * (ours[name, size][0] - theirs) / requests)
    print("| policy | cases | equal | mean difference, points | least | greatest |\n|---|---|---|---|---|---|")
    for name in names:
        points = differences[name]
        equal = sum(point == 0 for point in points)
        print(f"| {name} | {len(points)} | {equal} | {np.mean(points):.2f} | {min(points):.2f} | {max(points):.2f} |")


def sample(program, directory):
    names = ["sieve", "s3-fifo", "lru", "lfu", "arc", "w-tinylfu"]
    print("| trace | policy | sampled points | greatest difference, points |\n|---|---|---|---|")
    for file, _, sizes, _ in files(directory):
        sampled = planned(program, file, names, sizes)
        if all(point["exact"] for _, point in sampled.values()):
            continue
        truth = planned(program, file, names, sizes, "--exact")
        for name in names:
            points = [(sampled[name, size][1], truth[name, size][1]) for size in sizes]
            off = [100 * abs(a["miss_ratio"] - b["miss_ratio"]) for a, b in points if not a["exact"]]
            print(f"| {pathlib.Path(file).stem} | {name} | {len(off)} | {max(off, default=0):.2f} |")


def speed(program, file):
    os.sched_setaffinity(0, {0})
    ids = np.fromfile(file, RECORD)["id"]
    count = len(np.unique(ids))
    requests, sizes = len(ids), [max(10, int(count * share)) for share in SHARES]
    simulated = requests * len(sizes) / 1e6
    print("| policy | libCacheSim, million requests a second | stockade plan | ratio |\n|---|---|---|---|")
    for name in ("lru", "sieve", "s3-fifo"):
        rates = ([], [])
        for _ in range(5):
            start = time.perf_counter()
            for size in sizes:
                libcachesim_misses(file, name, size, requests)
            rates[0].append(simulated / (time.perf_counter() - start))
            start = time.perf_counter()
            planned(program, file, [name], sizes, "--exact")
            rates[1].append(simulated / (time.perf_counter() - start))
        theirs, ours = (float(np.median(rate)) for rate in rates)
        print(f"| {name} | {theirs:.2f} | {ours:.2f} | {ours / theirs:.2f} |")


if __name__ == "__main__":
    commands = {"traces": traces, "exact": exact, "sample": sample, "speed": speed}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](*sys.argv[2:])
