package interpreter_test

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig/interpreter"
)

// patience is how long a driver may take to send its next message.
const patience = 60 * time.Second

// driver is a driver process on the host, without a sandbox. It has its own process group and
// working directory.
type driver struct {
	t              *testing.T
	cmd            *exec.Cmd
	dir            string // its working directory, and HOME
	stdin          io.WriteCloser
	socket         *os.File
	messages       *bufio.Reader
	nonce          string // nonce of the last request
	unacknowledged int    // number of the display that the next read acknowledges
	out, errout    *pipe
}

// driverFile returns the path of a file in driver/.
func driverFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("driver", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startDriver starts a driver with only PATH, HOME and env in its environment.
// It does not wait until the driver is ready.
func startDriver(t *testing.T, argv, env []string) *driver {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The driver's end is in blocking mode, like most inherited descriptors.
	if err := syscall.SetNonblock(pair[1], false); err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, cmd: exec.Command(argv[0], argv[1:]...), dir: t.TempDir(), socket: os.NewFile(uintptr(pair[0]), "socket")}
	d.messages = bufio.NewReader(d.socket)
	driverEnd := os.NewFile(uintptr(pair[1]), "socket of the driver")
	defer driverEnd.Close()
	d.cmd.ExtraFiles = []*os.File{driverEnd}
	d.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + d.dir, "TMPDIR=" + t.TempDir()}, env...)
	d.cmd.Dir = d.dir
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	var ends [2]*os.File
	d.out, ends[0] = newPipe(t)
	d.errout, ends[1] = newPipe(t)
	d.cmd.Stdout, d.cmd.Stderr = ends[0], ends[1]
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ends[0].Close()
	ends[1].Close()
	t.Cleanup(func() {
		syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL)
		d.cmd.Wait()
		d.stdin.Close()
		d.socket.Close()
	})
	return d
}

// send sends a request to the driver.
func (d *driver) send(o interpreter.Request) {
	d.t.Helper()
	if o.Nonce == "" {
		o.Nonce = rand.Text()
	}
	d.nonce, o.Acks = o.Nonce, o.Op == "cell"
	d.write(o)
}

// write writes a request unchanged.
func (d *driver) write(o interpreter.Request) {
	d.t.Helper()
	line, err := json.Marshal(o)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.socket.Write(append(line, '\n')); err != nil {
		d.t.Fatalf("send %s: %v", line, err)
	}
}

// readMessage returns the driver's next message. The test fails if none arrives.
func (d *driver) readMessage() interpreter.Message {
	d.t.Helper()
	m, err := d.read()
	if err != nil {
		d.t.Fatalf("no message: %v\nstdout: %s\nstderr: %s", err, d.out.take(), d.errout.take())
	}
	return m
}

// read returns the driver's next message, or io.EOF when the driver has exited. The next call of
// read acknowledges a display.
func (d *driver) read() (m interpreter.Message, err error) {
	if d.unacknowledged > 0 {
		d.write(interpreter.Request{Op: "ack", Ack: d.unacknowledged})
	}
	if err := d.socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return m, err
	}
	for {
		line, err := d.messages.ReadBytes('\n')
		if errors.Is(err, syscall.ECONNRESET) {
			err = io.EOF
		}
		if err != nil {
			return m, err
		}
		m = interpreter.Message{}
		err = json.Unmarshal(line, &m)
		d.unacknowledged = m.Ack
		if m.Nonce != d.nonce {
			d.t.Errorf("%s does not have the nonce %q", line, d.nonce)
		}
		if m.Type != "taken" {
			return m, err
		}
	}
}

// awaitReady waits until the driver is ready.
func (d *driver) awaitReady() interpreter.Message {
	d.t.Helper()
	m := d.readMessage()
	if m.Type != "ready" || m.Version == "" || m.Flavor == "" {
		d.t.Fatalf("got message %+v, want ready", m)
	}
	return m
}

// runCell runs one cell and returns its messages, including the end message, and its output.
func (d *driver) runCell(code string) (messages []interpreter.Message, stdout, stderr string) {
	d.t.Helper()
	return d.sendRequest(interpreter.Request{Op: "cell", Code: code})
}

