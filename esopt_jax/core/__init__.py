"""Evolution strategies as pure functions on pytrees: noise, views, shaping, schedules, update, digest.

Nothing here performs I/O, keeps state or knows what a model is: leaves arrive with their `LeafSpec`.
"""
