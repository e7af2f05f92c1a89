"""What several notebooks have measured agrees: all were executed in one go, on one idle machine."""

import json
import statistics
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "notebooks" / "data"


def data(name):
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def test_a_step_of_256_images_on_one_device():
    """Milliseconds, of notebooks 3, 5, 9 (twice) and 10: within 25% of each other, as the page for teachers says."""
    scaling = [data("05_training_on_k_devices")["scaling"]["256"], *map(data("09_scaling_experiments").get, KINDS)]
    rows = [next(row for row in each["rows"] if row["devices"] == 1) for each in scaling]
    found = [1000 * row["seconds_per_step"] for row in rows]
    found.append(1000 * statistics.median(data("03_splitting_the_problem")["step_seconds"]["one device"]))
    found.append(min(map(statistics.median, data("10_making_it_fast")["micro_batches"].values())))
    assert len(found) == 5 and max(found) < 1.25 * min(found), found
    assert len({each["machine"] for each in scaling}) == 1


KINDS = "strong", "weak"
