"""Downloads against a server of our own: resumed, verified, and never a bad file under a good name."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from goodness.data import download, sources
from goodness.data.dataset import Dataset, Raw, as_split, datasets
from goodness.data.download import RemoteFile, fetch
from goodness.errors import DataError, RunError

CONTENT = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8).tobytes()


class Server(ThreadingHTTPServer):
    """What it does with each request is set by the test; the ranges it was asked for are kept."""

    content = CONTENT
    ranges = True  # whether it honours Range
    cut: int | None = None  # close the connection after so many bytes of each answer
    status: int | None = None
    honest_length = True
    unsatisfied = False  # answer every range with 416
    shifted = 0  # answer a range that begins elsewhere
    asked: list[str | None]

    def address(self, name: str = "data.bin") -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        if server.status is not None:
            self.send_error(server.status)
            return
        if server.unsatisfied and wanted is not None:
            self.send_error(416)
            return
        start = 0
        if wanted is not None and server.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) + server.shifted
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(server.content) - 1}/{len(server.content)}")
        else:
            self.send_response(200)
        body = server.content[start:]
        if server.honest_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if server.cut is None else body[: server.cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = Server(("127.0.0.1", 0), Handler)
    running.asked = []
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def remote(*urls: str, content: bytes = CONTENT, path: str = "set/data.bin") -> RemoteFile:
    return RemoteFile(path=path, size=len(content), sha256=hashlib.sha256(content).hexdigest(), urls=urls)


def part(folder: Path) -> Path:
    return folder / "set" / "data.bin.part"


def test_a_whole_file_arrives_under_its_name_with_progress_to_the_end(server, tmp_path):
    seen: list[tuple[int, int]] = []
    path = fetch(remote(server.address()), tmp_path, lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "set" / "data.bin"
    assert path.read_bytes() == CONTENT
    assert [file.name for file in path.parent.iterdir()] == ["data.bin"]
    assert seen[-1] == (300_000, 300_000)
    assert seen == sorted(seen)


def test_a_file_that_is_there_is_verified_and_not_fetched_again(server, tmp_path):
    file = remote(server.address())
    fetch(file, tmp_path)
    fetch(file, tmp_path)
    assert len(server.asked) == 1


def test_an_interrupted_download_goes_on_where_it_stopped(server, tmp_path):
    def interrupt(done: int, total: int) -> None:
        if done > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(remote(server.address()), tmp_path, interrupt)
    have = part(tmp_path).stat().st_size
    assert 100_000 < have < 300_000
    assert fetch(remote(server.address()), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={have}-"]


def test_a_connection_that_keeps_breaking_is_resumed_as_long_as_it_helps(server, tmp_path):
    server.cut = 80_000
    assert fetch(remote(server.address()), tmp_path).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=80000-", "bytes=160000-", "bytes=240000-"]


def test_a_server_that_ignores_the_range_is_read_from_zero(server, tmp_path):
    server.ranges = False
    part(tmp_path).parent.mkdir()
    part(tmp_path).write_bytes(CONTENT[:1000])
    assert fetch(remote(server.address()), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_a_server_that_refuses_the_range_is_read_from_zero(server, tmp_path):
    server.unsatisfied = True
    part(tmp_path).parent.mkdir()
    part(tmp_path).write_bytes(CONTENT[:1000])
    assert fetch(remote(server.address()), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-", None]


def test_a_truncated_download_is_refused_kept_and_says_how_to_go_on(server, tmp_path):
    server.ranges = False
    server.cut = 123_456
    with pytest.raises(DataError, match=r"stopped after 123,456 of 300,000 bytes") as refusal:
        fetch(remote(server.address()), tmp_path)
    assert "123,456 bytes are kept" in str(refusal.value)
    assert part(tmp_path).read_bytes() == CONTENT[:123_456]
    assert not (tmp_path / "set" / "data.bin").exists()


def test_starting_over_leaves_nothing_of_the_earlier_attempt(server, tmp_path):
    server.ranges, server.cut = False, 1_000
    part(tmp_path).parent.mkdir()
    part(tmp_path).write_bytes(bytes(2_000))
    with pytest.raises(DataError, match="stopped after 1,000"):
        fetch(remote(server.address()), tmp_path)
    assert part(tmp_path).read_bytes() == CONTENT[:1_000]


def test_other_bytes_of_the_right_length_are_refused_with_both_hashes_and_kept(server, tmp_path):
    server.content = bytes(len(CONTENT))
    with pytest.raises(DataError) as refusal:
        fetch(remote(server.address()), tmp_path)
    assert hashlib.sha256(CONTENT).hexdigest() in str(refusal.value)
    assert hashlib.sha256(server.content).hexdigest() in str(refusal.value)
    assert part(tmp_path).read_bytes() == server.content
    assert not (tmp_path / "set" / "data.bin").exists()


def test_a_bad_file_under_the_good_name_is_refused_and_left_alone(server, tmp_path):
    (tmp_path / "set").mkdir()
    path = tmp_path / "set" / "data.bin"
    path.write_bytes(CONTENT[:-1])
    with pytest.raises(DataError, match=r"has 299,999 bytes, expected 300,000"):
        fetch(remote(server.address()), tmp_path)
    path.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(DataError, match="SHA-256"):
        fetch(remote(server.address()), tmp_path)
    assert path.read_bytes()[-1:] == b"?"
    assert server.asked == []


@pytest.mark.parametrize("honest", [True, False])
def test_a_page_of_another_length_is_never_taken_for_the_file(server, tmp_path, honest):
    server.content, server.honest_length = b"<html>sign in</html>", honest
    with pytest.raises(DataError, match=r"offers 20 bytes, expected 300,000|stopped after 20 of 300,000"):
        fetch(remote(server.address()), tmp_path)


def test_a_page_that_admits_its_length_leaves_what_was_received(server, tmp_path):
    server.content, server.ranges = b"<html>sign in</html>", False
    part(tmp_path).parent.mkdir()
    part(tmp_path).write_bytes(CONTENT[:1000])
    with pytest.raises(DataError, match="offers 20 bytes"):
        fetch(remote(server.address()), tmp_path)
    assert part(tmp_path).read_bytes() == CONTENT[:1000]


def test_a_server_that_sends_without_end_is_cut_off(server, tmp_path):
    server.content, server.honest_length = CONTENT * 3, False
    with pytest.raises(DataError, match="sends more than the expected 300,000"):
        fetch(remote(server.address()), tmp_path)
    assert part(tmp_path).stat().st_size <= 300_000


def test_a_range_that_begins_elsewhere_is_not_appended(server, tmp_path):
    server.shifted = 10
    part(tmp_path).parent.mkdir()
    part(tmp_path).write_bytes(CONTENT[:1000])
    with pytest.raises(DataError, match=r"asked for bytes from 1,000 on"):
        fetch(remote(server.address()), tmp_path)
    assert part(tmp_path).read_bytes() == CONTENT[:1000]


def test_the_next_mirror_is_tried_and_goes_on_with_the_same_part(server, tmp_path):
    other = Server(("127.0.0.1", 0), Handler)
    other.asked, other.cut, other.ranges = [], 50_000, False
    thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        file = remote("http://127.0.0.1:9/closed", other.address(), server.address())
        assert fetch(file, tmp_path).read_bytes() == CONTENT
    finally:
        other.shutdown()
        thread.join()
        other.server_close()
    assert server.asked == ["bytes=50000-"]


@pytest.mark.parametrize("status", [403, 404, 500])
def test_a_refusing_server_is_quoted(server, tmp_path, status):
    server.status = status
    with pytest.raises(DataError, match=f"HTTP {status}"):
        fetch(remote(server.address()), tmp_path)
    assert not part(tmp_path).exists()


def test_without_a_network_the_error_says_what_to_put_where(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    file = remote("http://127.0.0.1:9/data.bin")
    with pytest.raises(DataError) as refusal:
        fetch(file, tmp_path)
    for fact in ("data.bin", file.urls[0], str(tmp_path / "set"), "300,000 bytes", file.sha256):
        assert fact in str(refusal.value)


def test_addresses_that_are_not_http_are_not_opened(tmp_path):
    (tmp_path / "secret").write_bytes(CONTENT)
    with pytest.raises(DataError, match="not an http or https address"):
        fetch(remote(f"file://{tmp_path / 'secret'}"), tmp_path)


def test_a_part_longer_than_the_whole_is_refused(server, tmp_path):
    part(tmp_path).parent.mkdir()
    part(tmp_path).write_bytes(CONTENT + b"x")
    with pytest.raises(DataError, match=r"300,001 bytes, more than the whole 300,000"):
        fetch(remote(server.address()), tmp_path)


def test_a_full_disk_is_noticed_before_the_first_byte(server, tmp_path, monkeypatch):
    class Usage:
        free = 1000

    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: Usage)
    with pytest.raises(RunError, match=r"has room for 1,000 bytes; data.bin needs 300,000 more"):
        fetch(remote(server.address()), tmp_path)
    assert server.asked == []


def test_two_downloads_of_one_file_do_not_write_into_each_other(server, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    part(tmp_path).parent.mkdir()
    with part(tmp_path).open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is downloading"):
            fetch(remote(server.address()), tmp_path)


def test_get_fetches_every_file_of_a_data_set_with_one_progress(server, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "_parts", dict(datasets._parts))

    @datasets.register("two-files")
    class TwoFiles(Dataset):
        files = (
            remote(server.address("a"), path="two/a"),
            remote(server.address("b"), path="two/b"),
        )

        def read(self, folder: Path) -> Raw:
            images = np.frombuffer((folder / "two" / "a").read_bytes()[:128], dtype=np.uint8).reshape(8, 1, 4, 4)
            split = as_split(images, [0, 1] * 4)
            return Raw(classes=("even", "odd"), train=split, test=split, provenance="served")

    seen: list[tuple[int, int]] = []
    sources.get("two-files", tmp_path, lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (600_000, 600_000)
    assert sources.load("two-files", data_dir=tmp_path).shape == (1, 4, 4)
    (tmp_path / "two" / "b").write_bytes(bytes(300_000))
    with pytest.raises(DataError, match="not what was published"):
        sources.check("two-files", tmp_path)
