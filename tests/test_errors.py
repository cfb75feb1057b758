"""What errors hold for whoever reads them."""

from __future__ import annotations

from headstart.errors import DataError


def test_a_message_with_the_whole_of_a_file_in_it_keeps_its_beginning_and_its_end() -> None:
    error = DataError(
        f"a.csv: no column called text; the header has {'x' * 70_000}. Name one with --text-column.", "DATA_COLUMNS"
    )
    told = str(error)
    assert len(told) < 3100
    assert told.startswith("a.csv: no column called text; the header has xxx")
    assert "xxx [... 67,075 characters left out ...] xxx" in told
    assert told.endswith("xxx. Name one with --text-column.")
    assert error.code == "DATA_COLUMNS"
    assert str(DataError("x" * 4000)) == "x" * 4000
