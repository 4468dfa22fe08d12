"""Ingestion: lanes that read topics in batches and write their rows, with positions and catch-ups."""
