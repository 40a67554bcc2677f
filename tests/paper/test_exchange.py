"""A publication takes its place whole: one process at a time, and nobody else's folders are touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from goodness.cli import COMMANDS, main
from goodness.durable import copy_contents
from goodness.errors import RunError, UserError
from goodness.paper.exchange import BUILDING, OLD, alone_with, beside, put_in_place
from goodness.paper.published_page import make_way, require_folder
from goodness.runs.lock import acquire
from goodness.sweep.published import PUBLISHED, about_publication


def folder(path: Path, word: str) -> Path:
    path.mkdir()
    (path / PUBLISHED).write_text(f'{{"scale": "{word}"}}')
    return path


def test_a_second_is_kept_out_and_told_where_and_by_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pool").mkdir()
    with alone_with(tmp_path / "out"):
        assert main(["publish", str(tmp_path / "pool"), "--out", str(tmp_path / "out")]) == 2
        assert f"{tmp_path / 'out'} is in use by process {os.getpid()}" in capsys.readouterr().err.replace("\n", "")
        with alone_with(tmp_path / "other"):
            pass
    with alone_with(tmp_path / "out"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["pool"]


def test_a_lock_that_was_removed_while_one_waited_for_it_keeps_nobody_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[int] = []

    def acquire_after_removal(path: Path, folder: Path) -> int:
        lock = acquire(path, folder)
        if not removed:
            path.unlink()
        removed.append(lock)
        return lock

    monkeypatch.setattr("goodness.paper.exchange.acquire", acquire_after_removal)
    with alone_with(tmp_path / "out"), pytest.raises(UserError, match="is in use"):
        acquire(tmp_path / ".out.publish.lock")
    assert len(removed) == 2


@pytest.mark.parametrize("name", [".out.old", ".out.building", ".out.mine.old", ".other.0123abcd.old"])
def test_folders_with_names_of_others_stay(name: str, tmp_path: Path) -> None:
    mine = folder(tmp_path / name, "mine")
    out = folder(tmp_path / "out", "older")
    with alone_with(out):
        put_in_place(folder(beside(out, BUILDING), "newer"), out)
    assert about_publication(out) == {"scale": "newer"}
    assert about_publication(mine) == {"scale": "mine"}
    assert {path.name for path in tmp_path.iterdir()} == {name, "out"}
    out.rename(tmp_path / "elsewhere")
    with alone_with(out):
        assert not out.exists()


def test_what_a_killed_process_left_is_put_right(tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder(beside(out, OLD), "older")
    folder(beside(out, BUILDING), "half")
    with alone_with(out):
        assert about_publication(out) == {"scale": "older"}
    folder(beside(out, OLD), "older still")
    with alone_with(out):
        assert about_publication(out) == {"scale": "older"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_the_only_copy_is_not_removed_where_something_else_took_its_place(tmp_path: Path) -> None:
    old = folder(beside(tmp_path / "out", OLD), "older")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter").touch()
    with alone_with(tmp_path / "out"):
        pass
    assert about_publication(old) == {"scale": "older"}


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_a_stop_between_the_two_renames_leaves_the_older_one(
    trouble: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = folder(tmp_path / "out", "older")
    building = folder(beside(out, BUILDING), "newer")

    def rename(self: Path, target: Path) -> Path:
        if self == building:
            raise trouble
        return self.replace(target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises((KeyboardInterrupt, RunError)):
        put_in_place(building, out)
    assert about_publication(out) == {"scale": "older"}
    assert {path.name for path in tmp_path.iterdir()} == {"out", building.name}


@pytest.mark.parametrize("when", ["after the exchange", "by the next process"])
def test_a_stop_while_the_older_one_is_removed_never_brings_half_of_it_back(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = folder(tmp_path / "out", "older")
    (out / "tables").mkdir()

    def stopped(path: Path) -> None:
        (path / "tables").rmdir()  # half of it
        raise KeyboardInterrupt

    def remove() -> None:
        if when == "after the exchange":
            put_in_place(folder(beside(out, BUILDING), "newer"), out)
        out.rename(beside(out, OLD))  # as one leaves it that was killed after the exchange
        folder(out, "newer")
        with alone_with(out):
            pass

    with monkeypatch.context() as patched:
        patched.setattr("goodness.paper.exchange.remove_tree", stopped)
        with pytest.raises(KeyboardInterrupt):
            remove()
    assert about_publication(out) == {"scale": "newer"}
    shutil.rmtree(out)
    with alone_with(out):
        assert not out.exists()
    assert not list(tmp_path.iterdir())


def test_a_refused_publication_leaves_no_folders_above_it(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "there").mkdir()
    for out in (tmp_path / "new" / "deeper" / "out", tmp_path / "there" / "new" / "out"):
        assert main(["publish", str(tmp_path / "pool"), "--out", str(out)]) == 2
        assert not out.parent.exists()
    assert {path.name for path in tmp_path.rglob("*")} == {"pool", "there"}
    with alone_with(tmp_path / "new" / "out"):
        folder(tmp_path / "new" / "out", "newer")
    assert about_publication(tmp_path / "new" / "out") == {"scale": "newer"}


def test_a_place_without_a_name_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish", str(tmp_path), "--out", "/"]) == 2
    assert "--out names a folder" in " ".join(capsys.readouterr().err.split())


def test_a_copy_as_things_are_keeps_times_and_permissions(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "private").mkdir(parents=True)
    for path, mode in ((source / "private" / "script", 0o755), (source / "letter", 0o400)):
        path.write_text("mine")
        path.chmod(mode)
    (source / "private").chmod(0o500)
    for path in (source / "private" / "script", source / "letter", source / "private", source):
        os.utime(path, (1e9, 1e9))
    copy_contents(source, tmp_path / "copy", as_they_are=True)
    for name in (".", "letter", "private", "private/script"):
        found = (tmp_path / "copy" / name).stat()
        assert found.st_mtime == 1e9, name
        assert found.st_mode == (source / name).stat().st_mode | (0o700 if name == "private" else 0), name


def test_a_file_in_a_folders_place_is_named_and_stays(tmp_path: Path) -> None:
    (tmp_path / "tables").write_text("mine")
    (tmp_path / "README.md").mkdir()
    with pytest.raises(UserError, match="tables of the publication is a file"):
        require_folder(tmp_path / "tables")
    with pytest.raises(UserError, match=r"README\.md of the publication is a folder"):
        make_way(tmp_path / "README.md")
    assert (tmp_path / "tables").read_text() == "mine"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"scale": 3}'])
def test_a_damaged_publication_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / PUBLISHED).write_text(text)
    with pytest.raises((UserError, RunError), match=r"published\.json is not .*; restore it from a copy"):
        about_publication(tmp_path)


def test_only_commands_that_keep_checkpoints_speak_of_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    for command in ("publish", "train"):
        monkeypatch.setitem(COMMANDS, command, interrupted)
        assert main([command]) == 130
        assert ("checkpoint" in capsys.readouterr().err) == (command == "train")
