"""The one exception that carries a sentence for a person.

Whatever a user can get wrong (a config, a file, an image) raises `UserError` with one sentence: what, where, what next.
The command line prints that sentence and exits with code 2; anything else that escapes is a defect of ours and keeps its traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input, said in one sentence.

    >>> import bcnn
    >>> try:
    ...     bcnn.preset("imagnet")
    ... except bcnn.UserError as error:
    ...     print(str(error)[:48])
    unknown preset 'imagnet'; did you mean 'imagenet
    """


def nearest(word: str, known: Iterable[str], command: str = "") -> str:
    """The tail of an error about an unknown name: the nearest known one, and all of them. With the `command` that lists them,
    for names that are too many for a sentence, the nearest three and that command."""
    known = sorted(known)
    close = [repr(name) for name in difflib.get_close_matches(word, known, n=3 if command else 1, cutoff=0.5)]
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{hint}{command} lists all {len(known)}" if command else f"{hint}known: {', '.join(known)}"
