"""Programs that attack: each is contained and scored invalid with its reason, and the next call meets none of it."""

import errno
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from without import needs

from esopt_jax.errors import EsoptError
from esopt_jax.tools import sandbox_command, syscalls
from esopt_jax.tools.sandbox import Done, Invalid, Limits, Sandbox

pytestmark = needs("sandbox")
LIMITS = Limits(cpu_s=1, wall_s=60, output_bytes=2**20, file_bytes=2**22, processes=6)
RUNNER = """
import numpy as np

def run(program, inputs):
    return {"answer": np.sort(program.answer(inputs["x"]))}
"""
HONEST = "import numpy as np\ndef answer(x):\n    return np.sin(x) + x.sum()"
X = np.linspace(-1.0, 2.0, 7)
EXPECTED = np.sort(np.sin(X) + X.sum())


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(LIMITS) as opened:
        yield opened


def _program(body):
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return f"import ctypes, os, signal, subprocess, sys, threading, time\nimport numpy as np\ndef answer(x):\n{lines}\n"


def _run(sandbox, body):
    return sandbox.run(_program(body), RUNNER, {"x": X})


def _assert_honest(sandbox):
    result = sandbox.run(HONEST, RUNNER, {"x": X})
    assert isinstance(result, Done), result
    np.testing.assert_array_equal(result.outputs["answer"], EXPECTED)


def _assert_invalid(sandbox, body, reason):
    result = _run(sandbox, body)
    assert isinstance(result, Invalid) and reason in result.reason, result
    assert "\n" not in result.reason and len(result.reason) < 600
    _assert_honest(sandbox)
    return result


INVALID = {
    "infinite loop": ("while True: pass", "used more than 1 s of CPU time"),
    "loop that ignores the signal": (
        "signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass",
        "used more than 1 s of CPU time",
    ),
    "10 GB": ("return np.ones(10 * 2**30 // 8)", "MemoryError: Unable to allocate"),
    "10 GB by mmap": ("import mmap\nmmap.mmap(-1, 10 * 2**30)", "[Errno 12] Cannot allocate memory"),
    "endless output": ("while True: print('x' * 1000)", "printed more than 1048576 bytes"),
    "endless output of bytes": ("while True: os.write(2, bytes(range(256)))", "printed more than 1048576 bytes"),
    "a large answer": ("return np.zeros(2**18)", "returned more than 1048576 bytes"),
    "open socket": (
        "import socket\nsocket.create_connection(('192.0.2.1', 80), 2)",
        "[Errno 101] Network is unreachable",
    ),
    "write outside": ("open('/usr/here', 'w')", "[Errno 30] Read-only file system"),
    "write into the root": ("open('/here', 'w')", "OSError: [Errno 30]"),
    "write into the packages": ("open(np.__file__, 'a')", f"[Errno {13 if os.geteuid() == 0 else 30}]"),
    "write to the devices": ("os.mkdir('/dev/here')", "[Errno 30] Read-only file system"),
    "a symlink out": ("os.symlink('/etc/passwd', 'here')\nopen('here').read()", "FileNotFoundError: [Errno 2]"),
    "a 1 GB file": (
        "with open('large', 'wb') as f:\n    while True: f.write(bytes(2**20))",
        "[Errno 27] File too large",
    ),
    "many files": ("for i in range(10**6): open(str(i), 'w').close()", "[Errno 28] No space left on device"),
    "many full files": (
        "for i in range(8):\n    with open(str(i), 'wb') as f: f.write(bytes(2**20))",
        "[Errno 28] No space left on device",
    ),
    "sys.exit": ("sys.exit(3)", "SystemExit: 3"),
    "os._exit": ("os._exit(0)", "ended with exit code 0 before it answered"),
    "segmentation fault": ("ctypes.string_at(0)", "was ended by SIGSEGV before it answered"),
    "a signal without a name": ("os.kill(os.getpid(), 45)", "was ended by signal 45 before it answered"),
    "abort": ("os.abort()", "before it answered"),
    "missing module": ("import torch_of_nobody", "ModuleNotFoundError: No module named 'torch_of_nobody' (line 4"),
    "the project as a module": ("import esopt_jax.errors", "No module named 'esopt_jax"),
    "recursion": ("return answer(x)", "RecursionError: maximum recursion depth exceeded"),
    "deep recursion": ("sys.setrecursionlimit(10**9)\nreturn answer(x)", ""),
    "huge integers": ("return [10**100, 1]", "answer: an array of object; allowed: float64"),
    "strings": ("return ['a']", "answer: an array of str"),
    "ragged": ("return [[1], [1, 2]]", "ValueError: setting an array element with a sequence"),
    "wrong shape": (
        "return np.concatenate([x, np.zeros((2, 2))])",
        "ValueError: all the input arrays must have same number",
    ),
    "exception that cannot be shown": (
        "class E(Exception):\n    def __str__(self): raise self\nraise E",
        "before it answered",
    ),
    "exception of many lines": ("raise ValueError('a\\nb\\x1b[31m\\n' * 1000)", "ValueError: a b?[31m a b"),
    "surrogates in a reason": ("raise ValueError('\\udcff\\ud800')", "ValueError: ??"),
    "interrupt": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
}


