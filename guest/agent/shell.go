package agent

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// artifactsDir is the directory in which programs leave their artifacts.
const artifactsDir = "/workspace/artifacts"

// shellOrder and shellMessage are the orders and messages of package
// interpreter, reduced to the fields that a shell uses.
type shellOrder struct {
	Op     string            `json:"op"`
	Nonce  string            `json:"nonce"`
	Code   string            `json:"code"`
	Env    map[string]string `json:"env"`
	Dir    string            `json:"cwd"`
	Limits map[string]uint64 `json:"limits"`
}

type shellMessage struct {
	Type      string `json:"type"`
	Nonce     string `json:"nonce,omitempty"`
	Version   string `json:"version,omitempty"`
	Flavor    string `json:"flavor,omitempty"`
	Nonces    bool   `json:"nonces,omitempty"`
	Count     int    `json:"count,omitempty"`
	Name      string `json:"name,omitempty"`
	Value     string `json:"value,omitempty"`
	Code      int    `json:"code,omitempty"`
	Signal    int    `json:"signal,omitempty"`
	Artifacts bool   `json:"artifacts,omitempty"`
	Closed    bool   `json:"closed,omitempty"`
	Path      string `json:"path,omitempty"`
}

// shellDriver drives a bash process. If a cell ends the process, the driver
// starts a new one.
type shellDriver struct {
	channel *os.File
	orders  *json.Decoder
	say     *json.Encoder
	nonce   string // of the current order
	dir     string // directory of the driver's own files
	count   int    // number of cells so far
	traced  bool   // whether a cell left set -x enabled
	trapped bool   // whether a cell may have left a DEBUG trap
	status  int    // of the last cell
	bash    *shell
	signals chan os.Signal
}

// ShellMain is the main function of the driver of bash. It executes the orders that arrive on
// descriptor 3, as defined in package interpreter. It returns the exit code. If an order ran a
// program, this is the program's exit code.
func ShellMain([]string) int {
	syscall.CloseOnExec(controlFD)
	d := &shellDriver{signals: make(chan os.Signal, 1)}
	socket := os.NewFile(controlFD, "orders")
	d.use(socket, socket)
	// Catch the signal instead of ignoring it, because bash and its children
	// would inherit an ignored signal.
	signal.Notify(d.signals, syscall.SIGINT)
	code, err := d.run()
	if err != nil {
		os.Stderr.WriteString("brig-agent: " + err.Error() + "\n")
		return 1
	}
	return code
}

// use makes the driver read orders from one file and send messages to another.
func (d *shellDriver) use(orders, messages *os.File) {
	d.channel, d.orders, d.say = orders, json.NewDecoder(orders), json.NewEncoder(messages)
	d.say.SetEscapeHTML(false)
}

// send sends a message about the current order.
func (d *shellDriver) send(m shellMessage) error {
	m.Nonce = d.nonce
	return d.say.Encode(m)
}

func (d *shellDriver) run() (code int, err error) {
	if d.dir, err = os.MkdirTemp("/tmp", "bash-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(d.dir)
	if d.bash, err = startShell(); err != nil {
		return 0, err
	}
	defer func() { d.bash.close() }()
	if err := d.send(shellMessage{Type: "ready", Version: d.bash.version, Flavor: "bash", Nonces: true}); err != nil {
		return 0, err
	}
	for {
		var o shellOrder
		if err := d.orders.Decode(&o); err != nil {
			return 0, nil // the host has disconnected
		}
		d.nonce = o.Nonce
		switch o.Op {
		case "ping":
			err = d.send(shellMessage{Type: "pong"})
		case "park":
			err = d.park(o.Dir)
		case "renew":
			err = d.bash.reseed()
		case "cell":
			err = d.runCell(o)
		case "program":
			d.bash.close()
			end := shellMessage{Type: "end", Closed: true}
			end.Code, end.Signal = d.runProgram(o)
			// The host waits until the last process has closed the output.
			os.Stdout.Close()
			os.Stderr.Close()
			if found, err := os.ReadDir(artifactsDir); err == nil {
				end.Artifacts = len(found) > 0
			}
			return end.Code, d.send(end)
		}
		if v, ok := errors.AsType[*reportError](err); ok {
			return 1, d.send(shellMessage{Type: "violation", Name: v.name})
		}
		if err != nil {
			return 0, err
		}
	}
}

// runProgram runs a whole script in a separate bash process, and returns its exit
// code and the signal that ended it.
func (d *shellDriver) runProgram(o shellOrder) (code, ended int) {
	fail := func(err error) (int, int) {
		os.Stderr.WriteString("bash: " + err.Error() + "\n")
		return 126, 0
	}
	file, err := d.writeScript(o)
	if err != nil {
		return fail(err)
	}
	cmd := exec.Command("bash", file)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Dir, cmd.Env = o.Dir, os.Environ()
	for name, value := range o.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	restore := setLimits(o.Limits["nproc"], o.Limits["nofile"])
	err = cmd.Start()
	restore()
	if err != nil {
		return fail(err)
	}
	cmd.Wait() // ProcessState holds the result
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), int(ws.Signal())
	}
	return cmd.ProcessState.ExitCode(), 0
}

