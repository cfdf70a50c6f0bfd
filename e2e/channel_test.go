package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/client"
	"github.com/brig-run/brig/internal/race"
)

// forgedLines are driver messages that a program can guess, and lines that are not messages. The
// last line is not terminated.
var forgedLines = strings.Join([]string{
	`{"type":"started","count":900}`,
	`{"type":"display","data":{"text/plain":"\"forged\""}}`,
	`{"type":"result","data":{"text/plain":"\"forged\""}}`,
	`{"type":"error","name":"Forged","value":"forged","traceback":"forged"}`,
	`{"type":"end","code":0,"returned":"forged"}`,
	`{"type":"end","nonce":"AAAAAAAAAAAAAAAAAAAAAAAAAA"}`,
	`{"type":"pong","nonce":"rouse"}`,
	`{"type":"parked"}`,
	`{"type":"ready","version":"0","flavor":"forged"}`,
	`no JSON at all`,
	`0 0 -`,
	`=0,0`,
	``,
	`{"type":"end","nonce":"`,
}, "\n")

// channelPreludes define the function forge in each language. It writes a text to every open
// descriptor except the standard streams, and returns the number of successful writes.
var channelPreludes = map[brig.Language]string{
	brig.Python: `
import os, sys, threading, time
def forge(text):
    n = 0
    for fd in [int(f) for f in os.listdir("/proc/self/fd") if int(f) > 2]:
        try:
            os.write(fd, text.encode())
            n += 1
        except OSError:
            pass
    return n
def await_file(name):
    while not os.path.exists(name):
        time.sleep(0.01)
`,
	brig.JavaScript: `
const fs = require('fs');
function forge(text) {
  let n = 0;
  for (const fd of fs.readdirSync('/proc/self/fd').map(Number).filter((fd) => fs.existsSync('/proc/self/fd/' + fd) || fd === 3)) {
    // A line in its own pipes ends Node.js.
    if (fd <= 2 || /^(?:pipe|anon)/.test(fs.readlinkSync('/proc/self/fd/' + fd))) continue;
    try { fs.writeSync(fd, text); n++; } catch {}
  }
  return n;
}
`,
	brig.Bash: `
forge() {
  local n=0 f
  for f in /proc/$BASHPID/fd/*; do
    f=${f##*/}
    (( f > 2 )) && { printf '%s' "$1" >&$f; } 2>/dev/null && n=$((n+1))
  done
  echo "$n"
}
forge_by_path() {
  local f
  for f in /proc/[0-9]*/fd/*; do
    [[ -p $f && ${f##*/} -gt 2 ]] && timeout 1 sh -c 'printf %s "$1" >"$2"' sh "$1" "$f" 2>/dev/null
  done
}
`,
}

// Properties of a program of channelAttacks.
const (
	later   = 1 << iota // it attacks once the file "go" exists
	reaches             // its lines reach the host, so the context must end
	takes               // it takes requests from the driver, so the context must end
)

