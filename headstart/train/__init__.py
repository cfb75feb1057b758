"""The training loop, and nothing that knows what is trained."""