// runCell runs one cell and reports how it ended.
func (d *shellDriver) runCell(o shellOrder) error {
	d.count++
	if err := d.send(shellMessage{Type: "started", Count: d.count}); err != nil {
		return err
	}
	failure, err := d.evaluate(o)
	if err != nil {
		return err
	}
	if failure != nil {
		failure.Type = "error"
		if err := d.send(*failure); err != nil {
			return err
		}
	}
	return d.send(shellMessage{Type: "end"})
}

// evaluate makes bash run a cell from a file, and returns the failure of the cell, if any. An error
// means that bash can no longer be used.
func (d *shellDriver) evaluate(o shellOrder) (failure *shellMessage, err error) {
	if st, err := os.Stat(o.Dir); o.Dir != "" && (err != nil || !st.IsDir()) {
		return &shellMessage{Name: "CommandFailed", Value: fmt.Sprintf("cd: no directory %q", o.Dir)}, nil
	}
	file := filepath.Join(d.dir, fmt.Sprintf("cell-%d.sh", d.count))
	code := o.Code
	code = d.resume() + code
	// Starting a process that checks for the trap would take longer than a short cell.
	d.trapped = d.trapped || strings.Contains(code, "DEBUG")
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		return &shellMessage{Name: "CommandFailed", Value: err.Error()}, nil
	}
	defer os.Remove(file)
	select {
	case <-d.signals: // a late signal; there is no cell to interrupt
	default:
	}
	mark := newMark()
	end, err := d.bash.evaluate(d.cellScript(o, file, mark), mark, d.signals)
	if !errors.Is(err, errShellEnded) {
		if err != nil {
			return nil, err
		}
		d.traced, d.status = strings.Contains(end.flags, "x"), end.status
		switch {
		case end.interrupted:
			return &shellMessage{Name: "KeyboardInterrupt"}, nil
		case end.status == 0:
			return nil, nil
		case exec.Command("bash", "-n", file).Run() != nil:
			// Bash has reported the syntax error and its line number on stderr.
			return &shellMessage{Name: "SyntaxError", Value: "exit status " + strconv.Itoa(end.status)}, nil
		}
		return &shellMessage{Name: "CommandFailed", Value: "exit status " + strconv.Itoa(end.status)}, nil
	}
	state := d.bash.cmd.ProcessState
	failure = &shellMessage{Name: "SystemExit", Value: strconv.Itoa(state.ExitCode())}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		failure.Value = strconv.Itoa(128 + int(ws.Signal()))
		if ws.Signal() == syscall.SIGINT {
			failure.Name = "KeyboardInterrupt"
		}
	}
	failure.Value += " (the shell has ended, and a new one begins without what it knew)"
	d.bash.close()
	d.traced, d.trapped, d.status = false, false, 0
	d.bash, err = startShell()
	return failure, err
}

// resume returns the commands that restore the trace and the DEBUG trap of earlier cells, and the
// status of the last one. They are on the first line of the cell's file, so that neither of them
// applies to the driver's commands.
func (d *shellDriver) resume() string {
	var commands string
	if d.traced {
		commands = "builtin set -x; "
	}
	if d.trapped {
		commands += `{ builtin eval "$__brig_debug"; } 2>/dev/null; `
	}
	if commands == "" || d.status == 0 {
		return commands
	}
	return fmt.Sprintf("__brig_resume %d %s && :; ", d.status, quote(commands))
}

