"""Shipped experiments as package data."""
