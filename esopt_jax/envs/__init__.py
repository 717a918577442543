"""Environments: multi-turn tasks in plain Python, host-side, without jax."""
