"""The sandbox, and the tools that agents call."""
