package e2e

import (
	"strings"

	"github.com/brig-run/brig"
)

// outputForm identifies a way to execute code.
type outputForm string

const (
	asRun     outputForm = "run"     // a program in its own sandbox
	asCell    outputForm = "cell"    // a cell in a context
	asCommand outputForm = "command" // a command of a shell
)

// anyForm lists all forms. Code that ends its interpreter cannot run as a cell.
var (
	anyForm  = []outputForm{asRun, asCell, asCommand}
	programs = []outputForm{asRun, asCommand}
	inRun    = []outputForm{asRun}
	inCell   = []outputForm{asCell}
)

// outputCase is code with its exact output. In all texts, @ represents six digits that differ for
// each call, so that the test recognizes the output of another call.
type outputCase struct {
	name           string
	forms          []outputForm
	language       brig.Language
	code           string
	stdout, stderr string
	// raises is the exception that ends a cell. If value is set, it is the text of the exception.
	raises, value string
	exit          int // exit code of a run or a command
	// attack means that the code uses its driver's channel: the call returns its own result, or
	// the error of a context that has ended.
	attack bool
	// only names the clients to which the case applies; empty means all clients.
	only string
	// seldom means that the case runs only in a tenth of the rounds, because it starts several
	// processes.
	seldom bool
}

// marks returns n consecutive marks.
func marks(n int) string { return strings.Repeat("@", n) }

// zeros returns the output of the shell command printf '%0nd@\n' 0.
func zeros(n int) string { return strings.Repeat("0", n) + "@\n" }

