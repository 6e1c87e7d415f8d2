"""Reads a table and says what it contains. Runs in the sandbox, with pandas."""

import os
import warnings

import pandas as pd

MAX_COLUMNS = 60
"""Columns that are described one by one."""


def read_table(path, sheet=0):
    """The data frame of a CSV, JSON or Excel file, with dates and numbers. Raises ValueError for other files."""
    kind = os.path.splitext(path)[1].lower()
    if kind in (".csv", ".tsv", ".txt"):
        table = pd.read_csv(path, sep=None, engine="python")
    elif kind in (".xlsx", ".xlsm"):
        table = pd.read_excel(path, sheet_name=sheet)
    elif kind == ".json":
        table = pd.read_json(path)
    else:
        raise ValueError(f"{os.path.basename(path)} is no table that can be read: use CSV, JSON or Excel.")
    return table.apply(_convert)


def profile(table):
    """One line for each column, then the problems."""
    lines = [f"{len(table)} rows, {len(table.columns)} columns"]
    problems = []
    for name in list(table.columns)[:MAX_COLUMNS]:
        column = table[name]
        missing = int(column.isna().sum())
        lines.append(f"- {name}: {_describe(column)}")
        if missing:
            problems.append(f"{name}: {missing} missing values")
        if _is_text(column):
            problems += _find_text_problems(name, column.dropna().astype(str))
        elif pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            low, high = column.quantile(0.25), column.quantile(0.75)
            far = int(((column < low - 3 * (high - low)) | (column > high + 3 * (high - low))).sum())
            if far:
                problems.append(f"{name}: {far} values far from the others, from {column.min()} to {column.max()}")
    if twice := int(table.duplicated().sum()):
        problems.append(f"{twice} duplicate rows")
    return "\n".join([*lines, "Problems:", *(f"- {each}" for each in problems or ["none found"])])


def _convert(column):
    if not _is_text(column) or column.dropna().empty:
        return column
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for convert in (pd.to_numeric, pd.to_datetime):
            try:
                return convert(column)
            except (ValueError, TypeError, OverflowError):
                continue
    return column


def _describe(column):
    kept = column.dropna()
    if kept.empty:
        return "empty"
    if pd.api.types.is_bool_dtype(column) or _is_text(column):
        common = kept.astype(str).value_counts()
        shown = ", ".join(f"{value[:40]} ({count})" for value, count in common.head(5).items())
        return f"text, {len(common)} different: {shown}"
    kind = "dates" if pd.api.types.is_datetime64_any_dtype(column) else "numbers"
    mean = "" if kind == "dates" else f", mean {kept.mean():.6g}, sum {kept.sum():.10g}"
    return f"{kind} from {kept.min()} to {kept.max()}{mean}"


def _find_text_problems(name, kept):
    problems = []
    numbers = pd.to_numeric(kept, errors="coerce")
    if 0 < numbers.isna().sum() < len(kept) / 2:
        problems.append(
            f"{name}: {int(numbers.isna().sum())} texts among numbers, such as {kept[numbers.isna()].iloc[0]!r}"
        )
    names = kept.drop_duplicates()
    if twice := len(names) - names.str.strip().str.casefold().nunique():
        problems.append(f"{name}: {twice} values differ only in spaces or capitals")
    return problems


def _is_text(column):
    return pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)
