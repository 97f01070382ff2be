"""Tables 2 to 5 as the paper prints them."""

from __future__ import annotations

import csv
import io

from bcnn.counting.tables import TextTable, tables, to_csv, to_markdown

TABLE_2, TABLE_3, TABLE_4, TABLE_5, NAMED = tables()


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
    assert [row for row in TABLE_4.rows if row[1] == "ours" and "BCNN" in row[0]] == [
        ("BCNN P=1", "ours", "69.0", "9.04", "2.41", "1.15", "0.09", "yes"),
        ("BCNN P=2", "ours", "71.2", "18.09", "4.83", "1.19", "0.13", "yes"),
    ]
    assert [row for row in TABLE_5.rows if row[1] == "ours" and "BCNN" in row[0]] == [
        ("BCNN P=1", "ours", "69.0", "2.28", "131.28", "yes"),
        ("BCNN P=2", "ours", "71.2", "3.45", "208.15", "yes"),
    ]


def test_rivals_of_table_4_by_the_tables_rule_by_the_printed_one_and_as_printed() -> None:
    assert [row for row in TABLE_4.rows if "Net" in row[0]] == [
        ("MeliusNet42", "ours", "69.2", "24.96", "9.69", "1.87", "0.21", ""),
        ("MeliusNet42", "ours, printed rule", "69.2", "24.96", "9.69", "1.87", "0.17", "yes"),
        ("MeliusNet42", "paper", "69.2", "", "9.69", "", "0.17", ""),
        ("ReActNetA", "ours", "69.4", "28.25", "4.82", "1.09", "0.03", ""),
        ("ReActNetA", "ours, printed rule", "69.4", "28.25", "4.82", "1.08", "0.03", "yes"),
        ("ReActNetA", "paper", "69.4", "28.25", "4.82", "1.08", "0.03", ""),
        ("MeliusNet59", "ours", "71.0", "52.64", "18.3", "2.91", "0.30", ""),
        ("MeliusNet59", "ours, printed rule", "71.0", "52.64", "18.3", "2.91", "0.25", "yes"),
        ("MeliusNet59", "paper", "71.0", "", "18.3", "", "0.25", ""),
        ("ReActNetC", "ours", "71.4", "27.55", "4.69", "1.79", "0.16", ""),
        ("ReActNetC", "ours, printed rule", "71.4", "27.55", "4.69", "1.78", "0.16", "cut"),  # the paper cuts 1.7789
        ("ReActNetC", "paper", "71.4", "27.55", "4.69", "1.77", "0.16", ""),
    ]


def test_rivals_of_table_5_by_the_tables_rule_by_the_printed_one_and_as_printed() -> None:
    assert [row for row in TABLE_5.rows if "Net" in row[0]] == [
        ("MeliusNet42", "ours", "69.2", "5.0", "359", ""),
        ("MeliusNet42", "ours, printed rule", "69.2", "10.1", "325", "yes"),
        ("MeliusNet42", "paper", "69.2", "10.1", "325", ""),
        ("ReActNetA", "ours", "69.4", "4.62", "107.22", ""),
        ("ReActNetA", "ours, printed rule", "69.4", "4.61", "108.40", "yes"),
        ("ReActNetA", "paper", "69.4", "4.61", "108.40", ""),
        ("MeliusNet59", "ours", "71.0", "9.5", "590", ""),
        ("MeliusNet59", "ours, printed rule", "71.0", "17.4", "532", "yes"),
        ("MeliusNet59", "paper", "71.0", "17.4", "532", ""),
        ("ReActNetC", "ours", "71.4", "5.23", "232.11", ""),
        ("ReActNetC", "ours, printed rule", "71.4", "5.22", "232.51", "yes"),
        ("ReActNetC", "paper", "71.4", "5.22", "232.51", ""),
    ]


def test_the_networks_that_section_6_3_only_names_have_our_counts() -> None:
    assert [row[:3] for row in NAMED.rows] == [
        ("BNNs", "bnn-r18", "42.2"),
        ("XNOR-Net", "xnornet-r18", "51.2"),
        ("Bi-RealNet-152", "birealnet-152", "64.5"),
        ("Real-To-Bin Net", "real2bin-r18", "65.4"),
    ]
    assert NAMED.rows[2][3:5] == ("55.21", "11.02")


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
    assert to_markdown(TextTable("t", ("a", "b"), (("x", "1"),))) == "**t**\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n"