@pytest.mark.parametrize("name", INVALID)
def test_an_attack_is_invalid_for_its_reason_and_the_next_call_is_right(sandbox, name):
    _assert_invalid(sandbox, *INVALID[name])


CODES = {
    "syntax error": ("def answer(x:\n    return x", "SyntaxError: '(' was never closed"),
    "null bytes": ("x = 1\0", "SyntaxError: source code string cannot contain null bytes"),
    "not UTF-8": ("x = '\udcff'", "UnicodeEncodeError"),
    "another encoding": ("# coding: utf-7\nx = 1", "has no attribute 'answer'"),
    "nesting": ("x = " + "(" * 10_000 + ")" * 10_000, "SyntaxError: too many nested parentheses"),
    "empty": ("", "AttributeError: module 'program' has no attribute 'answer'"),
}


@pytest.mark.parametrize("name", CODES)
def test_source_that_does_not_compile_or_defines_nothing_is_invalid(sandbox, name):
    code, reason = CODES[name]
    result = sandbox.run(code, RUNNER, {"x": X})
    assert isinstance(result, Invalid) and reason in result.reason, result
    _assert_honest(sandbox)


def test_sleep_is_stopped_by_the_clock():
    with Sandbox(Limits(wall_s=0.5)) as opened:
        result = _assert_invalid(opened, "time.sleep(1000)", "took longer than 0.5 s by the clock")
        assert result.cpu_s < 0.5


def test_cpu_time_counts_the_children_of_a_program_too(sandbox):
    body = """
def burn():
    end = time.process_time() + 0.5
    while time.process_time() < end: pass
for _ in range(3):
    if os.fork() == 0:
        burn()
        os._exit(0)
for _ in range(3): os.wait()
return x
"""
    _assert_invalid(sandbox, body, "used more than 1 s of CPU time")


def test_cpu_time_counts_children_that_nobody_waits_for(sandbox):
    body = """
read, write = os.pipe()
for _ in range(3):
    if os.fork() == 0:
        end = time.process_time() + 0.5
        while time.process_time() < end: pass
        os.write(write, b'done')
        time.sleep(1000)
for _ in range(3): os.read(read, 4)
return x
"""
    _assert_invalid(sandbox, body, "used more than 1 s of CPU time")


def test_a_fork_bomb_stops_at_the_limit_and_leaves_nothing():
    with Sandbox(Limits(cpu_s=0.5, processes=3)) as opened:
        _assert_bombs_contained(opened)


