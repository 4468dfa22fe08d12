"""Outputs of jobs: pieces that ranks write, and the manifest that their agent makes of them."""
