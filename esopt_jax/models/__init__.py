"""Language models as pure functions on a flat dict of weights: the decoder families, their files, their placement."""
