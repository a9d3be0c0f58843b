"""Make the helpers of these tests importable, and choose the engine that is tested."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
for folder in (HERE, HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(scope="module", autouse=True)
def compiled_engine() -> Iterator[None]:
    """Test the compiled engine unless a test says otherwise: small work would never reach it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CORDCAL_ENGINE", "compiled")
        yield
