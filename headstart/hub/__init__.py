"""What is fetched from outside and kept: packs of data and models, and the Hugging Face hub."""
