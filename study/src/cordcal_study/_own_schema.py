"""The tables of a study file that name calibrators to import."""

from __future__ import annotations

from cordcal._errors import InputError
from cordcal.calibrators import available
from cordcal.calibrators.adapters import Imported, adapted, not_allowed
from cordcal_study._reader import Reader


def read_own(reader: Reader, *, allow_import: bool) -> dict[str, Imported]:
    """Return the calibrators of the tables [calibrator.name]; each is made once, as a trial."""
    tables = reader.content.get("calibrator", {})
    if not isinstance(tables, dict):
        reader.fail(("calibrator",), "calibrators to import are tables; write [calibrator.mine]")
    own: dict[str, Imported] = {}
    for name, table in tables.items():
        place = ("calibrator", name)
        if not isinstance(table, dict) or not isinstance(table.get("class"), str):
            reader.fail(place, f'write [calibrator.{name}] and class = "module:Class" below')
        if name in available():
            reader.fail(place, f"there is a calibrator {name!r} already; choose another name")
        params = {key: value for key, value in table.items() if key != "class"}
        try:
            if not allow_import:
                raise not_allowed(table["class"], "class", "--allow-import (allow_import=True)")
            own[name] = Imported(Imported.of(table["class"], "class").path, params)
            adapted(own[name].make("class"), "logits", "class")
        except InputError as error:
            reader.fail(place, str(error))
    return own