// shell is a running bash process that reads its script line by line from a
// pipe.
type shell struct {
	cmd     *exec.Cmd
	script  *os.File // the script that bash reads
	reports *os.File // the reports that bash writes
	version string
	lines   chan string   // lines of reports
	ended   chan struct{} // closed when the process has ended
}

// reportFD is the descriptor on which bash reports. It is closed while a cell
// runs, so that cells cannot use it. stdinFD saves the standard input while the
// driver interrupts a command that waits for input.
const (
	reportFD = "60"
	stdinFD  = "61"
)

// prologue prepares a bash process. After a SIGINT, every command must return until control is back
// in the driver's script. Only a DEBUG trap can achieve this. __brig_resume runs commands and
// returns a status. The commands run when the function returns, because a trace or a DEBUG trap
// that they set would otherwise apply to the return.
const prologue = `exec ` + reportFD + `>&4 4>&- 3<&-
BASH_ARGV0=bash
shopt -s expand_aliases
__brig_cell= __brig_interrupted=
__brig_debug=
__brig_return() { return $1; }
__brig_resume() { local traps=$(builtin trap -p RETURN); builtin trap "builtin trap - RETURN
$traps
$2" RETURN; return $1; }
__brig_unwind() { ((${#BASH_SOURCE[@]} <= 2)) || return 2; }
trap 'if [[ -n $__brig_cell && -z $__brig_interrupted ]]; then __brig_interrupted=1; exec ` + stdinFD + `<&0 </dev/null; shopt -s extdebug; set -T; trap __brig_unwind DEBUG; fi' INT
echo "` + readyMark + ` $BASH_VERSION" >&` + reportFD + "\n"

// readyMark is the mark of a report before the first cell, which cannot be forged.
const readyMark = "ready"

// startShell starts a bash process and waits until it is ready.
func startShell() (*shell, error) {
	scriptR, scriptW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer scriptR.Close()
	reportR, reportW, err := os.Pipe()
	if err != nil {
		scriptW.Close()
		return nil, err
	}
	defer reportW.Close()
	s := &shell{
		cmd: exec.Command("bash", "--noprofile", "--norc", "/proc/self/fd/3"), script: scriptW, reports: reportR,
		lines: make(chan string, 1), ended: make(chan struct{}),
	}
	// The standard input is empty, because the host's input would never end for
	// cells.
	s.cmd.Stdout, s.cmd.Stderr = os.Stdout, os.Stderr
	s.cmd.ExtraFiles = []*os.File{scriptR, reportW}
	if err := s.cmd.Start(); err != nil {
		scriptW.Close()
		reportR.Close()
		return nil, err
	}
	go s.watch()
	if s.version, err = s.runScript(prologue, readyMark, nil); err == nil {
		return s, nil
	}
	s.close()
	return nil, errors.New("bash ended before it was ready: " + s.cmd.ProcessState.String())
}

// watch forwards the reports of bash until bash ends. close waits for watch.
func (s *shell) watch() {
	read, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		r := bufio.NewReader(s.reports)
		for {
			line, err := r.ReadSlice('\n')
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) { // a long line is not a report
				return
			}
			select {
			case s.lines <- strings.TrimSuffix(string(line), "\n"):
			case <-done:
				return
			}
		}
	}()
	s.cmd.Wait()
	// Background subshells may keep the pipe open forever, and write to it.
	s.reports.SetReadDeadline(time.Now())
	close(done)
	<-read
	close(s.ended)
}

// interruptRetry is how long a cell may take to react to a SIGINT before the
// driver sends it again. A SIGINT is lost if it arrives while bash starts a
// process or is about to wait.
const interruptRetry = 2 * time.Second

// runScript makes bash read a script that ends with a report, and returns the report without its
// mark. It repeats a SIGINT that had no effect. The error is errShellEnded if bash has ended, and a
// reportError if other code used the pipes.
func (s *shell) runScript(script, mark string, signals <-chan os.Signal) (report string, err error) {
	if _, err := io.WriteString(s.script, script); err != nil {
		<-s.ended
		return "", errShellEnded
	}
	look := time.NewTicker(scriptGrace)
	defer look.Stop()
	idle := false
	var retry <-chan time.Time
	for {
		select {
		case line := <-s.lines:
			report, ok := strings.CutPrefix(line, mark+" ")
			if !ok {
				return "", &reportError{}
			}
			return report, nil
		case <-s.ended:
			return "", errShellEnded
		case <-signals:
			retry = time.After(interruptRetry)
		case <-retry:
			retry = nil
			if syscall.Getpgrp() == os.Getpid() {
				syscall.Kill(0, syscall.SIGINT) // the group includes this process
			}
		case <-look.C:
			before := idle
			if idle = s.isIdle(); idle && before {
				return "", &reportError{name: violationLost}
			}
		}
	}
}

