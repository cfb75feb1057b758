"""Tensors in, tensors out: no files, no printing, no tokenizer."""
