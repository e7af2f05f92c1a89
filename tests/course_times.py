"""How many minutes a notebook takes, from what is in it: the rule of docs/teaching.md."""

import json
import re

from site_course import exercises

WORDS_A_MINUTE = 150
SECONDS_A_LINE = 10
MINUTES_AN_EXERCISE = 17
MINUTES_A_LOOK = 0.5  # at a figure, and for a prediction


def minutes(path):
    """Whole steps of five minutes. Code that is folded (the tag hide-input), such as of a plot, is not read."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = {kind: ["".join(c["source"]) for c in cells if c["cell_type"] == kind] for kind in ("markdown", "code")}
    folded = {"".join(c["source"]) for c in cells if "hide-input" in c["metadata"].get("tags", ())}
    words = sum(len(text.split()) for text in texts["markdown"])
    lines = sum(len(text.splitlines()) for text in texts["code"] if text not in folded)
    looks = sum(len(re.findall(r"^my_prediction\w* =", text, re.MULTILINE)) for text in texts["code"])
    looks += sum("image/svg+xml" in output.get("data", ()) for c in cells for output in c.get("outputs", ()))
    reading = words / WORDS_A_MINUTE + lines * SECONDS_A_LINE / 60
    return 5 * round((reading + len(exercises(cells)) * MINUTES_AN_EXERCISE + looks * MINUTES_A_LOOK) / 5)
