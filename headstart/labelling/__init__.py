"""Label where it pays: which rows to label next, what they bring, and when to stop."""