// sendRequest is like cell, but for any request that ends with an "end" message.
func (d *driver) sendRequest(o interpreter.Request) (messages []interpreter.Message, stdout, stderr string) {
	d.t.Helper()
	d.send(o)
	return d.finish()
}

// finish collects the messages of the current request, up to its end.
func (d *driver) finish() (messages []interpreter.Message, stdout, stderr string) {
	d.t.Helper()
	for {
		m := d.readMessage()
		if messages = append(messages, m); len(messages) > 1_000_000 {
			d.t.Fatal("the cell does not end")
		}
		if m.Type == "end" {
			return messages, d.out.take(), d.errout.take()
		}
	}
}

// runProgram runs a program to its end and waits for the driver to exit.
func (d *driver) runProgram(o interpreter.Request) (end interpreter.Message, code int, stdout, stderr string) {
	d.t.Helper()
	o.Op = "program"
	d.send(o)
	for end.Type == "" || end.Type == "file" {
		end = d.readMessage()
	}
	return end, d.wait(), d.out.take(), d.errout.take()
}

// interrupt sends SIGINT to the driver and its children.
func (d *driver) interrupt() {
	d.t.Helper()
	if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT); err != nil {
		d.t.Fatal(err)
	}
}

// wait waits for the driver to exit and returns its exit code, or -1 if a signal ended it.
func (d *driver) wait() int {
	d.t.Helper()
	stuck := time.AfterFunc(patience, func() { d.cmd.Process.Kill() })
	defer stuck.Stop()
	var exit *exec.ExitError
	if err := d.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	return d.cmd.ProcessState.ExitCode()
}

// pipe collects the data that is written to a pipe.
type pipe struct {
	file *os.File
	mu   sync.Mutex
	text []byte // guarded by mu
}

func newPipe(t *testing.T) (p *pipe, end *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p = &pipe{file: r}
	raw, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	go raw.Read(p.drain)
	t.Cleanup(func() { r.Close() })
	return p, w
}

// drain reads all data that is available in the pipe, and reports whether the write side is
// closed.
func (p *pipe) drain(fd uintptr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	buf := make([]byte, 64<<10)
	for {
		n, err := syscall.Read(int(fd), buf)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if n <= 0 {
			return !errors.Is(err, syscall.EAGAIN)
		}
		p.text = append(p.text, buf[:n]...)
	}
}

// take returns the output since the last take. It includes all output that was written before the
// call, even if the reading goroutine has not run since.
func (p *pipe) take() string {
	if raw, err := p.file.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { p.drain(fd) })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	text := string(p.text)
	p.text = nil
	return text
}

// await waits until the driver has written output that contains want, and
// returns all output up to then.
func (p *pipe) await(t *testing.T, want string) string {
	t.Helper()
	deadline := time.Now().Add(patience)
	text := ""
	for time.Now().Before(deadline) {
		if text += p.take(); strings.Contains(text, want) {
			return text
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%q is not in %q", want, text)
	return ""
}

// filterMessages returns the messages of one type.
func filterMessages(messages []interpreter.Message, kind string) (found []interpreter.Message) {
	for _, m := range messages {
		if m.Type == kind {
			found = append(found, m)
		}
	}
	return found
}

// representationOf returns a message's representation of the given MIME type: the text of a JSON
// string, the JSON of other values, or "" if the representation is missing.
func representationOf(m interpreter.Message, mime string) string {
	var text string
	if json.Unmarshal(m.Data[mime], &text) == nil {
		return text
	}
	return string(m.Data[mime])
}

// runPlain runs a program with the plain interpreter, from a file with the given name. If a
// signal ends the program, the exit code is that of a shell.
func runPlain(t *testing.T, program, file, code string, env ...string) (exit int, stdout, stderr string) {
	t.Helper()
	return runPlainIn(t, t.TempDir(), program, file, code, env...)
}

// runPlainIn is like runPlain, but runs the program in the directory dir.
func runPlainIn(t *testing.T, dir, program, file, code string, env ...string) (exit int, stdout, stderr string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(code), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, file)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = patience
	var status *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), out.String(), errs.String()
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}
