"""The house stands: a room imports only from lower floors."""

import ast
from pathlib import Path

import pytest

import denoscope

SOURCE = Path(denoscope.__file__).parent
FLOORS = {
    "networks": 0,
    "schedules": 0,
    "data": 1,
    "pipelines": 1,
    "sampling": 1,
    "metrics": 3,
    "information": 3,
    "observer": 2,
    "training": 2,
    "reports": 4,
    "runs": 4,
    "cli": 5,
}
# Rooms of one floor may not import each other, but for these: (importer, imported).
NEIGHBOURS = {("pipelines", "data")}
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path.parent != SOURCE)


def imported_rooms(source: str) -> set[str]:
    """Rooms of denoscope that a module's text imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [node.module or ""]
        found |= {
            name.split(".")[1] for name in names if name.startswith("denoscope.") and name.split(".")[1] in FLOORS
        }
    return found


def test_every_room_has_a_floor() -> None:
    rooms = {path.relative_to(SOURCE).parts[0] for path in MODULES}
    assert rooms == set(FLOORS)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_imports_point_downwards(path: Path) -> None:
    room = path.relative_to(SOURCE).parts[0]
    for other in imported_rooms(path.read_text("utf-8")) - {room}:
        assert FLOORS[other] < FLOORS[room] or (room, other) in NEIGHBOURS, f"{room} imports {other}"


@pytest.mark.parametrize("room", ["reports", "runs"])
def test_top_floor_rooms_that_only_read_results_know_nothing_of_torch(room: str) -> None:
    for path in (SOURCE / room).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & {"torch", "diffusers", "transformers"}, path


def test_the_check_can_fail() -> None:
    assert imported_rooms("def f():\n    from denoscope.cli.main import app") == {"cli"}
    assert imported_rooms("import denoscope.observer.errors") == {"observer"}
