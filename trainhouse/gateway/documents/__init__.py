"""Reports and views of projects over HTTP."""
