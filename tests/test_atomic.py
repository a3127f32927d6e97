from pathlib import Path

import pytest

from kedge import InputError
from kedge.spaces.atomic import atomic_folder, atomic_path


def test_file_appears_only_on_success(tmp_path):
    target = tmp_path / "out.txt"
    with pytest.raises(KeyboardInterrupt), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with atomic_path(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
    assert target.read_text() == "whole"


def test_folder_is_replaced_whole_or_not_at_all(tmp_path):
    target = tmp_path / "run"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_folder(target) as temporary:
        (temporary / "new").write_text("half")
        raise KeyboardInterrupt
    assert [path.name for path in target.iterdir()] == ["old"]
    with atomic_folder(target) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(InputError, match="does not exist"), atomic_folder(tmp_path / "no" / "such"):
        pass


def test_an_interrupt_between_the_two_renames_restores_the_old_folder(tmp_path, monkeypatch):
    target = tmp_path / "run"
    target.mkdir()
    (target / "old").write_text("old")
    rename, calls = Path.rename, []

    def interrupted(self, to):
        calls.append(to)
        rename(self, to)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_folder(target) as temporary:
        (temporary / "new").write_text("new")
    assert [path.name for path in target.iterdir()] == ["old"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
