"""Ways to split a training step. Each is a function that makes the `Plan` for k devices."""
