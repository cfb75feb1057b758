"""The sdist and the wheel, built from the repository; and the wheel in an environment of its own, without a clone beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
import time
import urllib.request
import zipfile
from pathlib import Path

import pytest

from tests.serve.conftest import free_port

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "build", "--outdir", folder, ROOT], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir()], check=True)
    return folder


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the commands of a new environment that holds the wheel and what it depends on."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    _install(place / "bin", built, "")
    return place / "bin"


def _install(commands: Path, built: Path, extras: str) -> None:
    (wheel,) = built.glob("*.whl")
    pip = [commands / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "-c", ROOT / "constraints.txt", f"{wheel}{extras}"], check=True)


def test_every_file_of_the_package_is_in_the_sdist_and_the_wheel(built: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "headstart"], cwd=ROOT, check=True, capture_output=True, text=True)
    files = set(listed.stdout.split("\n")[:-1])
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        assert files - set(wheel.namelist()) == set()
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {*files, "LICENSE", "README.md", "pyproject.toml"} - names == set()


def test_the_wheel_alone_runs_the_demo_and_predicts_and_with_its_extra_serves(
    built: Path, environment: Path, tmp_path: Path
) -> None:
    def headstart(*words: str) -> str:
        done = subprocess.run([environment / "headstart", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    answer = json.loads(headstart("demo", "--quick", "--json", "--quiet"))
    assert {arm["name"] for arm in answer["arms"]} == {"majority", "tfidf", "scratch", "full"}
    run = "runs/demo-quick/study/cells/full-masked~all~0"
    assert "positive" in headstart("predict", run, "a warm film .", "--json")
    refused = subprocess.run([environment / "headstart", "serve"], cwd=tmp_path, capture_output=True, text=True)
    assert refused.returncode == 4
    assert "pip install 'headstart[serve]'" in refused.stderr
    _install(environment, built, "[serve]")
    port = free_port()
    server = subprocess.Popen([environment / "headstart", "serve", "runs", "--port", str(port)], cwd=tmp_path)
    try:
        for _ in range(240):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as health:
                    assert health.status == 200
                    break
            except OSError:
                time.sleep(0.25)
        else:
            raise AssertionError("the server does not answer")
    finally:
        server.terminate()
        assert server.wait(30) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
