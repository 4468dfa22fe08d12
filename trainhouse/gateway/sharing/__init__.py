"""Reports and views of projects, and links to one run, over HTTP."""
