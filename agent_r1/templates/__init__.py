"""Chat templates as package data."""