def _assert_bombs_contained(sandbox):
    body = """
count = 0
try:
    while True:
        if os.fork() == 0: time.sleep(1000)
        count += 1
except BlockingIOError:
    return np.array([count])
"""
    result = _run(sandbox, body)
    assert isinstance(result, Done) and result.outputs["answer"].tolist() == [sandbox.limits.processes - 1]
    _assert_invalid(sandbox, "while True:\n    try: os.fork()\n    except OSError: pass", "CPU time")
    assert _processes_of(sandbox) == []


def _processes_of(sandbox):
    """Those that run as the user of the slot."""
    uid = _config(sandbox)["uid"]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and uid is not None:
            try:
                if entry.stat().st_uid == uid:
                    found.append(int(entry.name))
            except FileNotFoundError:
                continue
    return found


def _config(sandbox):
    return json.loads(sandbox._worker._process.args[-1])


def test_threads_count_as_processes(sandbox):
    body = "for _ in range(50): threading.Thread(target=time.sleep, args=(100,), daemon=True).start()"
    _assert_invalid(sandbox, body, "RuntimeError: can't start new thread")


LEFT_BEHIND = {
    "thread": "threading.Thread(target=time.sleep, args=(1000,)).start()",
    "child": "if os.fork() == 0: time.sleep(1000)",
    "daemon": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for name in ('SIGTERM', 'SIGINT', 'SIGHUP'): signal.signal(getattr(signal, name), signal.SIG_IGN)
        os.setsid()
        time.sleep(1000)
    os._exit(0)
os.wait()
""",
    "command": "subprocess.Popen(['sleep', '1000'], start_new_session=True)",
}


@pytest.mark.parametrize("name", LEFT_BEHIND)
def test_what_outlives_the_call_is_ended_with_it(sandbox, name):
    start = time.monotonic()
    result = _run(sandbox, LEFT_BEHIND[name] + "\nreturn x")
    assert isinstance(result, Done)
    assert time.monotonic() - start < 30
    assert _processes_of(sandbox) == []
    _assert_honest(sandbox)


KILLS = {
    "parent": "os.kill(os.getppid(), signal.SIGKILL)",
    "group": "signal.signal(15, lambda *_: None)\nos.killpg(0, 15)",
    "all": "os.kill(-1, signal.SIGKILL)",
    "low numbers": """
for pid in range(1, 200):
    try: pid == os.getpid() or os.kill(pid, signal.SIGKILL)
    except OSError: pass
""",
    "trace": "ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0)",
}


@pytest.mark.parametrize("name", KILLS)
def test_nobody_else_can_be_killed(sandbox, name):
    worker = sandbox._worker
    _run(sandbox, KILLS[name].strip() + "\nreturn x")
    _assert_honest(sandbox)
    assert sandbox._worker is worker  # not started anew


PATCHES = {
    "function": "np.sin = np.cos = np.sort = lambda x: x * 0\nimport numpy.random\nnp.random.seed = None",
    "builtins": "import builtins\nbuiltins.len = builtins.sorted = builtins.exec = lambda *a: 1",
    "modules": "sys.modules.clear()\nsys.path[:] = [os.getcwd()]\nsys.meta_path.clear()",
    "memory": "v = np.frombuffer((ctypes.c_char * 8).from_address(id(1)), 'u8')\nctypes.memset(id(1) + 24, 7, 1)",
    "files": "open('numpy.py', 'w').write('raise Exception')\nos.mkdir('a')\nos.chmod('a', 0)\nos.chmod('.', 0)",
    "signals": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.umask(0o777)\nos.chdir('/')",
}


@pytest.mark.parametrize("name", PATCHES)
def test_nothing_that_a_program_changes_is_there_for_the_next(sandbox, name):
    _run(sandbox, PATCHES[name] + "\nreturn x")
    seen = _run(
        sandbox, "assert not os.listdir() and os.getcwd() == os.environ['HOME'] == os.environ['TMPDIR']\nreturn x"
    )
    assert isinstance(seen, Done), seen
    _assert_honest(sandbox)


REFUSALS = {
    "shared memory": "libc.shmget(4711, 4096, 0o1666)",
    "memory in a file": "libc.memfd_create(b'a', 0)",
    "keyring": "libc.syscall(NUMBERS['add_key'], b'user', b'a', b'b', 1, -4)",
    "a user namespace": "libc.unshare(0x10000000)",
    "a user namespace by clone": "libc.syscall(NUMBERS['clone'], 0x10000000 | 17, 0, 0, 0, 0)",
    "clone3": "libc.syscall(435, 0, 0)",
    "tracing": "libc.ptrace(0, 0, 0, 0)",
}


@pytest.mark.skipif(platform.machine() not in syscalls.REFUSED, reason="no filter for this machine")
@pytest.mark.parametrize("name", REFUSALS)
def test_the_kernel_refuses_what_no_program_needs(sandbox, name):
    numbers = syscalls.REFUSED[platform.machine()] | {"clone": syscalls._MACHINES[platform.machine()][1]}
    refused = errno.ENOSYS if name == "clone3" else errno.EPERM
    body = f"""
libc = ctypes.CDLL(None, use_errno=True)
NUMBERS = {numbers}
assert {REFUSALS[name]} == -1
return np.array([ctypes.get_errno()])
"""
    result = _run(sandbox, body)
    assert isinstance(result, Done) and result.outputs["answer"].tolist() == [refused], result


def test_no_secret_and_no_file_of_the_project_can_be_read(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    (tmp_path / "answers").write_text("42")
    here = [str(Path(__file__)), str(Path(sandbox_command.__file__)), str(tmp_path / "answers")]
    here += ["/etc/passwd", "/etc/shadow", "/proc/1/environ", "/proc/self/environ", str(Path.home() / ".bashrc")]
    body = f"""
assert not [name for name, value in os.environ.items() if 'secret' in value or 'KEY' in name], os.environ
for path in {here!r}: assert not os.path.exists(path), path
seen = sorted(name for name in os.listdir('/') if name not in ('usr', 'bin', 'lib', 'lib64', 'dev', 'etc', 'tmp'))
print(seen, os.listdir('/etc'), os.listdir('/dev'), os.listdir('/sandboxed'))
return x
"""
    with Sandbox(LIMITS) as opened:
        result = _run(opened, body)
    assert isinstance(result, Done), result
    for name in ("proc", "sys", "run", "var", "passwd", "shm", "sandbox.py"):
        assert f"'{name}'" not in result.printed


def test_the_user_is_nobody_without_privileges(sandbox):
    body = """
libc = ctypes.CDLL(None, use_errno=True)
assert libc.mount(b'none', b'/tmp', b'tmpfs', 0, None) != 0
assert libc.unshare(0x00020000) != 0
assert libc.prctl(39, 0, 0, 0, 0) == 1  # no new privileges
for name in ('setuid', 'setgid'):
    try: getattr(os, name)(0)
    except PermissionError: continue
    assert os.getuid() != 0
try: os.chroot('/tmp')
except PermissionError: return x
"""
    assert isinstance(_run(sandbox, body), Done)


def test_only_the_pipes_of_the_call_are_open(sandbox):
    body = """
opened = []
for fd in range(256):
    try: os.fstat(fd)
    except OSError: continue
    opened.append(fd)
return np.array(opened)
"""
    assert _run(sandbox, body).outputs["answer"].tolist() == [0, 1, 2, 3]


FORGED = {
    "garbage": "os.write(3, b'garbage' * 100)",
    "huge lengths": "os.write(3, b'\\xff' * 12)",
    "the end": "os.close(3)",
    "nothing": "os.dup2(0, 3)",
}


@pytest.mark.parametrize("name", FORGED)
def test_garbage_in_the_pipe_of_the_answer_is_invalid(sandbox, name):
    _assert_invalid(sandbox, FORGED[name] + "\nreturn x", "")


def test_a_forged_answer_is_only_ever_the_answer_of_its_own_call(sandbox):
    body = """
import json, struct
def frame(header, payload):
    text = json.dumps(header).encode()
    return struct.pack('<IQ', len(text), len(payload)) + text + payload
spec = {'name': 'answer', 'dtype': 'float64', 'shape': [1]}
forged = frame({'call': 10**6, 'reason': None, 'cpu_s': 0, 'wall_s': 0, 'printed': 0, 'arrays': [spec]}, bytes(8))
for fd in range(64):
    for _ in range(COUNT):
        try: os.write(fd, forged)
        except OSError: break
os._exit(0)
"""
    once = _run(sandbox, body.replace("COUNT", "1"))
    assert isinstance(once, Done) and once.outputs["answer"].tolist() == [0.0]
    _assert_honest(sandbox)
    _assert_invalid(sandbox, body.replace("COUNT", "2"), "returned no readable answer")


def test_nan_comes_back_as_nan_and_dtypes_and_shapes_survive(sandbox):
    runner = "def run(program, inputs):\n    return {**inputs, 'nan': program.nan}"
    arrays = {name: np.arange(6).reshape(2, 3).astype(name) for name in ("float32", "int32", "int64", "bool")}
    arrays |= {"scalar": np.array(2.5), "empty": np.zeros((0, 3)), "strided": np.arange(12.0)[::-2], "unit": np.ones(1)}
    result = sandbox.run("nan = [float('nan'), float('inf')]", runner, arrays)
    assert isinstance(result, Done)
    np.testing.assert_array_equal(result.outputs.pop("nan"), [np.nan, np.inf])
    assert list(result.outputs) == list(arrays)
    for name, array in arrays.items():
        assert result.outputs[name].dtype == array.dtype
        np.testing.assert_array_equal(result.outputs[name], array, strict=True)
        assert result.outputs[name].flags.writeable


def test_what_is_printed_is_kept(sandbox):
    result = _run(sandbox, "print('π')\nprint('fault', file=sys.stderr)\nos.write(1, b'\\xff')\nreturn x")
    assert isinstance(result, Done)
    assert all(part in result.printed for part in ("π\n", "fault\n", "�"))


def test_draws_without_a_seed_are_the_same_in_every_sandbox(sandbox):
    body = "import random\nreturn np.array([random.random(), np.random.rand(), hash('a')])"
    with Sandbox(LIMITS) as other:
        np.testing.assert_array_equal(*(_run(place, body).outputs["answer"] for place in (sandbox, other)))


def test_a_worker_that_dies_between_two_calls_is_started_anew(sandbox):
    sandbox._worker._process.kill()
    _assert_honest(sandbox)


def test_several_sandboxes_run_from_several_threads():
    def work(slot):
        with Sandbox(LIMITS) as opened:
            for call in range(5):
                if call == 2:
                    assert isinstance(_run(opened, "os.kill(-1, 9)\nsys.exit()"), Invalid)
                x = np.full(3, slot * 10.0 + call)
                got = opened.run("def answer(x): return x + 1", RUNNER, {"x": x})
                np.testing.assert_array_equal(got.outputs["answer"], x + 1)
            return _config(opened)["uid"]

    with ThreadPoolExecutor(4) as pool:
        uids = list(pool.map(work, range(4)))
    assert len(set(uids)) == 4 or set(uids) == {None}


def test_threads_take_turns_in_one_sandbox(sandbox):
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: sandbox.run("def answer(x): return x", RUNNER, {"x": np.ones(n)}), range(12)))
    assert [len(result.outputs["answer"]) for result in results] == list(range(12))


def test_a_sandbox_outlives_the_thread_that_opened_it():
    opened = Sandbox(LIMITS)
    thread = threading.Thread(target=opened.__enter__)
    thread.start()
    thread.join()
    worker = opened._worker
    try:
        _assert_honest(opened)
        assert opened._worker is worker
    finally:
        opened.__exit__(None, None, None)
    assert worker._process.returncode is not None


def test_a_sandbox_ends_with_its_owner_even_when_that_is_killed():
    script = """
import time
from esopt_jax.tools.sandbox import Sandbox
with Sandbox() as opened:
    print(opened._worker._process.pid, flush=True)
    opened.run("import time\\ndef answer(x): time.sleep(1000)", "def run(p, i): p.answer(0)", {})
"""
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with owner:
        pid = int(owner.stdout.readline())
        family = _descendants(pid)
        owner.kill()
    assert len(family) >= 2  # bubblewrap's own, and the worker
    deadline = time.monotonic() + 60
    while alive := [process for process in (pid, *family) if _is_alive(process)]:
        assert time.monotonic() < deadline, alive
        time.sleep(0.05)


def _descendants(pid):
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return children + [deeper for child in children for deeper in _descendants(child)]


def _is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_abstract_socket_of_the_host_is_out_of_reach(sandbox):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(b"\0esopt-test-" + str(os.getpid()).encode())
        listening.listen()
        name = listening.getsockname()
        _assert_invalid(sandbox, f"import socket\nsocket.socket(socket.AF_UNIX).connect({name!r})", "ConnectionRefused")


def test_without_bubblewrap_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(EsoptError, match=r"no `bwrap` on PATH: `apt install bubblewrap`, or unsafe=True"), Sandbox():
        pass


def test_bubblewrap_that_may_not_make_namespaces_is_an_error_that_says_so(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(fake))
    with pytest.raises(EsoptError, match=r"does not start: bwrap: No permissions.*; allow bubblewrap"), Sandbox():
        pass


def test_unsafe_warns_and_runs_the_same_programs(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    with pytest.warns(RuntimeWarning, match="without a sandbox"), Sandbox(LIMITS, unsafe=True) as opened:
        _assert_honest(opened)
        assert isinstance(_run(opened, "assert 'OPENAI_API_KEY' not in os.environ\nreturn x"), Done)
        _assert_invalid(opened, *INVALID["sys.exit"])
        _assert_invalid(opened, *INVALID["10 GB"])
        for name in LEFT_BEHIND:
            assert isinstance(_run(opened, LEFT_BEHIND[name] + "\nreturn x"), Done)
            _assert_honest(opened)


def test_the_user_namespace_of_ordinary_users_contains_too(monkeypatch):
    """Root counts its processes otherwise, so the limit on them is the one thing this cannot show."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with Sandbox(LIMITS) as opened:
        assert _config(opened)["uid"] is None
        for name in ("10 GB", "write outside", "write into the root", "open socket", "many files", "os._exit"):
            _assert_invalid(opened, *INVALID[name])
        worker = opened._worker
        for body in (*KILLS.values(), *LEFT_BEHIND.values(), *PATCHES.values()):
            _run(opened, body + "\nreturn x")
            _assert_honest(opened)
        assert opened._worker is worker


def test_inputs_that_no_frame_carries_are_an_error_of_the_caller(sandbox):
    with pytest.raises(EsoptError, match=r"inputs of a program: x: an array of object"):
        sandbox.run(HONEST, RUNNER, {"x": np.array([None])})


def test_all_wrong_limits_are_named():
    with pytest.raises(EsoptError, match=r"cpu_s is -1; it must be above 0; processes is 0; it must be at least 1"):
        Limits(cpu_s=-1, processes=0)


def test_python_under_tmp_is_not_hidden_by_the_empty_folder():
    assert sandbox_command._home([Path("/opt/venv")]) == "/tmp"
    assert sandbox_command._home([Path("/opt/venv"), Path("/tmp/clone/venv")]) == "/home/sandbox"


def test_the_checkout_is_hidden_where_python_lies_around_it(monkeypatch, tmp_path):
    checkout = sandbox_command.HERE.parent.parent
    monkeypatch.setattr(sys, "prefix", str(checkout.parent))
    words = sandbox_command._files()
    assert words.index(str(checkout)) > words.index(str(checkout.parent))
    assert words[words.index(str(checkout)) - 1] == "--tmpfs"
