"""What a plan does: its form, its proof, its memory."""
