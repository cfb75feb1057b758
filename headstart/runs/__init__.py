"""The run directory: what is written while a run lasts, and read afterwards."""
