"""Files become the texts that are in them, and a fault is told with its place."""

from __future__ import annotations

import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.data import ReadConfig
from headstart.errors import DataError
from headstart.text import files
from headstart.text.files import Reading, check_file, file_facts, lines, read_text
from headstart.text.read import Example, cut, read_corpus, read_labelled, read_lines, squeezed, text_files

LINES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n", exclude_categories=["Cc"])), min_size=1
)


@pytest.fixture
def write(tmp_path: Path):
    def write(data: bytes | str, name: str = "a.txt") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    return write


def test_a_document_keeps_its_lines():
    assert cut("One.\n\n  Two.\n", "document") == ["One.\n\n  Two.\n"]


def test_blank_lines_are_left_out_and_white_space_is_squeezed():
    assert cut("  a  b \n\n \t\nc", "line") == ["a b", "c"]


@pytest.mark.parametrize("inside", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_a_line_end_ends_a_line(inside):
    assert len(cut(f"one{inside}two\nthree", "line")) == 2


def test_a_sentence_keeps_its_closing_quotes_and_brackets():
    assert cut('He said "Go." (She left!) Why?… So it\nended.', "sentence") == [
        'He said "Go."', "(She left!)", "Why?…", "So it ended.",
    ]  # fmt: skip


@given(st.text(st.sampled_from("ab.!?\"')] \n"), max_size=40))
def test_cutting_into_sentences_loses_nothing_but_white_space(text):
    assert "".join("".join(cut(text, "sentence")).split()) == "".join(text.split())


def test_a_number_is_not_the_end_of_a_sentence():
    assert cut("It cost 3.50 euros. Fine.", "sentence") == ["It cost 3.50 euros.", "Fine."]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_is_obeyed_and_removed(write, encoding):
    assert read_text(write("Käse 🧀\n".encode(encoding))) == "Käse 🧀\n"


@pytest.mark.parametrize(("mark", "codec"), [(b"\xfe\xff", "utf-16-be"), (b"\0\0\xfe\xff", "utf-32-be")])
def test_a_big_endian_mark_is_obeyed_too(write, mark, codec):
    assert read_text(write(mark + "dog".encode(codec))) == "dog"


def test_a_mark_does_not_break_the_first_column(write):
    assert read_labelled(write("\ufefftext,label\na,b\n", "a.csv"), None, None) == [Example("a", "b")]


def test_an_encoding_is_obeyed(write):
    assert read_text(write(b"caf\xe9"), Reading(ReadConfig(encoding="cp1252"))) == "café"


@given(LINES, st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1))
def test_line_ends_of_any_kind_give_identical_texts(tmp_path_factory, lines, ends):
    folder = tmp_path_factory.mktemp("ends")
    texts = [f"{line}." for line in lines]  # never blank
    plain, mixed = folder / "plain.txt", folder / "mixed.txt"
    plain.write_bytes("".join(f"{text}\n" for text in texts).encode())
    mixed.write_bytes("".join(text + ends[i % len(ends)] for i, text in enumerate(texts)).encode())
    assert read_text(mixed) == read_text(plain)
    assert len(read_corpus([mixed], "line")) == len(lines)


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_line_ends_of_any_kind_give_identical_rows(write, ends):
    rows = ["text,label", '"two', 'lines",pos', "", "one,neg"]
    assert read_labelled(write(ends.join(rows), "a.csv"), None, None) == [
        Example("two\nlines", "pos"),
        Example("one", "neg"),
    ]


def test_usual_column_names_are_found_in_any_order(write):
    path = write("id,sentiment,review\n7,pos,Good film\n", "a.csv")
    assert read_labelled(path, None, None) == [Example("Good film", "pos")]


def test_a_named_column_wins_over_a_usual_one(write):
    path = write("text,title,label,mood\na,b,c,d\n", "a.csv")
    assert read_labelled(path, "title", "mood") == [Example("b", "d")]


def test_quotes_in_a_tsv_file_are_text(write):
    path = write('text\tlabel\n"Go, she said\tpos\n', "a.tsv")
    assert read_labelled(path, None, None) == [Example('"Go, she said', "pos")]


