"""Language models as pure functions on a flat dict of weights: the Qwen3.5 decoder, its files, its placement."""
