"""Fine-tune LLM agents with evolution strategies, in JAX."""

__version__ = "0.1.0"
