"""The parcel of a device session, and a session that installs from it, with stand-in tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"

pytestmark = pytest.mark.skipif(not SCRIPTS.is_dir(), reason="no checkout: scripts do not travel")

# Python of a machine that packs: makes a folder with a pip, which makes a wheel, and a cmake, which
# makes the driver.
PYTHON = """
case "$1 $2" in
  "-m venv")
    mkdir -p "$3/bin"
    cat >"$3/bin/pip" <<'PIP'
#!/usr/bin/env bash
echo "pip $*" >>"$CALLS"
[ "$1" = wheel ] || exit 0
for word in "$@"; do
  [ "$before" = -w ] && echo operators >"$word/dgbench-0.1-${WHEEL_TAG:-cp312-abi3}-linux.whl"
  case $word in build-dir=*) mkdir -p "${word#build-dir=}" ;; esac
  before=$word
done
PIP
    cat >"$3/bin/cmake" <<'CMAKE'
#!/usr/bin/env bash
echo "cmake $*" >>"$CALLS"
echo driver >"$2/kernel_driver" && chmod +x "$2/kernel_driver"
CMAKE
    chmod +x "$3/bin/pip" "$3/bin/cmake"
    ;;
esac
"""


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A repository of the scripts alone, and tools beside it."""
    root = tmp_path / "checkout"
    shutil.copytree(SCRIPTS, root / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (root / ".gitignore").write_text("/build/\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(root)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    (tmp_path / "tools").mkdir()
    put_tool(tmp_path, "packing-python", PYTHON)
    put_tool(tmp_path, "no-python", "exit 1")
    put_tool(tmp_path, "downloading", 'echo "download $*" >>"$CALLS"')
    put_tool(tmp_path, "nvidia-smi", "echo GPU")
    return root


def put_tool(tmp_path, name: str, body: str) -> None:
    tool = tmp_path / "tools" / name
    tool.write_text(f"#!/usr/bin/env bash\n{body}\n")
    tool.chmod(0o755)


def run(root: Path, *command: str, **settings: str) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("DGBENCH_")}
    tools = f"{root.parent / 'tools'}{os.pathsep}{os.environ['PATH']}"
    env = kept | {"PATH": tools, "CALLS": str(root.parent / "calls")} | settings
    return subprocess.run(
        ["bash", *command], cwd=root, env=env, capture_output=True, text=True, timeout=60
    )


def pack(root: Path, **settings: str) -> subprocess.CompletedProcess:
    usual = {"PYTHON": "packing-python", "PYTHON_OF_PIP": "downloading"}
    return run(root, "scripts/gpu_pack.sh", **(usual | settings))


def calls(root: Path) -> list[str]:
    path = root.parent / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_parcel_holds_wheel_driver_data_and_commit(checkout, tmp_path) -> None:
    for name in ("small", "other"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "edges").write_text(name)
    done = pack(checkout, DGBENCH_DATA=str(tmp_path / "data"), DGBENCH_PACK_DATA="small absent")
    assert done.returncode == 0, done.stderr
    assert "no absent in DGBENCH_DATA" in done.stderr
    parcel = checkout / "build" / "gpu_parcel"
    listed = {line.split()[1] for line in (parcel / "MANIFEST").read_text().splitlines()}
    wheel = "wheels/dgbench-0.1-cp312-abi3-linux.whl"
    assert listed - {"MANIFEST"} == {"COMMIT", "kernel_driver", wheel, "data/small/edges"}
    assert os.access(parcel / "kernel_driver", os.X_OK)
    (built,) = (line for line in calls(checkout) if line.startswith("pip wheel"))
    assert "wheel.py-api=cp312" in built
    assert "DGBENCH_PORTABLE=ON" in built
    assert "DGBENCH_CUDA=90" in built


SESSION_PYTHON = """
echo "$*" >>"$CALLS"
case "$*" in *device_session*) echo "commit $DGBENCH_COMMIT"; cat "$DGBENCH_DRIVER" ;; esac
"""


def test_a_session_installs_from_the_parcel_once(checkout, tmp_path) -> None:
    put_tool(tmp_path, "measuring-python", SESSION_PYTHON)
    assert pack(checkout).returncode == 0
    (tmp_path / "calls").unlink()
    commit = (checkout / "build" / "gpu_parcel" / "COMMIT").read_text().strip()

    def session() -> list[str]:
        """Run one call and return the arguments of its pip calls."""
        before = len(calls(checkout))
        done = run(checkout, "scripts/gpu_run.sh", "session", PYTHON="measuring-python")
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"commit {commit}\ndriver" in done.stdout
        return [line for line in calls(checkout)[before:] if "pip install" in line]

    (first,) = session()
    assert "build/gpu_parcel/wheels/dgbench-0.1-cp312-abi3-linux.whl" in first
    assert not session()  # the same commit and wheels
    wheel = checkout / "build/gpu_parcel/wheels/dgbench-0.1-cp312-abi3-linux.whl"
    wheel.write_text("other operators\n")
    assert len(session()) == 1
