"""Plans on devices."""
