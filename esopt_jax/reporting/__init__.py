"""Reports on runs, finished or not: pictures, a live view, episodes as text. Only `cli` imports it."""
