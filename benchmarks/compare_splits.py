"""Answers: which split should I take, by the seconds, bytes and memory of a training step?

    python benchmarks/compare_splits.py --json benchmarks/results/cpu_splits.json \
        --plot benchmarks/results/cpu_splits.png --page docs/splits.md

On 2 and on 4 virtual devices, all splits of a network take turns in every round, so that a machine whose speed drifts
treats them alike; the first round is a warm-up. Quoted are medians, with the least and the most. Bytes and memory are
those that `prove` tells, and that tests find to be what is sent and held.
"""

import argparse
import time

import numpy as np
from quoted import circumstances, fill, save_picture, spread, write

import d2lmgpu as d2l
from d2lmgpu import plans
from d2lmgpu.networks.known import NETWORKS, lenet_network
from d2lmgpu.pictures import COLOURS

BATCH, OPTIMIZER = 256, "adam"
DEVICES = (2, 4)
PIPELINES = ("gpipe", "1f1b", "zero-bubble")
WIDE = 4
MAX_ROUNDS = 15
FAMILIES = {"one device": 6, "data": 0, "zero": 2, "layers": 4, "pipelines": 1, "channel": 3, "products": 5}
"""A colour for each."""


def main():
    parser = argparse.ArgumentParser(description="All splits of a training step beside each other.")
    parser.add_argument("--quick", action="store_true", help="one round of 32 images: to see that it works")
    parser.add_argument(
        "--seconds", type=float, default=25, help="about so long for each network and number of devices"
    )
    parser.add_argument("--note", default="", help="what should be known of the machine, such as that it was busy")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--page", metavar="FILE", help="write the tables into this page of the documents")
    options = parser.parse_args()
    result = {
        **circumstances(options.note),
        "batch_size": 32 if options.quick else BATCH,
        "optimizer": OPTIMIZER,
        "rows": [],
    }
    for name, network in networks().items():
        for k in DEVICES:
            rows = compare(network, k, result["batch_size"], 0 if options.quick else options.seconds)
            result["rows"] += [{"network": name, "devices": k, **row} for row in rows]
            print(table(result["rows"][-len(rows) :], name, k), flush=True)
    if options.json:
        write(options.json, result)
    if options.plot:
        save_picture(plot(result), options.plot, dpi=110)
    if options.page:
        fill(options.page, "splits", tables(result))


def networks():
    """The networks that are compared: those that there are."""
    found = {"LeNet": NETWORKS["lenet"], f"LeNet, {WIDE} times as wide": lenet_network(WIDE)}
    return found | ({"deep": NETWORKS["deep"]} if "deep" in NETWORKS else {})


def splits(network, k):
    """Name → plan: those that there can be of the network for k devices."""
    makers = {name: (make, 2 * k if name in PIPELINES else 1) for name, make in plans.PLANS.items()}
    found = {"one device": plans.PLANS["data"](1, 1, network=network)}
    for name, (make, micro_batches) in makers.items():
        try:
            found[name] = make(k, micro_batches, network=network)
        except ValueError as error:  # fewer layers than devices, or fewer channels
            print(f"{name} on {k} devices: {error}")
    if k == 4 and "1f1b" in found:
        found["data=2,1f1b=2"] = plans.copies_of("1f1b", 2, 2, 4, network)
    return found


