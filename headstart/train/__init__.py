"""The one loop, the jobs that call it, and the run directory they write."""
