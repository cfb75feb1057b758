"""The jobs: each prepares data and a model, trains it, scores it, and leaves a run directory."""
