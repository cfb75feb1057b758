"""What was seen in a model, as plain data, and how it is shown: terminal, picture, page, notebook. No torch."""
