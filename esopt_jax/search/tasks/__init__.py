"""The tasks a program is written for, one module a task."""
