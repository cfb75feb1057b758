"""Pictures in, pixels out."""
