"""A finished run put to work; everything here returns plain data."""