def test_a_field_may_be_far_longer_than_the_csv_module_likes(write):
    path = write(f"text,label\n{'x' * 10_000_000},a\n", "a.csv")
    assert len(read_labelled(path, None, None)[0].text) == 10_000_000


@pytest.mark.parametrize("unit", ["line", "document"])
def test_each_row_of_a_table_is_one_text(write, unit):
    assert read_corpus([write("text\nOne. Two.\nThree.\n", "a.csv")], unit) == ["One. Two.", "Three."]


def test_the_rows_of_a_table_can_be_cut_into_sentences(write):
    assert read_corpus([write("text\nOne. Two.\nThree.\n", "a.csv")], "sentence") == ["One.", "Two.", "Three."]


def test_lines_to_label_are_kept_as_they_are(write):
    assert read_lines(write("one  two\n\nthree\n", "a.txt")) == ["one  two", "", "three"]


def test_a_folder_stands_for_its_files_by_name(write, tmp_path):
    for name in ("b.txt", "a/z.txt", "c.csv", "ignored.md"):
        write("text\nrow" if name.endswith("csv") else name, name)
    assert [p.name for p in text_files([tmp_path])] == ["z.txt", "b.txt", "c.csv"]
    assert read_corpus([tmp_path], "line") == ["a/z.txt", "b.txt", "row"]


def test_sub_folders_are_labels(write, tmp_path):
    write("Good.", "pos/1.txt")
    write("Bad.", "neg/1.txt")
    assert read_labelled(tmp_path, None, None) == [Example("Bad.", "neg"), Example("Good.", "pos")]


def test_facts_change_with_a_single_byte(write):
    before = file_facts([write("dog")])[0]
    after = file_facts([write("dig")])[0]
    assert before["bytes"] == after["bytes"] == 3
    assert before["sha256"] != after["sha256"]


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('a,x\n"b,y\nc,x\n', 3),  # runs to the end of the file
        ('a,x\n"b,y\n"c",x\n', 3),  # runs into the next quote
        ('"a\nlong",x\n"b,y\n', 4),  # physical lines, not rows
        ('"a,x\n', 2),
    ],
)
def test_an_unclosed_quote_is_named_by_the_line_where_it_opened(write, rows, line):
    with pytest.raises(DataError, match=rf"a\.csv, line {line}: .*quote") as caught:
        read_labelled(write("text,label\n" + rows, "a.csv"), None, None)
    assert caught.value.code == "DATA_QUOTE"


@given(st.integers(0, 30), st.integers(0, 30))
def test_an_unclosed_quote_is_found_wherever_it_stands(tmp_path_factory, before, after):
    path = tmp_path_factory.mktemp("quote") / "a.csv"
    path.write_text("text,label\n" + "a,x\n" * before + '"b,y\n' + "c,x\n" * after)
    with pytest.raises(DataError, match=f"line {before + 2}:"):
        read_labelled(path, None, None)


@given(st.lists(st.integers(0, 3)), st.integers(0, 3))
def test_the_line_of_an_unclosed_quote_is_that_of_the_quote_and_not_of_its_row(tmp_path_factory, before, after):
    path = tmp_path_factory.getbasetemp() / "quote.csv"
    whole = "".join('"say ""so""' + "\n" * ends + 'on",' for ends in before)  # fields over several lines, all closed
    path.write_text("text,label\na,x\n" + whole + 'plain,"open' + "\nmore" * after)
    with pytest.raises(DataError, match=f"line {3 + sum(before)}: a quote is opened here and never closed"):
        read_labelled(path, None, None)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_field_may_be_as_long_as_allowed_and_no_longer(write, name, monkeypatch):
    monkeypatch.setattr("headstart.text.separated.LONGEST_FIELD", 1000)
    table = "text,label\n{},b\n".replace(",", "\t" if name == "a.tsv" else ",")
    assert len(read_labelled(write(table.format("x" * 1000), name), None, None)[0].text) == 1000
    with pytest.raises(DataError, match="line 2: a field of more than 1,000 characters"):
        read_labelled(write(table.format("x" * 1001), name), None, None)


