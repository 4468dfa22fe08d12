"""The web pages: one HTML file, ES modules, style sheets, and the vendored libraries in `static/vendor`; no build step.

Never: a request to another host.
"""
