"""Episodes of many members at once: sampler, decode loop, device engine, multi-turn driver, host workers, records."""
