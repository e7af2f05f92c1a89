"""The pages of the website's player: each algorithm and plan for a few numbers of devices and networks."""

import html
from pathlib import Path

from d2lmgpu import collectives, plans
from d2lmgpu.base.files import as_json_in_html
from d2lmgpu.collectives.network import topology
from d2lmgpu.plans import estimate_costs

PARAMETERS = 129_068
SPEED = 1e12
"""Multiplications a second of each device, where there is a network."""

NETWORKS = {"none": "no network", "full_switch": "a switch", "pcie_bus": "a bus", "ethernet": "servers, Ethernet"}
ALGORITHMS = [name for name in collectives.ALGORITHMS if name != "none"]
SCHEDULES = [
    {"shows": name, "k": k, "network": network} for name in ALGORITHMS for k in (2, 3, 4, 8) for network in NETWORKS
]
EACH = "micro-batches on each device"
"""The makers' argument: a plan of data parallelism has so many on each device, and k times as many in all."""
PLANS = [
    {"shows": name, "k": k, EACH: m, "network": network}
    for name in plans.PLANS
    for k in (2, 3, 4)
    for m in (1, 4)
    for network in ("none", "ethernet")
]


def write_pages(folder, schedules=SCHEDULES, plans_shown=PLANS):
    """Write all of them into a folder of the site."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for choice in schedules:
        name, k = choice["shows"], choice["k"]
        schedule = collectives.ALGORITHMS[name](k, PARAMETERS)
        collectives.write_html(schedule, k, PARAMETERS, folder / file_of(choice), _network(choice), title=name)
    for choice in plans_shown:
        plan = plans.PLANS[choice["shows"]](choice["k"], choice[EACH])
        costs = None if choice["network"] == "none" else estimate_costs(plan, 256, SPEED)
        plans.write_html(plan, folder / file_of(choice), _network(choice), costs)


def _network(choice):
    return None if choice["network"] == "none" else topology(choice["network"], choice["k"])


def file_of(choice):
    """The file's name: "ring-4-none.html"."""
    return "-".join(str(value) for value in choice.values()) + ".html"


def chooser():
    """The HTML with which one of them is chosen, and shown in a frame."""
    pages = as_json_in_html({"schedule": SCHEDULES, "plan": PLANS})
    names = html.escape(as_json_in_html(NETWORKS))
    return CHOOSER.replace("PAGES", pages).replace("NAMES", names)


CHOOSER = """<form id="chooser" aria-label="what the player shows" data-names="NAMES">
  <label>what <select name="what"><option>schedule</option><option>plan</option></select></label>
</form>
<iframe id="shown" title="the player" loading="lazy"></iframe>
<script>
"use strict";
{
  const first = {shows: "ring", k: "4"}, pages = PAGES;
  const form = document.getElementById("chooser"), frame = document.getElementById("shown");
  const names = JSON.parse(form.dataset.names), labels = {shows: "name", k: "devices"};
  const chosen = () => Object.fromEntries(new FormData(form));
  function offer(key, values, kept) {
    const select = document.createElement("select"), label = document.createElement("label");
    select.name = key;
    for (const value of values) select.add(new Option(names[value] || value, value, false, String(value) === kept));
    label.append((labels[key] || key) + " ", select);
    form.append(label);
  }
  function choose() {
    const before = chosen(), all = pages[before.what];
    form.querySelectorAll("label:not(:first-child)").forEach(label => label.remove());
    for (const key of Object.keys(all[0])) {
      offer(key, [...new Set(all.map(page => page[key]))], before[key] || first[key]);
    }
    show();
  }
  function show() {
    const {what, ...rest} = chosen();
    frame.src = "player/" + Object.keys(pages[what][0]).map(key => rest[key]).join("-") + ".html";
  }
  form.addEventListener("change", event => event.target.name === "what" ? choose() : show());
  choose();
}
</script>"""
