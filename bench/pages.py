"""Pages with a part that a program writes: everything between two markers."""


def put_between(page: str, begin: str, made: str, end: str) -> str:
    before, _, rest = page.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"the page has lost its markers {begin.strip()} and {end.strip()}")
    return f"{before}{begin}{made}{end}{after}"
