"""`passback replay`: what it refuses, and how it ends."""

from pathlib import Path

import httpx
import pytest
from tests.support.commands import passback
from tests.support.server import replaying

from passback.cli import EXIT_USAGE, main


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--speed", "-1"], "argument --speed: '-1' is not a number of 0 or more"),
        (["--speed", "inf"], "argument --speed: 'inf' is not a number of 0 or more"),
        (["--speed", "fast"], "argument --speed: 'fast' is not a number of 0 or more"),
        (["--port", "65536"], "argument --port: '65536' is not a number from 0 to 65535"),
        (["--port", "x"], "argument --port: 'x' is not a number from 0 to 65535"),
        ([], "the following arguments are required: FILE"),
    ],
)
def test_a_replay_that_cannot_be_is_told(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = ["run.json"] if arguments else []
    with pytest.raises(SystemExit, match=str(EXIT_USAGE)):
        main(["replay", *arguments, *file])
    assert told in capsys.readouterr().err


def test_a_file_that_is_no_recording_is_told(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"format": "passback-run", "version": 7}')
    done = passback("replay", "run.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert done.stderr == "passback: run.json: of version 7; this passback reads version 1\n"


_RUN = """{"format": "passback-run", "version": 1, "exchanges": [{
  "request": {"method": "POST", "path": "/send-message", "body": {"messages": []}},
  "response": {"status": 200, "headers": {"x-run-id": "run_1"}},
  "frames": [{"at": 0, "id": "run_1.1-1", "data": "[DONE]"}]}]}"""


@pytest.mark.anyio
async def test_a_replay_needs_no_settings_and_stops_cleanly(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(_RUN)
    async with replaying(file) as url, httpx.AsyncClient(base_url=url) as client:
        answer = await client.post("/send-message", json={"messages": []})
        port = url.rpartition(":")[2]
        taken = passback("replay", str(file), "--port", port, PASSBACK_PORT="nonsense")
    assert answer.text == ": conversation replay\n\nid: run_1.1-1\ndata: [DONE]\n\n"
    assert taken.returncode == EXIT_USAGE
    assert taken.stderr.startswith("passback: --port: cannot listen: Address already in use")
