"""Explanations of why jobs wait: answers derived from the book, for people. Nothing here decides."""
