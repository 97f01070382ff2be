"""The API page: `python -m tools.pages.api FOLDER` writes one page with all that can be imported from `bcnn`, and its docstrings.

pdoc makes it of the docstrings; the page refers to nothing outside the folder. `make docs` runs it into build/docs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import bcnn


def main(folder: str) -> None:
    import pdoc
    import pdoc.render

    for name in bcnn.__all__:  # names that are looked up when they are used: pdoc wants to see them
        vars(bcnn)[name] = getattr(bcnn, name)
    pdoc.render.configure(docformat="markdown", footer_text=f"bcnn {bcnn.__version__}", search=False)
    pdoc.pdoc("bcnn", "!bcnn.", output_directory=Path(folder))
    print(f"{folder}/bcnn.html has {len(bcnn.__all__)} names")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
