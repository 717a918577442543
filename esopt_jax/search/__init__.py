"""Programs that are searched for: tasks that score them, writers, and the search itself."""