// cellEnd is bash's report about the end of a cell.
type cellEnd struct {
	status      int
	interrupted bool
	flags       string // the value of $-
}

// reseed sets a new seed for $RANDOM before the next cell. Otherwise bash in a copy of a sandbox
// would continue the original's random sequence.
func (s *shell) reseed() error {
	var seed [4]byte
	_, _ = rand.Read(seed[:]) // never fails
	_, err := fmt.Fprintf(s.script, "RANDOM=%d\n", binary.NativeEndian.Uint32(seed[:]))
	return err
}

func (s *shell) evaluate(script, mark string, signals <-chan os.Signal) (end cellEnd, err error) {
	report, err := s.runScript(script, mark, signals)
	if err != nil {
		return end, err
	}
	fields := strings.Fields(report + " - - -")
	end.status, _ = strconv.Atoi(fields[0])
	end.interrupted = fields[1] == "1"
	end.flags = fields[2]
	return end, nil
}

// close kills bash. Background processes of bash continue to run.
func (s *shell) close() {
	s.cmd.Process.Kill() // it may have already ended
	<-s.ended
	s.script.Close()
	s.reports.Close()
}

// cellScript returns the script that makes bash run a cell and report its end with a mark. The cell
// starts with the exit status of the previous cell. Its DEBUG trap is removed until the next cell,
// because the trap would also run for the driver's commands.
func (d *shellDriver) cellScript(o shellOrder, file, mark string) string {
	var before, after strings.Builder
	if o.Dir != "" {
		fmt.Fprintf(&before, "builtin cd -- %s\n", quote(o.Dir))
	}
	i := 0
	for name, value := range o.Env {
		if !isName(name) {
			continue
		}
		// Save the value of the variable, and whether the variable was set and exported.
		fmt.Fprintf(&before, "__brig_set_%[1]d=${%[2]s+1} __brig_old_%[1]d=${%[2]s-} __brig_how_%[1]d=; [[ -z $__brig_set_%[1]d ]] || __brig_how_%[1]d=${%[2]s@a}\nbuiltin export %[2]s=%[3]s\n", i, name, quote(value))
		fmt.Fprintf(&after, "if [[ -n $__brig_set_%[1]d ]]; then %[2]s=$__brig_old_%[1]d; [[ $__brig_how_%[1]d == *x* ]] || builtin declare +x %[2]s; else builtin unset -v %[2]s; fi; builtin unset -v __brig_set_%[1]d __brig_old_%[1]d __brig_how_%[1]d; ", i, name)
		i++
	}
	// Bash reads the whole last line before it executes any part of it. The
	// part after the cell does not print anything, even with set -x or a trap.
	trap := ""
	if d.trapped {
		trap = `[[ -n $__brig_interrupted ]] || __brig_debug=$(builtin trap -p DEBUG); builtin trap - DEBUG; `
	}
	return before.String() +
		fmt.Sprintf("__brig_cell=1; __brig_return %d && :; builtin . ", d.status) + quote(file) + " " + reportFD + ">&-; " +
		`{ __brig_end="$? ${__brig_interrupted:-0} $-"; __brig_cell=; builtin set +x; ` + trap +
		`if [[ -n $__brig_interrupted ]]; then builtin trap - DEBUG; builtin shopt -u extdebug; builtin set +T; __brig_interrupted=; exec <&` + stdinFD + " " + stdinFD + `<&-; fi; ` +
		after.String() +
		`builtin echo "` + mark + ` $__brig_end" >&` + reportFD + "; } >/dev/null 2>&1\n"
}

// quote quotes a string as a single word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// isName reports whether s is a valid name of a shell variable.
func isName(s string) bool {
	for i, r := range s {
		letter := r == '_' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
