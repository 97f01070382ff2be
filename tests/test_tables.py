"""Tables 2 to 5 as the paper prints them."""

from __future__ import annotations

import csv
import io

from bcnn.count.tables import Table, tables, to_csv, to_markdown

TABLE_2, TABLE_3, TABLE_4, TABLE_5 = tables()


def test_table_2_digit_for_digit() -> None:
    assert [(row[0], row[1], row[3]) for row in TABLE_2.rows] == [
        ("Binary parameters", "9.04 e6", "18.09 e6"),
        ("Binary MACs", "2.41 e9", "4.83 e9"),
        ("Real parameters", "1.15 e6", "1.19 e6"),
        ("Real MACs", "0.04 e9", "0.04 e9"),
        ("Real adds", "62.67 e6", "109.64 e6"),
        ("Real mults", "19.57 e6", "35.22 e6"),
        ("Sign", "15.65 e6", "31.31 e6"),
        ("PReLU", "16.41 e6", "16.41 e6"),
    ]


def test_table_3_digit_for_digit() -> None:
    assert [(row[0], row[1], row[3]) for row in TABLE_3.rows] == [
        ("Binary parameters", "9.04 e6", "18.09 e6"),
        ("Binary MACs", "2.41 e9", "4.83 e9"),
        ("Real parameters", "1.15 e6", "1.19 e6"),
        ("Real OPs/2", "0.09 e9", "0.13 e9"),
    ]


def test_our_rows_of_table_4_and_5_digit_for_digit() -> None:
    assert [row for row in TABLE_4.rows if row[1] == "ours"] == [
        ("BCNN P=1", "ours", "69.0", "9.04", "2.41", "1.15", "0.09", "yes"),
        ("BCNN P=2", "ours", "71.2", "18.09", "4.83", "1.19", "0.13", "yes"),
    ]
    assert [row for row in TABLE_5.rows if row[1] == "ours"] == [
        ("BCNN P=1", "ours", "69.0", "2.28", "131.28", "yes"),
        ("BCNN P=2", "ours", "71.2", "3.45", "208.15", "yes"),
    ]


def test_rivals_rows_are_marked_as_the_paper_s() -> None:
    rivals = [row for table in (TABLE_4, TABLE_5) for row in table.rows if "Net" in row[0]]
    assert len(rivals) == 8
    assert {row[1] for row in rivals} == {"paper"}
    assert ("ReActNetA", "paper", "69.4", "28.25", "4.82", "1.08", "0.03", "") in TABLE_4.rows
    assert ("ReActNetC", "paper", "71.4", "5.22", "232.51", "") in TABLE_5.rows


def test_every_item_equals_the_printed_one() -> None:
    for table in (TABLE_2, TABLE_3):
        for row in table.rows:
            assert (row[1], row[3]) == (row[2], row[4])
            assert row[-1] == "yes"


def test_csv_and_markdown_hold_the_same_cells() -> None:
    for table in (TABLE_2, TABLE_4):
        assert list(csv.reader(io.StringIO(to_csv(table)))) == [list(table.header), *map(list, table.rows)]
        lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert [cell.strip() for cell in lines[2].strip("|").split("|")] == list(table.rows[0])
        assert len(lines) == len(table.rows) + 2


def test_markdown_of_a_table_without_a_note_ends_after_its_rows() -> None:
    assert to_markdown(Table("t", ("a", "b"), (("x", "1"),))) == "**t**\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n"
