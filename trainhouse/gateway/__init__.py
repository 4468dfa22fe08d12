"""The HTTP gateway: every question and every request over one OpenAPI document, and the pages.

Holds: it writes events only, and reads projections and the status topic only; nothing that it keeps in memory is the truth.
"""
