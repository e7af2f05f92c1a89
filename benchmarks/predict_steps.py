"""How long will a step take on two devices, told from one alone? Predicted step times of plans beside measured ones.

    python benchmarks/predict_steps.py --json benchmarks/results/cpu_predicted_steps.json --page docs/splits.md

First messages between the two are measured (`plans.measure_messages`); then for each plan, in a few rounds,

1. what its stages cost on one device alone, and what the contention of the second does to that (`plans.measure_costs`);
2. the plan's step itself, on both.

`plans.simulate` predicts 2 from 1 and the messages, once without contention and once with it. Quoted are the medians of
the rounds' seconds and of their errors.
"""

import argparse
import statistics
import time

import numpy as np
from compare_splits import PIPELINES, circumstances, fill, networks

import d2lmgpu as d2l
from d2lmgpu import plans
from d2lmgpu.base.files import write_json

BATCH, STEPS = 256, 7
DEVICES = [d2l.cpu(0), d2l.cpu(1)]


def main():
    parser = argparse.ArgumentParser(description="Predicted step times of plans beside measured ones.")
    parser.add_argument("--quick", action="store_true", help="one round of 32 images of LeNet: to see that it works")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--network", metavar="NAME", help="of this network only, such as LeNet (all take ten minutes)")
    parser.add_argument("--note", default="", help="what should be known of the machine, such as that it was busy")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--page", metavar="FILE", help="write the table into this page of the documents")
    options = parser.parse_args()
    batch_size, rounds = (32, 1) if options.quick else (BATCH, options.rounds)
    result = {
        **circumstances(options.note),
        "batch_size": batch_size,
        "rows": [],
    }
    wires = plans.measure_messages(DEVICES)
    chosen = {name: network for name, network in networks().items() if options.network in (None, name)}
    for name, network in chosen.items():
        for split, make in plans.PLANS.items():
            try:
                plan = make(2, 4 if split in PIPELINES else 1, network=network)
                row = {"network": name, "split": split, **predict(plan, wires, batch_size, rounds)}
            except ValueError as error:  # a split that the network has not, or stages that one device alone has not
                print(f"{split}: {error}")
                continue
            result["rows"].append(row)
            print(line(row), flush=True)
        if options.quick:
            break
    print("\n" + tables(result))
    if options.json:
        write_json(options.json, result, indent=1)
    if options.page:
        fill(options.page, "predicted steps", tables(result))


def predict(plan, wires, batch_size, rounds):
    """Medians of seconds, measured and predicted, and of the predictions' errors."""
    rng = np.random.default_rng(0)
    X = rng.random((batch_size, *plan.network.input_shape)).astype(np.float32)
    y = rng.integers(plan.network.classes, size=batch_size)
    execution = plans.Execution(plan, d2l.init_params(init="he", network=plan.network), DEVICES)
    found = {"measured": [], "from one alone": [], "with contention": []}
    contentions = []
    for _ in range(rounds):
        costs = plans.measure_costs(plan, DEVICES, batch_size, rounds=STEPS)
        found["measured"].append(seconds_of_step(execution, X, y))
        for name, contention in (("from one alone", [1]), ("with contention", costs.contention)):
            told = plans.simulate(plan, wires, costs.costs, batch_size, contention=contention)
            found[name].append(costs.step_seconds(told))
        contentions.append(costs.contention[1])
    errors = {
        name: statistics.median(p / m - 1 for p, m in zip(found[name], found["measured"], strict=True))
        for name in ("from one alone", "with contention")
    }
    return {
        "micro_batches": plan.micro_batches,
        "seconds": {name: statistics.median(values) for name, values in found.items()},
        "errors": errors,
        "contention": statistics.median(contentions),
    }


def seconds_of_step(execution, X, y):
    """The median of some steps, after one to warm up."""
    times = []
    for _ in range(STEPS + 1):
        begin = time.perf_counter()
        execution.step(X, y, 0.001)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def line(row):
    ms = {name: f"{1e3 * value:.1f}" for name, value in row["seconds"].items()}
    return (
        f"| {row['network']} | `{row['split']}` | {ms['measured']} | {ms['from one alone']} "
        f"({row['errors']['from one alone']:+.0%}) | {row['contention']:.2f} | {ms['with contention']} "
        f"({row['errors']['with contention']:+.0%}) |"
    )


def tables(result):
    """The table for the page, with what it is about."""
    sizes = {name: [abs(row["errors"][name]) for row in result["rows"]] for name in result["rows"][0]["errors"]}
    summary = "; ".join(f"{name}: {statistics.median(e):.0%} (at most {max(e):.0%})" for name, e in sizes.items())
    about = (
        f"{result['machine']}, {result['date']}, commit {result['commit']}; batch {result['batch_size']}, SGD, "
        f"float32, 2 virtual devices. Median error of the predictions {summary}."
    )
    head = "| network | split | measured, ms | predicted from one device alone, ms | contention factor "
    head += "| predicted with contention, ms |"
    lines = [about + (f" **{result['note']}**" if result["note"] else ""), "", head, "|---|---|---|---|---|---|"]
    return "\n".join([*lines, *map(line, result["rows"])])


if __name__ == "__main__":
    main()
