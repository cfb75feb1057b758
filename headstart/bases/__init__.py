"""Bases opened by name, and what is made of them: adapters, cached features, linear probes."""
