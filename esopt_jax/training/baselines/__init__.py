"""What evolution is compared with, on the same rollouts, run folders and evaluations."""
