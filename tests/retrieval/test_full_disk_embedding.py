"""`parallelsearch embed` where the disk has room for the vectors and no more: one sentence, then the whole shard."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_disk import PAGE, fill, small_disk
from small_study import SHORT_ROWS, Study

from parallelsearch.cli import main
from parallelsearch.files import read_json

VECTORS = SHORT_ROWS * 64 * 2  # bytes


def test_a_shard_whose_disk_fills_up_is_made_once_there_is_room(
    short: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        out = disk / "embeddings"
        command = ["embed", str(short.corpus), str(short.encoder), str(out), "--device", "cpu"]
        filler = fill(disk, leave=-(-VECTORS // PAGE) * PAGE)
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 1
        said = capsys.readouterr().err
        assert said.startswith(f"parallelsearch: the disk of {out} is full: ") and said.count("\n") == 1
        assert [path.name for path in out.iterdir() if not path.name.startswith(".")] == []
        filler.unlink()
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == 0
        assert sorted(path.name for path in out.iterdir()) == ["shard-0-of-1.json", "shard-0-of-1.npy"]
        assert read_json(out / "shard-0-of-1.json")["rows"] == [0, SHORT_ROWS]