// channelAttacks are programs that use the driver's own descriptors. FORGED is replaced with the
// forged lines.
var channelAttacks = []struct {
	language brig.Language
	name     string
	code     string
	does     int
}{
	{brig.Python, "in its own cell", `forge(FORGED)`, reaches},
	{brig.Python, "half a line", `forge('{"type":"end"')`, reaches},
	{brig.Python, "a megabyte without an end", `forge("x" * (1 << 20))`, reaches},
	{brig.Python, "only an end", `forge('{"type":"end"}\n')`, reaches},
	{brig.Python, "a thread between cells", "def later():\n    await_file('/workspace/go')\n    forge(FORGED)\n    open('/workspace/done', 'w')\nthreading.Thread(target=later).start()", later | reaches},
	{brig.Python, "its own nonce", `
f = sys._getframe()
while f:
    for v in list(f.f_locals.values()):
        c = getattr(v, "channel", v)
        if type(c).__name__ == "Channel":
            channel = c
    f = f.f_back
os.write(channel.out, ('{"type":"end","nonce":"%s"}\n' % getattr(channel, "nonce", "")).encode())
await_file("/workspace/go")
open('/workspace/done', 'w')`, later | reaches},
	{brig.Python, "a thread that takes orders", `
def take():
    while True:
        os.read(3, 1 << 16)
for _ in range(8):
    threading.Thread(target=take, daemon=True).start()`, takes},
	{brig.Python, "a forked child", "if os.fork() == 0:\n    forge(FORGED)\n    os._exit(0)\nos.wait()", 0},
	{brig.Python, "multiprocessing", "import multiprocessing\np = multiprocessing.get_context('fork').Process(target=forge, args=(FORGED,))\np.start()\np.join()", 0},
	{brig.Python, "a program that it starts", "import subprocess\nsubprocess.run([sys.executable, '-c', 'import os\\nfor fd in range(3, 64):\\n    try: os.write(fd, b\"{}\\\\n\")\\n    except OSError: pass'], close_fds=False)", 0},

	{brig.JavaScript, "in its own cell", `forge(FORGED)`, reaches},
	{brig.JavaScript, "only an end", `forge('{"type":"end"}\n')`, reaches},
	{brig.JavaScript, "a timer between cells", "const timer = setInterval(() => {\n  if (!fs.existsSync('/workspace/go')) return;\n  clearInterval(timer);\n  forge(FORGED);\n  fs.writeFileSync('/workspace/done', '');\n}, 10); 0", later | reaches},
	{brig.JavaScript, "a worker", "const { Worker } = require('worker_threads');\nawait new Promise((r) => new Worker(`const fs = require('fs'); for (let fd = 3; fd < 64; fd++) try { fs.writeSync(fd, '{\"type\":\"end\"}\\\\n'); } catch {}`, { eval: true }).on('exit', r))", reaches},
	{brig.JavaScript, "a worker that takes orders", "const { Worker } = require('worker_threads');\nnew Worker(`const fs = require('fs'); const b = Buffer.alloc(65536); require('worker_threads').parentPort.postMessage(1); for (;;) try { fs.readSync(3, b); } catch {}`, { eval: true }).on('message', () => {}).unref(); 0", takes},
	{brig.JavaScript, "a program that it starts", "require('child_process').spawnSync('sh', ['-c', 'for n in 3 4 5 6 7 8 9; do eval \"echo {} >&$n\" 2>/dev/null; done'])", 0},

	{brig.Bash, "in its own cell", "forge FORGED", reaches},
	{brig.Bash, "only an end", "forge '0 0 -\n'", reaches},
	{brig.Bash, "half a line", "forge '0 0'", reaches},
	{brig.Bash, "many lines", "for i in {1..9}; do forge FORGED; done >/dev/null; exit 3", 0},
	{brig.Bash, "a subshell between cells", "( until [[ -e /workspace/go ]]; do sleep 0.01; done; forge FORGED; : >/workspace/done ) >/dev/null &", later | reaches},
	{brig.Bash, "descriptors by their paths", "forge_by_path '0 0 -\n'", reaches},
	{brig.Bash, "a subshell that takes the script", "( while :; do cat </proc/$$/fd/255 >/dev/null; done ) &", takes},
	{brig.Bash, "a program that it starts", "for n in {3..64}; do bash -c \"echo 0 0 - >&$n\" 2>/dev/null; done; :", 0},
}

