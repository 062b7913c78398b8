"""Shipped configurations as package data."""
