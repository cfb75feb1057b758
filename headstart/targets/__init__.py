"""What rows are labelled with: one class, several labels, a number. Reading, encoding, scoring; no torch."""
