package interpreter_test

import (
	"bufio"
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

// patience is how long a driver may take to say its next message.
const patience = 60 * time.Second

// A driver is a driver's process on this machine, without a sandbox, as leader
// of its process group, in a folder of its own.
type driver struct {
	t           *testing.T
	cmd         *exec.Cmd
	dir         string // its working directory, and HOME
	stdin       io.WriteCloser
	socket      *os.File
	messages    *bufio.Reader
	places      []string // of displays
	out, errout *pipe
}

// driverFile is the path of a file in driver/.
func driverFile(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("driver", name))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startDriver starts a driver with nothing in its environment but PATH, HOME
// and env. It does not wait for it to be ready.
func startDriver(t *testing.T, argv, env []string) *driver {
	t.Helper()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	// The driver's end blocks, as one that is handed to any program does.
	if err := syscall.SetNonblock(pair[1], false); err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, cmd: exec.Command(argv[0], argv[1:]...), dir: t.TempDir(), socket: os.NewFile(uintptr(pair[0]), "socket")}
	d.messages = bufio.NewReader(d.socket)
	theirs := os.NewFile(uintptr(pair[1]), "socket of the driver")
	defer theirs.Close()
	d.cmd.ExtraFiles = []*os.File{theirs}
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

// send gives the driver an order.
func (d *driver) send(o interpreter.Order) {
	d.t.Helper()
	line, err := json.Marshal(o)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := d.socket.Write(append(line, '\n')); err != nil {
		d.t.Fatalf("send %s: %v", line, err)
	}
}

// next is the driver's next message; the test fails when none comes.
func (d *driver) next() interpreter.Message {
	d.t.Helper()
	m, err := d.read()
	if err != nil {
		d.t.Fatalf("no message: %v\nstdout: %s\nstderr: %s", err, d.out.take(), d.errout.take())
	}
	return m
}

// read is the driver's next message, or io.EOF when it is gone.
func (d *driver) read() (m interpreter.Message, err error) {
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
		if line[0] != '=' {
			return m, json.Unmarshal(line, &m)
		}
		d.places = append(d.places, string(line)) // of the next one
	}
}

// ready waits for the driver to be ready.
func (d *driver) ready() interpreter.Message {
	d.t.Helper()
	m := d.next()
	if m.Type != "ready" || m.Version == "" || m.Flavor == "" {
		d.t.Fatalf("said %+v, want ready", m)
	}
	return m
}

// cell runs one cell to its end and returns what was said, the end included,
// and what was written meanwhile.
func (d *driver) cell(code string) (said []interpreter.Message, stdout, stderr string) {
	d.t.Helper()
	return d.order(interpreter.Order{Op: "cell", Code: code})
}

// order is cell with an order of any kind that ends in "end".
func (d *driver) order(o interpreter.Order) (said []interpreter.Message, stdout, stderr string) {
	d.t.Helper()
	d.send(o)
	return d.finish()
}

// finish collects what is said until the end of an order that was sent.
func (d *driver) finish() (said []interpreter.Message, stdout, stderr string) {
	d.t.Helper()
	for {
		m := d.next()
		said = append(said, m)
		if m.Type == "end" {
			return said, d.out.take(), d.errout.take()
		}
	}
}

// program runs a program to its end and waits for the driver to exit.
func (d *driver) program(o interpreter.Order) (end interpreter.Message, code int, stdout, stderr string) {
	d.t.Helper()
	o.Op = "program"
	d.send(o)
	end = d.next()
	return end, d.wait(), d.out.take(), d.errout.take()
}

// interrupt sends SIGINT to the driver and to all that it started.
func (d *driver) interrupt() {
	d.t.Helper()
	if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT); err != nil {
		d.t.Fatal(err)
	}
}

// wait waits for the driver to exit and returns its code, -1 for a signal.
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

// A pipe collects what is written into it.
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

// drain takes over all that is in the pipe now, and reports whether it ended.
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

// take returns what came since the last take. What was written before a
// message arrived is in it: it need not wait for the goroutine that reads.
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

// await waits until the driver has written something that contains want, and
// returns all that came until then.
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

// find returns the messages of one type.
func find(said []interpreter.Message, kind string) (found []interpreter.Message) {
	for _, m := range said {
		if m.Type == kind {
			found = append(found, m)
		}
	}
	return found
}

// data is one of a message's forms: text for what is a JSON string, JSON for
// anything else, empty when there is none.
func data(m interpreter.Message, mime string) string {
	var text string
	if json.Unmarshal(m.Data[mime], &text) == nil {
		return text
	}
	return string(m.Data[mime])
}