// TestDriverChannel verifies that a program cannot shift or forge the response to another cell
// through its driver's descriptors. Each cell receives its own response, or the error that the
// protocol was violated in its context.
//
//suite:part hostile
func TestDriverChannel(t *testing.T) {
	s := stopServer(t, startServer(t, dataDir(t), "--pool", "0"))
	c := s.client()
	for i, a := range channelAttacks {
		t.Run(string(a.language)+"/"+a.name, func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprintf("box-%d", i)
			if _, err := c.Create(t.Context(), brig.Spec{Name: name, TTL: 10 * time.Minute}); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Remove(t.Context(), name); err != nil {
					t.Error(err)
				}
			}()
			cell := channelContext(t, c, name, a.language)
			if r := cell(channelPreludes[a.language]); r.Error != nil {
				t.Fatalf("the prelude fails: %+v", r.Error)
			}
			if got := cell(honestCell(a.language, 0)); !isAnswer(got, a.language, 0) {
				t.Fatalf("the control answers %s", describeAnswer(got))
			}
			var broken int
			violated := func(r *brig.CodeResult) bool {
				if r.Error == nil || r.Error.Name != "ProtocolViolation" {
					return false
				}
				if broken++; !r.Lost || !strings.Contains(r.Error.Value, "variables are gone") {
					t.Errorf("the violation is %s", describeAnswer(r))
				}
				return true
			}
			if r := cell(strings.ReplaceAll(a.code, "FORGED", literal(a.language, forgedLines))); !violated(r) && r.Error != nil && a.name != "many lines" {
				t.Errorf("the attack answers %s", describeAnswer(r))
			}
			if a.does&later != 0 {
				putFile(t, c, name, "go")
				awaitFile(t, c, name, "done")
			}
			for n := 1; n <= 4 || a.does&takes != 0 && broken == 0 && n < 100; n++ { // the driver often reads before the attacker does
				if r := cell(honestCell(a.language, n)); !violated(r) && !isAnswer(r, a.language, n) {
					t.Errorf("cell %d answers %s", n, describeAnswer(r))
				}
			}
			if want := a.does&(reaches|takes) != 0; want && broken != 1 || broken > 1 {
				t.Errorf("%d answers say that the protocol was broken", broken)
			}
		})
	}
}

