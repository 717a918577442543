"""Language models as pure functions on a flat dict of weights: the Qwen3.5 text decoder, its files and its placement."""
