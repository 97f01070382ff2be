"""The paper's Tables 2 to 5 from a config, every printed digit compared; then the same counts for networks it does not have.

    python examples/paper_tables.py

Exit code 1 if a digit differs. No torch. On the command line: `bcnn tables`, `bcnn summary imagenet -P 3`.
"""

import sys

from rich.console import Console

from bcnn import preset
from bcnn.counting.conventions import operations
from bcnn.counting.counts import count
from bcnn.counting.tables import tables, to_rich


def main() -> int:
    out = Console()
    marks = []
    for table in tables():
        out.print(to_rich(table, labels=1 if table.header[0] == "Item" else 2), "")
        if table.header[-1] == "equal":  # yes, NO, or cut, where the paper cut what it should have rounded
            marks += [row[-1] for row in table.rows if row[-1]]
    equal = marks.count("yes") + marks.count("cut")
    out.print(
        f"{equal} of {len(marks)} rows equal the printed ones to the last digit, {marks.count('cut')} of them where the paper cut one\n"
    )

    # Table 5 goes on: a config is data, so any other network is one replaced field away.
    paper = preset("imagenet")
    for name, config in {
        "P=1, the paper's": paper,
        "P=3": paper.replace(branches=3),
        "P=1, half as wide": paper.scaled(0.5),
        "P=1 at 160 x 160": paper.replace(image_size=160),
    }.items():
        network = count(config)
        size, work = network.counts.paper_param_bytes / 1e6, operations(network, "paper") / 1e6
        out.print(f"{name:20} {size:6.2f} MB of parameters, {work:7.2f} normalised MOPs/2")
    return int(equal != len(marks))


if __name__ == "__main__":
    sys.exit(main())