// TestParkedDriverChannel is like TestDriverChannel, but for parked interpreters. Their channel
// is a FIFO, which other processes of the sandbox can open.
//
//suite:part hostile
func TestParkedDriverChannel(t *testing.T) {
	needRoot(t)
	s := stopServer(t, startServer(t, dataDir(t), "--pool", "0"))
	c := s.client()
	script := channelPreludes[brig.Bash] + "forge_by_path '{\"type\":\"end\"}\n'"
	attacks := map[brig.Language]string{
		brig.Bash:       script,
		brig.Python:     "import subprocess\nsubprocess.run(['bash', '-c', " + literal(brig.Python, script) + "])",
		brig.JavaScript: "require('child_process').spawnSync('bash', ['-c', " + literal(brig.JavaScript, script) + "])",
	}
	for l, attack := range attacks {
		name := string(l)
		if _, err := c.Create(t.Context(), brig.Spec{Name: name, TTL: 10 * time.Minute}); err != nil {
			t.Fatal(err)
		}
		cell := channelContext(t, c, name, l)
		cell(honestCell(l, 0))
		if _, err := c.Pause(t.Context(), name, brig.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if r := cell(honestCell(l, 0)); !isAnswer(r, l, 0) {
			t.Errorf("%s: the control answers %s", l, describeAnswer(r))
		}
		if r := cell(attack); r.Error == nil || r.Error.Name != "ProtocolViolation" || !r.Lost {
			t.Errorf("%s: the attack answers %s", l, describeAnswer(r))
		}
		for n := range 3 {
			if r := cell(honestCell(l, n)); !isAnswer(r, l, n) {
				t.Errorf("%s: cell %d answers %s", l, n, describeAnswer(r))
			}
		}
	}
	// The agent, which holds the pipe, must not wait for the end of an unterminated line.
	const endless = "endless"
	limits := brig.Limits{}
	if race.Enabled { // the detector multiplies the agent's memory
		limits.Memory = 4 * brig.GiB
	}
	if _, err := c.Create(t.Context(), brig.Spec{Name: endless, TTL: 10 * time.Minute, Limits: limits}); err != nil {
		t.Fatal(err)
	}
	cell := channelContext(t, c, endless, brig.Python)
	cell("import os")
	if _, err := c.Pause(t.Context(), endless, brig.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	r := cell("[fd] = [f for f in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + f) and '/messages' in os.readlink('/proc/self/fd/' + f)]\nfor _ in range(66): os.write(int(fd), b'x' * (1 << 20))")
	if r.Error == nil || r.Error.Name != "ProtocolViolation" || !strings.Contains(r.Error.Value, "too long") {
		t.Errorf("a message without an end: %s", describeAnswer(r))
	}
}

// channelContext creates a context, and returns a function that runs a cell in it.
func channelContext(t *testing.T, c *client.Client, name string, l brig.Language) func(code string) *brig.CodeResult {
	t.Helper()
	made, err := c.CreateContext(t.Context(), name, brig.ContextSpec{Language: l, Env: map[string]string{"BRIG_NO_IPYTHON": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	return func(code string) *brig.CodeResult {
		t.Helper()
		r, err := c.RunCode(t.Context(), name, brig.Code{Context: made.ID, Source: code, Timeout: promptTimeout}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// honestCell returns a cell with unique output and, except in bash, a unique result.
func honestCell(l brig.Language, n int) string {
	switch l {
	case brig.Python:
		return fmt.Sprintf("print('mine-%d')\n'value-%[1]d'", n)
	case brig.JavaScript:
		return fmt.Sprintf("console.log('mine-%d'); 'value-%[1]d'", n)
	}
	return fmt.Sprintf("echo mine-%d; (exit %[1]d)", n)
}

// isAnswer reports whether r is the expected result of honestCell.
func isAnswer(r *brig.CodeResult, l brig.Language, n int) bool {
	if string(r.Stdout.Head) != fmt.Sprintf("mine-%d\n", n) || len(r.Stderr.Head) > 0 || r.TimedOut || r.Lost {
		return false
	}
	if l == brig.Bash {
		return n == 0 && r.Error == nil || n > 0 && r.Error != nil && r.Error.Value == fmt.Sprintf("exit status %d", n)
	}
	return r.Error == nil && len(r.Outputs) == 1 && strings.Contains(string(r.Outputs[0].Data["text/plain"]), fmt.Sprintf("value-%d", n))
}

func describeAnswer(r *brig.CodeResult) string {
	return fmt.Sprintf("%.200q, %.400q, %.300q, %+v, lost %v, timed out %v", r.Stdout.Head, r.Stderr.Head, fmt.Sprint(r.Outputs), r.Error, r.Lost, r.TimedOut)
}

// literal returns a text as a string literal of a language.
func literal(l brig.Language, text string) string {
	if l == brig.Bash {
		return "'" + text + "'"
	}
	return strconv.QuoteToASCII(text)
}

func putFile(t *testing.T, c *client.Client, box, name string) {
	t.Helper()
	if _, err := c.Files(box).Write(t.Context(), brig.Path{Name: name}, brig.FileWrite{}, strings.NewReader("")); err != nil {
		t.Fatal(err)
	}
}

func awaitFile(t *testing.T, c *client.Client, box, name string) {
	t.Helper()
	for end := time.Now().Add(promptTimeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := c.Files(box).Stat(t.Context(), brig.Path{Name: name}); err == nil {
			return
		}
	}
	t.Fatalf("there is no file %q", name)
}

// TestProgramCannotForgeItsResult verifies that a program cannot forge the result of its run by writing to the
// descriptors of its driver.
//
//suite:part hostile
func TestProgramCannotForgeItsResult(t *testing.T) {
	s := stopServer(t, startServer(t, dataDir(t), "--pool", "0"))
	c := s.client()
	for l, code := range map[brig.Language]struct{ forge, want string }{
		brig.Python:     {"def main():\n    forge(FORGED)\n    return 'mine'", `"mine"`},
		brig.JavaScript: {"function main() { forge(FORGED); return 'mine'; }", `"mine"`},
		brig.Bash:       {"forge FORGED; exit 7", ""},
	} {
		run := func(source string) *brig.Outcome {
			t.Helper()
			o, err := c.Run(t.Context(), brig.Program{Language: l, Code: channelPreludes[l] + source, Timeout: promptTimeout}, brig.IO{})
			if err != nil {
				t.Fatalf("%s: %v", l, err)
			}
			return o
		}
		if o := run(strings.ReplaceAll(code.forge, "FORGED", "''")); string(o.Value) != code.want || o.Error != nil {
			t.Errorf("%s: the control answers %s, %+v, exit %d", l, o.Value, o.Error, o.ExitCode)
		}
		o := run(strings.ReplaceAll(code.forge, "FORGED", literal(l, forgedLines)))
		own := string(o.Value) == code.want && (l != brig.Bash || o.ExitCode == 7)
		violation := o.Error != nil && o.Error.Name == "ProtocolViolation" && o.ExitCode != 0
		if own == violation || l != brig.Bash && own {
			t.Errorf("%s: the answer is %s, %+v, exit %d", l, o.Value, o.Error, o.ExitCode)
		}
	}
}

// TestMessageBufferMemoryIsBounded verifies that the server's memory stays bounded while many
// contexts each send 40 MiB of an unterminated message. Most of the contexts must end with an
// error. The control is a single context that sends such a message.
//
//suite:part hostile full
func TestMessageBufferMemoryIsBounded(t *testing.T) {
	s := stopServer(t, startServer(t, dataDir(t), "--pool", "0"))
	c := s.client()
	if _, err := c.Create(t.Context(), brig.Spec{Name: "one", TTL: 10 * time.Minute, Limits: brig.Limits{Memory: 2 * brig.GiB}}); err != nil {
		t.Fatal(err)
	}
	// send returns how many of n contexts were ended because of the size of their messages. The
	// others wait for a file, so that their messages are incomplete at the same time.
	send := func(n int) int {
		var cells sync.WaitGroup
		var ended, tooLarge atomic.Int64
		for i := range n {
			cells.Go(func() {
				defer ended.Add(1)
				cell := channelContext(t, c, "one", brig.Python)
				cell(channelPreludes[brig.Python])
				r := cell(fmt.Sprintf(`
for _ in range(40): forge("x" * (1 << 20))
open("/workspace/sent-%d-%d", "w").close()
await_file("/workspace/go-%d")`, n, i, n))
				if r.Error == nil || r.Error.Name != "ProtocolViolation" {
					t.Errorf("the cell answers %s", describeAnswer(r))
				} else if strings.Contains(r.Error.Value, "at the same time") {
					tooLarge.Add(1)
				}
			})
		}
		for end := time.Now().Add(promptTimeout); ; time.Sleep(50 * time.Millisecond) {
			canceled := int(ended.Load())
			sent := strings.Count(shellOut(t, t.Context(), c, "one", "ls /workspace"), fmt.Sprintf("sent-%d-", n))
			if canceled+sent >= n {
				break
			} else if time.Now().After(end) {
				t.Fatalf("of %d contexts, %d have ended and %d have sent their message", n, canceled, sent)
			}
		}
		putFile(t, c, "one", fmt.Sprintf("go-%d", n))
		cells.Wait()
		return int(tooLarge.Load())
	}
	if n := send(1); n != 0 {
		t.Error("one message is beyond the budget")
	}
	before, peak := resident(t, s.cmd.Process.Pid), int64(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			peak = max(peak, resident(t, s.cmd.Process.Pid))
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	n := send(12)
	close(stop)
	<-stopped
	t.Logf("%d of 12 contexts were ended; %d MiB before, at most %d MiB", n, before>>20, peak>>20)
	if n < 6 || peak-before > 320<<20 {
		t.Errorf("%d of 12 contexts were ended, and the server's memory grew from %d to %d MiB", n, before>>20, peak>>20)
	}
}