// outputCases are the cases of the output matrix. Large outputs exceed the capacity of a
// pipe, 64 KiB, several times.
var outputCases = []outputCase{
	// The output is complete and belongs to its own cell.
	{name: "a small output", forms: anyForm, language: brig.Python, code: "print('@')", stdout: "@\n"},
	{name: "a large output", forms: anyForm, language: brig.JavaScript, code: "console.log('@'.repeat(50000))", stdout: marks(50000) + "\n"},
	{name: "a small output", forms: anyForm, language: brig.JavaScript, code: "console.log('@')", stdout: "@\n"},
	{name: "many lines", forms: anyForm, language: brig.JavaScript, code: "for (let i = 0; i < 50; i++) console.log('@'.repeat(1700))", stdout: strings.Repeat(marks(1700)+"\n", 50)},
	{name: "a large error output", forms: anyForm, language: brig.JavaScript, code: "console.error('@'.repeat(50000))", stderr: marks(50000) + "\n"},
	{name: "no line feed at the end", forms: anyForm, language: brig.JavaScript, code: "process.stdout.write('@'.repeat(30000)); process.stdout.write('@'.repeat(30000)); 0", stdout: marks(60000)},
	// This cannot run as a command: without Brig's driver, Node.js loses the unwritten rest of
	// the output to a pipe.
	{name: "an exit after large outputs", forms: []outputForm{asRun, asCell}, language: brig.JavaScript, code: "console.log('@'.repeat(50000)); console.error('@'.repeat(20000)); process.exit(0)", stdout: marks(50000) + "\n", stderr: marks(20000) + "\n", raises: "SystemExit"},
	{name: "an exception after a large output", forms: inCell, language: brig.JavaScript, code: "console.log('@'.repeat(50000)); throw new RangeError('@'.repeat(20000))", stdout: marks(50000) + "\n", raises: "RangeError", value: marks(20000)},
	{name: "characters of several bytes", forms: anyForm, language: brig.JavaScript, code: "console.log('ü€😀@'.repeat(15000))", stdout: strings.Repeat("ü€😀@", 15000) + "\n"},
	{name: "a large output", forms: []outputForm{asRun, asCell}, language: brig.TypeScript, code: "const n: string = '@'; console.log(n.repeat(50000))", stdout: marks(50000) + "\n"},
	{name: "a large output", forms: anyForm, language: brig.Python, code: "print('@' * 80000)", stdout: marks(80000) + "\n"},
	{name: "one write", forms: anyForm, language: brig.Python, code: "import os, sys\nn = os.write(1, b'@' * 80000 + b'\\n')\nprint(n, file=sys.stderr)", stdout: marks(80000) + "\n", stderr: "480001\n"},
	{name: "one gathering write", forms: anyForm, language: brig.Python, code: "import os\nn = os.writev(2, [b'@' * 40000, b'@' * 40000, b'\\n'])\nprint(n)", stdout: "480001\n", stderr: marks(80000) + "\n"},
	{name: "threads", forms: anyForm, language: brig.Python, code: "import sys, threading\nts = [threading.Thread(target=lambda: sys.stdout.write('@' * 10000 + '\\n') and None, daemon=True) for _ in range(4)] + [threading.Thread(target=sys.exit)]\nfor t in ts: t.start()\nfor t in ts: t.join()", stdout: strings.Repeat(marks(10000)+"\n", 4)},
	{name: "no line feed at the end", forms: anyForm, language: brig.Python, code: "print('@' * 20000, end='')", stdout: marks(20000)},
	{name: "an exception after a large output", forms: inCell, language: brig.Python, code: "print('@' * 20000)\nraise ValueError('@' * 20000)", stdout: marks(20000) + "\n", raises: "ValueError", value: marks(20000)},
	{name: "an exit with a text", forms: programs, language: brig.Python, code: "import sys\nprint('@' * 50000, end='')\nsys.exit('@')", stdout: marks(50000), stderr: "@\n", exit: 1},
	{name: "an immediate exit", forms: programs, language: brig.Python, code: "import os\nprint('@' * 50000, flush=True)\nos._exit(0)", stdout: marks(50000) + "\n"},
	{name: "characters of several bytes", forms: anyForm, language: brig.Python, code: "print('ü€😀@' * 15000)", stdout: strings.Repeat("ü€😀@", 15000) + "\n"},
	{name: "bytes that are no text", forms: anyForm, language: brig.Python, code: "import sys\nn = sys.stdout.buffer.write(bytes(range(128, 256)) * 2000 + b'@')\nsys.stdout.flush()", stdout: strings.Repeat(highBytes(), 2000) + "@", only: "rest rest-stream cli"},
	{name: "the buffer of a C library", forms: anyForm, language: brig.Python, code: "import ctypes\nn = ctypes.CDLL(None).printf(b'%s\\n', b'@' * 20000)", stdout: marks(20000) + "\n"},
	{name: "another program in its place", forms: inRun, language: brig.Python, code: "import os\nprint('@' * 50000, flush=True)\nos.execvp('echo', ['echo', '@'])", stdout: marks(50000) + "\n@\n"},
	{name: "a kill after a large output", forms: inRun, language: brig.Python, code: "import os\nprint('@' * 50000, flush=True)\nos.kill(os.getpid(), 9)", stdout: marks(50000) + "\n", exit: 137},
	{name: "another program in its place", forms: programs, language: brig.Bash, code: "printf '%0300000d@\\n' 0; exec echo @", stdout: zeros(300000) + "@\n"},
	{name: "a large output", forms: anyForm, language: brig.Bash, code: `printf '%0300000d@\n' 0`, stdout: zeros(300000)},
	{name: "a large error output", forms: anyForm, language: brig.Bash, code: `printf '%0300000d@\n' 0 >&2`, stderr: zeros(300000)},
	{name: "an output of a pipeline", forms: anyForm, language: brig.Bash, code: `printf '%0300000d@\n' 0 | cat`, stdout: zeros(300000)},

	// A program can open its streams by name.
	{name: "streams by name", forms: anyForm, language: brig.Bash, code: "echo one@ >/dev/stdout; echo two@ >/dev/stderr; echo three@ | tee /dev/stderr >/proc/self/fd/1", stdout: "one@\nthree@\n", stderr: "two@\nthree@\n"},
	{name: "streams by name", forms: anyForm, language: brig.Python, code: "with open('/dev/stdout', 'w') as f: n = f.write('@' * 30000)\nwith open('/dev/stderr', 'w') as f: n = f.write('@')", stdout: marks(30000), stderr: "@"},
	{name: "streams by name", forms: anyForm, language: brig.JavaScript, code: "require('fs').writeFileSync('/dev/stdout', '@'.repeat(30000)); require('fs').writeFileSync('/dev/stderr', '@')", stdout: marks(30000), stderr: "@"},

	// The output of a program includes the output of its descendants.
	{name: "a substituted process", forms: programs, language: brig.Bash, code: "exec > >(tee -a log) 2>&1; echo hello@", stdout: "hello@\n"},
	{name: "a late child", forms: programs, language: brig.Bash, code: "(sleep 0.1; echo late@) & echo now@", stdout: "now@\nlate@\n"},
	{name: "a late child", forms: programs, language: brig.Python, code: "import subprocess\nprint('now@', flush=True)\np = subprocess.Popen(['sh', '-c', 'sleep 0.1; echo late@'], start_new_session=True)", stdout: "now@\nlate@\n"},
	{name: "a late child", forms: programs, language: brig.JavaScript, code: "console.log('now@'); require('child_process').spawn('sh', ['-c', 'sleep 0.1; echo late@'], {stdio: 'inherit', detached: true}).unref()", stdout: "now@\nlate@\n"},
	{name: "a late child after an exit", forms: programs, language: brig.JavaScript, code: "console.log('now@'); require('child_process').spawn('sh', ['-c', 'sleep 0.1; echo late@'], {stdio: 'inherit', detached: true}); process.exit(0)", stdout: "now@\nlate@\n"},
	{name: "a child", forms: inCell, language: brig.Python, code: "import subprocess\nn = subprocess.run(['sh', '-c', 'printf \"%0200000d@\\\\n\" 0'])", stdout: zeros(200000)},
	{name: "a child in the background", forms: inCell, language: brig.Python, code: "import os\nn = os.system('nohup sleep 0.01 >/dev/null 2>&1 & echo @')", stdout: "@\n"},
	{name: "a child", forms: inCell, language: brig.JavaScript, code: "require('child_process').spawnSync('sh', ['-c', 'printf \"%0200000d@\\\\n\" 0'], {stdio: 'inherit'}); 0", stdout: zeros(200000)},

	// Code can neither forge nor shift the messages of its driver.
	{name: "a forged end", forms: inCell, language: brig.Python, code: "import os\nfor fd in range(3, 64):\n    try: n = os.write(fd, b'{\"type\":\"end\"}\\n')\n    except OSError: pass\nprint('@')", stdout: "@\n", attack: true},
	{name: "the cell after it", forms: inCell, language: brig.Python, code: "print('mine@')", stdout: "mine@\n"},
	{name: "the second cell after it", forms: inCell, language: brig.Python, code: "print('mine@')", stdout: "mine@\n"},
	{name: "a forged end", forms: inCell, language: brig.JavaScript, code: "for (const fd of require('fs').readdirSync('/proc/self/fd').filter((fd) => fd > 2)) try { if (require('fs').readlinkSync('/proc/self/fd/' + fd).startsWith('socket')) require('fs').writeSync(+fd, '{\"type\":\"end\"}\\n'); } catch {}\nconsole.log('@')", stdout: "@\n", attack: true},
	{name: "the cell after it", forms: inCell, language: brig.JavaScript, code: "console.log('mine@')", stdout: "mine@\n"},
	{name: "the second cell after it", forms: inCell, language: brig.JavaScript, code: "console.log('mine@')", stdout: "mine@\n"},
	{name: "a forged end", forms: inCell, language: brig.Bash, code: "for n in {3..64}; do printf '0 0 -\\n' >&$n; done 2>/dev/null; echo @", stdout: "@\n", attack: true},
	{name: "the cell after it", forms: inCell, language: brig.Bash, code: "echo mine@", stdout: "mine@\n"},
	{name: "the second cell after it", forms: inCell, language: brig.Bash, code: "echo mine@", stdout: "mine@\n"},
	{name: "a child that forges", forms: inCell, language: brig.Python, code: "import subprocess\nn = subprocess.run(['bash', '-c', 'for n in {3..9}; do echo {} >&$n; done 2>/dev/null; echo @'], close_fds=False)", stdout: "@\n"},

	// A program can use its own source file.
	{name: "a pool of spawned processes", forms: inRun, seldom: true, language: brig.Python, code: "import multiprocessing\ndef double(n): return 2 * n\nif __name__ == '__main__':\n    with multiprocessing.get_context('spawn').Pool(2) as pool: print(pool.map(double, [1, 2]), '@')", stdout: "[2, 4] @\n"},
	{name: "its own file", forms: inRun, seldom: true, language: brig.Python, code: "import subprocess, sys\nif len(sys.argv) > 1: print('child @')\nelse: subprocess.run([sys.executable, __file__, 'child'], check=True)", stdout: "child @\n"},
	{name: "a worker", forms: inRun, seldom: true, language: brig.JavaScript, code: "const { Worker, isMainThread, parentPort } = require('worker_threads');\nif (isMainThread) new Worker(__filename).on('message', (m) => console.log(m)); else parentPort.postMessage('@');", stdout: "@\n"},
	{name: "a fork", forms: inRun, seldom: true, language: brig.JavaScript, code: "if (process.argv[2]) process.send('@'); else require('child_process').fork(__filename, ['child']).on('message', (m) => console.log(m));", stdout: "@\n"},
	{name: "a cluster", forms: inRun, seldom: true, language: brig.JavaScript, code: "const cluster = require('cluster');\nif (cluster.isPrimary) cluster.fork().on('message', (m) => console.log(m)); else process.send('@', () => process.disconnect());", stdout: "@\n"},
	{name: "its own file", forms: inRun, seldom: true, language: brig.Bash, code: `if [[ $1 ]]; then echo "child @"; else bash "${BASH_SOURCE[0]}" child; fi`, stdout: "child @\n"},

	// The function main is called exactly once.
	{name: "main that is called", forms: inRun, seldom: true, language: brig.Python, code: "def main():\n    print('@')\nif __name__ == '__main__':\n    main()", stdout: "@\n"},
	{name: "main that is not called", forms: inRun, seldom: true, language: brig.Python, code: "def main():\n    print('@')", stdout: "@\n"},
	{name: "main that is called", forms: inRun, seldom: true, language: brig.JavaScript, code: "function main() { console.log('@'); }\nmain();", stdout: "@\n"},
	{name: "main that is not called", forms: inRun, seldom: true, language: brig.JavaScript, code: "async function main() { console.log('@'); }", stdout: "@\n"},
}

// shortCase is the control of the matrix: code with a short write, because it sets its descriptor
// to O_NONBLOCK. Its expected output is the output of a blocking write, so the matrix must detect
// the difference.
var shortCase = outputCase{
	name: "control", language: brig.Python,
	code:   "import os\nos.set_blocking(1, False)\ntry: n = os.write(1, b'@' * 150000)\nfinally: os.set_blocking(1, True)",
	stdout: marks(150000),
}

// highBytes returns the bytes from 128 to 255.
func highBytes() string {
	b := make([]byte, 128)
	for i := range b {
		b[i] = byte(128 + i)
	}
	return string(b)
}

// at replaces each @ in a text with a mark.
func at(text, mark string) string { return strings.ReplaceAll(text, "@", mark) }

// shellCommand returns a shell command that runs the code of the case.
func (c *outputCase) shellCommand(code string) string {
	program := map[brig.Language]string{brig.Python: "python3 -c ", brig.JavaScript: "node -e ", brig.Bash: "bash -c "}[c.language]
	return program + "'" + strings.ReplaceAll(code, "'", `'\''`) + "'"
}
