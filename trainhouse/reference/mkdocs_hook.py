"""The hook of mkdocs that adds the generated pages (`mkdocs.yml`)."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from trainhouse.reference.pages import render


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds them to the pages that are files."""
    for name, content in render().items():
        files.append(File.generated(config, name, content=content))
    return files
