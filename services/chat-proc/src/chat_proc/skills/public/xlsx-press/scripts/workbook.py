"""Writes data frames as formatted tables of an Excel workbook. Runs in the sandbox, with openpyxl and pandas."""

import re

import pandas as pd
from openpyxl import Workbook
from openpyxl.styles import Alignment, Border, Font, PatternFill, Side
from openpyxl.utils import get_column_letter

HEADER = PatternFill("solid", fgColor="EEF1F4")
BOLD = Font(bold=True)
RULE = Border(top=Side(style="thin", color="8895A2"))
MIN_WIDTH, MAX_WIDTH = 8, 60
MEASURED_ROWS = 500
MAX_ROWS = 1_048_576


def write_workbook(path, sheets, *, formats=None, totals=()):
    """Write each data frame of `sheets`, by name, to a sheet. Raises ValueError for what Excel refuses."""
    if not sheets:
        raise ValueError("A workbook needs at least one sheet.")
    book = Workbook()
    book.remove(book.active)
    for name, frame in sheets.items():
        check_sheet(name, frame)
        write_sheet(book.create_sheet(name), frame, formats or {}, [column for column in totals if column in frame])
    book.save(path)


def check_sheet(name, frame):
    if not 0 < len(name) <= 31 or re.search(r"[\[\]:*?/\\]", name):
        raise ValueError(f"A sheet can't be named {name!r}: use 1 to 31 characters, without []:*?/\\.")
    if len(frame) + 2 > MAX_ROWS:
        raise ValueError(f"The sheet {name!r} has {len(frame)} rows; Excel allows {MAX_ROWS}.")
    if not frame.columns.is_unique:
        raise ValueError(f"The sheet {name!r} has two columns of the same name.")


def write_sheet(sheet, frame, formats, totals):
    for number, column in enumerate(frame.columns, 1):
        is_number = pd.api.types.is_numeric_dtype(frame[column]) and not pd.api.types.is_bool_dtype(frame[column])
        cell = sheet.cell(1, number)
        set_value(cell, str(column))
        cell.font, cell.fill = BOLD, HEADER
        cell.alignment = Alignment(horizontal="right" if is_number else "left", vertical="top", wrap_text=True)
        widths = [len(str(column))]
        for row, value in enumerate(frame[column].tolist(), 2):
            cell = sheet.cell(row, number)
            set_value(cell, value)
            if column in formats:
                cell.number_format = formats[column]
            elif isinstance(value, pd.Timestamp):
                cell.number_format = "yyyy-mm-dd" if value == value.normalize() else "yyyy-mm-dd hh:mm"
            if row <= MEASURED_ROWS:
                widths.append(len(str(value)))
        sheet.column_dimensions[get_column_letter(number)].width = min(MAX_WIDTH, max(MIN_WIDTH, *widths) + 2)
    sheet.freeze_panes = "A2"
    if len(frame):
        sheet.auto_filter.ref = f"A1:{get_column_letter(len(frame.columns))}{len(frame) + 1}"
        write_totals(sheet, frame, formats, totals)


def write_totals(sheet, frame, formats, totals):
    last = len(frame) + 1
    for number, column in enumerate(frame.columns, 1):
        if totals:
            sheet.cell(last + 1, number).border = RULE
        if column in totals:
            letter = get_column_letter(number)
            cell = sheet.cell(last + 1, number, f"=SUM({letter}2:{letter}{last})")
            cell.font = BOLD
            if column in formats:
                cell.number_format = formats[column]


def set_value(cell, value):
    """Missing values stay empty, and text is never a formula."""
    if isinstance(value, (list, dict, set, tuple)):
        value = str(value)
    if value is None or pd.isna(value):
        return
    if isinstance(value, pd.Timestamp):
        value = value.tz_localize(None) if value.tzinfo else value
        value = value.to_pydatetime()
    cell.value = value
    if isinstance(value, str):
        cell.data_type = "s"