@pytest.mark.parametrize(
    ("table", "columns", "message"),
    [
        ("text,label\na,b\nc\n", (None, None), "line 3: 1 columns where the header has 2"),
        ("text,label\na,b,c\n", (None, None), "line 2: 3 columns where the header has 2"),
        ("text;label\na;b\nc\nd\n", (None, None), "separated by semicolons, but not in all rows"),
        ("words,label\na,b\n", (None, None), "no column called text, .* Name the column with --text-column"),
        ("text,mood\na,b\n", (None, None), "Name the column with --label-column"),
        ("text,label\na,b\n", ("txt", None), "no column 'txt'; .* Did you mean 'text'?"),
        ("text,text,label\na,b,c\n", (None, None), "two columns are called 'text'"),
    ],
)
def test_a_fault_of_the_columns_is_told(write, table, columns, message):
    with pytest.raises(DataError, match=message) as caught:
        read_labelled(write(table, "a.csv"), *columns)
    assert caught.value.code == "DATA_COLUMNS"


def test_blank_lines_above_the_header_do_no_harm(write):
    assert read_labelled(write("\n\ntext,label\na,b\n", "a.csv"), None, None) == [Example("a", "b")]


def test_a_table_of_blank_texts_is_empty(write):
    with pytest.raises(DataError, match="no text in it") as caught:
        read_corpus([write('text,n\n"",1\n" ",2\n', "a.csv")], "line")
    assert caught.value.code == "DATA_EMPTY"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_wrong_byte_is_named_by_its_place_in_the_file(write, mark):
    with pytest.raises(DataError, match=rf"line 2, byte {len(mark) + 7}: not valid utf-8 \(byte 0xE9\)"):
        read_text(write(mark + b"one\ncaf\xe9\n"))


def test_windows_text_is_told_from_its_cousins(write):
    with pytest.raises(DataError, match="try --encoding cp1252"):
        read_text(write("The café was nice; naïve people said “hello” to us.\n".encode("cp1252") * 3))


@pytest.mark.parametrize("encoding", ["klingon", "rot13", "undefined", "hex", ""])
def test_an_encoding_that_cannot_be_used_is_told(write, encoding):
    with pytest.raises(DataError) as caught:
        read_text(write("dog"), Reading(ReadConfig(encoding=encoding)))
    assert caught.value.code == "DATA_ENCODING"


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
def test_a_nul_is_named_by_its_line(write, ends):
    with pytest.raises(DataError, match="line 3: a NUL character"):
        read_text(write(f"a{ends}b{ends}c\0d"))


def test_a_few_control_characters_are_text_and_many_are_not(write):
    assert read_text(write("dog \x07" * 5)) == "dog \x07" * 5
    with pytest.raises(DataError, match="30 control characters") as caught:
        read_text(write("dog \x07" * 30))
    assert caught.value.code == "DATA_BINARY"


def test_a_name_that_is_too_long_is_a_fault_of_the_path():
    with pytest.raises(DataError, match="too long"):
        text_files(["x" * 300])
    with pytest.raises(DataError, match="too long"):
        read_labelled("x" * 300 + ".csv", None, None)


def test_a_missing_file_is_told_with_the_nearest_name(write):
    path = write("dog", "reviews.csv")
    with pytest.raises(DataError, match=r"Did you mean 'reviews\.csv'"):
        check_file(path.with_name("review.csv"))


def how(**settings) -> Reading:
    return Reading(ReadConfig(**settings))


@given(st.lists(st.sampled_from([b"a", b"\xe9", b"\xff", b"\xef\xbf\xbd", "é".encode(), b"\n"]), max_size=30))
def test_every_replaced_byte_is_counted_and_a_replacement_character_of_the_file_is_not(tmp_path_factory, parts):
    path, reading = tmp_path_factory.getbasetemp() / "bad.txt", how(on_bad_bytes="replace")
    path.write_bytes(b"." + b".".join(parts))  # a full stop between them: two never make one character
    bad = sum(part in (b"\xe9", b"\xff") for part in parts)
    assert read_text(path, reading).count("\ufffd") == bad + parts.count(b"\xef\xbf\xbd")
    assert reading.facts() == {"replaced": bad, "nuls_removed": 0}
    assert len(reading.notes()) == bool(bad)