def compare(network, k, batch_size, seconds):
    """A row for each split, in rounds for about so many seconds."""
    rng = np.random.default_rng(0)
    X = rng.random((batch_size, *network.input_shape)).astype(np.float32)
    y = rng.integers(network.classes, size=batch_size)
    params = d2l.init_params(init="he", network=network)
    devices = [d2l.cpu(i) for i in range(k)]
    there = splits(network, k)
    runs = {name: plans.Execution(plan, params, devices[: plan.k], OPTIMIZER) for name, plan in there.items()}
    times, end = {name: [] for name in runs}, time.perf_counter() + seconds
    for number in range(MAX_ROUNDS + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run.step(X, y, 0.001)
            if number:  # the first is a warm-up
                times[name].append(time.perf_counter() - begin)
        if number and time.perf_counter() > end:
            break
    rows = []
    for name, plan in there.items():
        proof = plans.prove(plan, batch_size, OPTIMIZER)
        rows.append(
            {
                "split": name,
                "micro_batches": plan.micro_batches,
                "seconds": spread(times[name]),
                "times as long as data": spread(np.divide(times[name], times["data"]).tolist()),
                "bytes_sent": sum(proof.sent),
                "peak_memory": max(proof.peak),
                "memory_between_steps": max(proof.between),
            }
        )
    return rows


def table(rows, name, k):
    """The rows of a network on k devices as a table of Markdown."""
    lines = [
        f"{name}, {k} devices:",
        "",
        "| split | micro-batches | ms a step | times `data` | MB sent | MB on a device at most | MB between steps |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ms, ratio = row["seconds"], row["times as long as data"]
        lines.append(
            f"| `{row['split']}` | {row['micro_batches']} "
            f"| {1e3 * ms['median']:.1f} ({1e3 * ms['min']:.1f} … {1e3 * ms['max']:.1f}) "
            f"| {ratio['median']:.2f} ({ratio['min']:.2f} … {ratio['max']:.2f}) "
            f"| {row['bytes_sent'] / 1e6:.2f} | {row['peak_memory'] / 1e6:.2f} "
            f"| {row['memory_between_steps'] / 1e6:.2f} |"
        )
    return "\n".join([*lines, ""])


def groups(rows):
    """(network, number of devices) → rows."""
    found = {}
    for row in rows:
        found.setdefault((row["network"], row["devices"]), []).append(row)
    return found


def tables(result):
    """For the page: the circumstances, and what is fastest and smallest; all rows are in the results."""
    about = (
        f"{result['machine']}, Python {result['versions']['python']}, NumPy {result['versions']['numpy']}, "
        f"{result['date']}, commit {result['commit']}; batch {result['batch_size']}, {result['optimizer']}, float32. "
        "Medians over rounds in which the splits take turns."
    )
    return "\n".join([about + (f" **{result['note']}**" if result["note"] else ""), "", answers(result)])


def answers(result):
    """For each network and number of devices: the fastest, and the one that needs least memory."""
    head = "| network | devices | fastest | least memory, and its time as a factor of the fastest |"
    lines = [head, "|---|---|---|---|"]
    for (name, k), rows in groups(result["rows"]).items():
        split = [row for row in rows if row["split"] != "one device"]
        fast = min(split, key=lambda row: row["seconds"]["median"])
        small = min(split, key=lambda row: (row["peak_memory"], row["seconds"]["median"]))
        lines.append(
            f"| {name} | {k} | `{fast['split']}`, {1e3 * fast['seconds']['median']:.1f} ms, "
            f"{fast['peak_memory'] / 1e6:.1f} MB | `{small['split']}`, {small['peak_memory'] / 1e6:.1f} MB, "
            f"factor {small['seconds']['median'] / fast['seconds']['median']:.1f} |"
        )
    return "\n".join(lines)


def family(split):
    """Which colour it has."""
    if "=" in split:
        return "products"
    if split in PIPELINES:
        return "pipelines"
    return next(name for name in FAMILIES if split.startswith(name))


def plot(result):
    """Seconds against memory, a panel for each network and number of devices: what is below and left is better."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    found = groups(result["rows"])
    names = list(dict.fromkeys(name for name, _ in found))
    figure = Figure(figsize=(5.6 * len(DEVICES), 3.9 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), len(DEVICES), squeeze=False)
    styles, shown = styles_of([row["split"] for row in result["rows"]]), {}
    for (name, k), rows in found.items():
        axes = panels[names.index(name)][DEVICES.index(k)]
        _draw_frontier(axes, rows)
        for row in rows:
            x, ms = row["peak_memory"] / 1e6, {key: 1e3 * row["seconds"][key] for key in ("median", "min", "max")}
            colour, marker = styles[row["split"]]
            axes.plot([x, x], [ms["min"], ms["max"]], color=colour, lw=1, alpha=0.45)
            (shown[row["split"]],) = axes.plot(
                x, ms["median"], marker, color=colour, ms=8, mec="white", label=row["split"]
            )
        axes.set(xscale="log", yscale="log", title=f"{name}, {k} devices")
        axes.margins(x=0.15, y=0.1)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 1)))
        axes.set_xlabel("MB on a device, at most")
        axes.set_ylabel("ms a step: median, least and most")
        axes.grid(alpha=0.3, which="both")
    figure.legend(handles=list(shown.values()), loc="outside lower center", ncols=6, fontsize=9)
    title = "Which split? Below and left is better. The grey line: what is not beaten in both"
    figure.suptitle(title + (f"\n{result['note']}" if result["note"] else ""), fontsize=11)
    return figure


def styles_of(splits):
    """For each split a colour, that of its family, and a marker, another one for each of a family."""
    styles, members = {}, {}
    for split in dict.fromkeys(splits):
        relatives = members.setdefault(family(split), [])
        relatives.append(split)
        styles[split] = COLOURS[FAMILIES[family(split)]], "osD^"[len(relatives) - 1]
    return styles


def _draw_frontier(axes, rows):
    """A line through those of which none needs less memory and is as fast."""
    best = []
    for row in sorted(rows, key=lambda row: (row["peak_memory"], row["seconds"]["median"])):
        if not best or row["seconds"]["median"] < best[-1][1]:
            best.append((row["peak_memory"] / 1e6, row["seconds"]["median"]))
    axes.step([x for x, _ in best], [1e3 * y for _, y in best], where="post", color="#999999", lw=1, zorder=0)


if __name__ == "__main__":
    main()
