"""Networks given by their wires, and schedules that are found for them."""
