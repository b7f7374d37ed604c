"""For the API pages: our docstrings write `Example:` above doctests, where the parser looks for `Examples:`."""

import re

import griffe


class ExampleSections(griffe.Extension):
    """Lets `Example:` begin a section of doctests."""

    def on_object(self, *, obj, **kwargs):
        """Rename the section in each object's docstring, before it is parsed."""
        if obj.docstring:
            obj.docstring.value = re.sub(r"^(\s*)Example:", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
