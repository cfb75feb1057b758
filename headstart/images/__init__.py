"""Images in, pixels out."""