def test_counting_bytes_that_cannot_be_decoded_asks_for_no_more_memory_than_good_ones(tmp_path, monkeypatch):
    asked = []

    class Watched(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            asked.append(size)
            return super().read(size)

        read1 = read

    (tmp_path / "bad.txt").write_bytes(b"a" + b"\xff" * 100_000 + b"b" * 8)
    monkeypatch.setattr(files, "_opened", lambda path: Watched(path.read_bytes()))
    reading = how(on_bad_bytes="replace")
    read_text(tmp_path / "bad.txt", reading)
    assert reading.facts()["replaced"] == 100_000
    assert max(asked) <= 8 * files.STRETCH


@pytest.mark.parametrize(
    ("name", "data", "nuls"),
    [
        ("a.txt", b"one\0 two\n\0three", 2),
        ("a.csv", b"text,label\none\0,x\n", 1),
        ("a.jsonl", b'{"text": "one\\u0000\\u0000", "label": "x"}', 2),
    ],
)
def test_nul_characters_are_left_out_and_counted_once_however_often_they_are_read(write, name, data, nuls):
    path, reading = write(data, name), how(strip_nul=True)
    for _ in range(2):
        assert not any("\0" in text for text in read_corpus([path], "line", reading=reading))
    assert reading.facts()["nuls_removed"] == nuls
    assert reading.notes() == [
        "1 NUL character was left out." if nuls == 1 else f"{nuls} NUL characters were left out."
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(("limit", "fine"), [(6, True), (5, False)])
def test_a_line_may_have_as_many_bytes_as_allowed_and_no_more(write, end, limit, fine):
    path = write(f"a{end}bb{end}ééé{end}c".encode())  # the third line has six bytes
    if fine:
        assert read_text(path, how(max_line_bytes=limit)) == "a\nbb\nééé\nc"
        return
    with pytest.raises(DataError, match=f"line 3: more than {limit} bytes") as caught:
        read_text(path, how(max_line_bytes=limit))
    assert caught.value.code == "DATA_LINE"


def test_a_byte_order_mark_that_overrides_the_encoding_is_told(write):
    reading = how()
    read_text(write("dog".encode("utf-16"), "a.txt"), reading)
    read_text(write("\ufeffdog", "b.txt"), reading)
    assert [note.rpartition("/")[2] for note in reading.notes()] == [
        "a.txt was read as utf-16, as its byte-order mark says."
    ]


@given(st.text(st.sampled_from("ab \t\n\u2003\x1c")), st.integers(1, 4))
def test_squeezing_a_stretch_at_a_time_is_squeezing_the_whole(text, stretch):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headstart.text.read.STRETCH", stretch)
        assert squeezed(text) == " ".join(text.split())


@given(st.text(st.sampled_from("ab\n\x0c\x85\u2028")))
def test_lines_are_those_between_line_ends(text):
    assert [line.removesuffix("\n") for line in lines(text)] == text.removesuffix("\n").split("\n") * bool(text)
    assert "".join(lines(text)) == text


@pytest.mark.parametrize("stretch", [1, 2, 3, 100])
def test_where_a_stretch_ends_makes_no_difference(write, stretch, monkeypatch):
    monkeypatch.setattr("headstart.text.files.STRETCH", stretch)
    assert read_text(write("ab\r\ncd\r\r\n🧀\n".encode())) == "ab\ncd\n\n🧀\n"
    with pytest.raises(DataError, match=r"line 2, byte 7: not valid utf-8 \(byte 0xE9\)"):
        read_text(write(b"one\ncaf\xe9\n"))


@pytest.mark.parametrize("unit", ["document", "line", "sentence"])
def test_a_long_line_is_read_in_few_times_its_size(write, unit, monkeypatch):
    monkeypatch.setattr("headstart.text.read.STRETCH", 10_000)
    text = "The cat sat on the mat; and so it goes. " * 25_000
    path = write(text)
    tracemalloc.start()
    texts = read_corpus([path], unit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(texts) == (25_000 if unit == "sentence" else 1)
    assert peak < 5 * len(text)  # splitting it into words takes 15 times
