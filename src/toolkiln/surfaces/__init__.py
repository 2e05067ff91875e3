"""Surfaces translate between the outside and `Kiln`, and do nothing else."""
