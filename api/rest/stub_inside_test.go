package rest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strings"
	"time"

	"github.com/brig-run/brig"
)

// guestStub implements brig.Files and brig.Processes of one sandbox. The path
// or the first word of a command selects the behavior.
type guestStub struct {
	*stub
	name string
}

type (
	filesStub   struct{ guestStub }
	processStub struct{ guestStub }
)

// These types record the arguments of a call.
type (
	pathCall struct {
		what      string
		p, to     brig.Path
		depth     int
		from, n   int64
		recursive bool
	}
	writeCall struct {
		p       brig.Path
		w       brig.FileWrite
		content string
	}
	processCall struct {
		what string
		pid  int
		from int64
		data string
		size brig.Terminal
	}
)

func (s *stub) Files(name string) brig.Files         { return filesStub{guestStub{s, name}} }
func (s *stub) Processes(name string) brig.Processes { return processStub{guestStub{s, name}} }

func entryAt(p brig.Path) *brig.Entry {
	return &brig.Entry{
		Name: path.Base(p.Name), Path: p.Name, Type: brig.RegularFile, Size: 10, Mode: 0o644, Owner: "user", Group: "user", Modified: epoch,
		Metadata: map[string]string{"k": "v"},
	}
}

// at records a call and returns the entry at the call's path.
func (s filesStub) at(ctx context.Context, c pathCall) (*brig.Entry, error) {
	s.record(c)
	if _, err := s.find(ctx, s.name); err != nil {
		return nil, err
	}
	if c.p.User == "nobody" {
		return nil, brig.InvalidField("user", `no user "nobody"`).WithHint(`use "user" (the default) or "root"`)
	}
	if strings.Contains(c.p.Name, "none") {
		return nil, brig.Errorf(brig.NotFound, "there is nothing at %q", c.p.Name)
	}
	return entryAt(c.p), nil
}

func (s filesStub) Stat(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	return s.at(ctx, pathCall{what: "stat", p: p})
}

func (s filesStub) List(ctx context.Context, p brig.Path, depth int) ([]*brig.Entry, error) {
	e, err := s.at(ctx, pathCall{what: "list", p: p, depth: depth})
	if err != nil {
		return nil, err
	}
	link := &brig.Entry{
		Name: "l", Path: p.Name + "/l", Type: brig.Symlink, Mode: 0o777, Owner: "root", Group: "0", Modified: epoch.Add(time.Nanosecond), Target: "/x",
	}
	return []*brig.Entry{e, link}, nil
}

func (s filesStub) MakeDir(ctx context.Context, p brig.Path) (*brig.Entry, error) {
	if strings.HasSuffix(p.Name, "taken") {
		return nil, brig.Errorf(brig.AlreadyExists, "it is there")
	}
	return s.at(ctx, pathCall{what: "mkdir", p: p})
}

func (s filesStub) Move(ctx context.Context, from, to brig.Path) (*brig.Entry, error) {
	return s.at(ctx, pathCall{what: "move", p: from, to: to})
}

func (s filesStub) Remove(ctx context.Context, p brig.Path) error {
	_, err := s.at(ctx, pathCall{what: "remove", p: p})
	return err
}

// Read selects a file by its name: ten bytes, a file without a size, a large
// file, a large file that fails midway, and a file that fails immediately.
func (s filesStub) Read(ctx context.Context, p brig.Path, from, n int64) (*brig.Entry, io.ReadCloser, error) {
	e, err := s.at(ctx, pathCall{what: "read", p: p, from: from, n: n})
	if err != nil {
		return nil, nil, err
	}
	data := "0123456789"
	broken := false
	switch path.Base(p.Name) {
	case "proc":
		e.Size = 0
	case "sys":
		e.Size = 4096
	case "empty":
		data, e.Size = "", 0
	case "large", "broken":
		data = strings.Repeat("x", 1<<20)
		e.Size, broken = int64(len(data)), path.Base(p.Name) == "broken"
	case "unknown":
		data, broken = strings.Repeat("x", 1<<20), true
		e.Size = 0
	case "grown":
		data, e.Size = strings.Repeat("x", 1<<20), 100_000
	case "bad":
		data, broken = "", true
	}
	data = data[min(from, int64(len(data))):]
	if n >= 0 {
		data = data[:min(n, int64(len(data)))]
	}
	if broken {
		return e, io.NopCloser(io.MultiReader(strings.NewReader(data[:len(data)/2]), failedReader{})), nil
	}
	return e, io.NopCloser(strings.NewReader(data)), nil
}

type failedReader struct{}

func (failedReader) Read([]byte) (int, error) {
	return 0, brig.Errorf(brig.FailedPrecondition, "the sandbox died")
}

func (s filesStub) Write(ctx context.Context, p brig.Path, w brig.FileWrite, r io.Reader) (*brig.Entry, error) {
	e, err := s.at(ctx, pathCall{p: p})
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read content: %w", err)
	}
	s.record(writeCall{p, w, string(b)})
	return e, nil
}

func (s filesStub) Compose(ctx context.Context, from []brig.Path, to brig.Path) (*brig.Entry, error) {
	e, err := s.at(ctx, pathCall{p: to})
	s.record(append([]brig.Path{to}, from...))
	if len(from) == 0 {
		return nil, brig.InvalidField("source_paths", "0 files cannot be composed")
	}
	return e, err
}

// Watch reports two changes. If the path contains "wait", Watch then blocks until ctx ends.
func (s filesStub) Watch(ctx context.Context, p brig.Path, recursive bool, on func(brig.FileChange) error) error {
	if _, err := s.at(ctx, pathCall{what: "watch", p: p, recursive: recursive}); err != nil {
		return err
	}
	waits := strings.Contains(p.Name, "wait")
	for _, c := range []brig.FileChange{
		{},
		{Name: "a", Kinds: []brig.ChangeKind{brig.Created, brig.Written}, Entry: entryAt(brig.Path{Name: "/w/a"})},
		{Name: "b", Kinds: []brig.ChangeKind{brig.Vanished}},
	} {
		if err := on(c); err != nil {
			if waits {
				s.ended <- err // the client has already disconnected
			}
			return err
		}
	}
	if waits {
		<-ctx.Done()
		s.ended <- ctx.Err()
		return ctx.Err()
	}
	return brig.Errorf(brig.NotFound, "the directory is gone")
}

func (s processStub) info(spec brig.ProcessSpec) *brig.ProcessInfo {
	return &brig.ProcessInfo{PID: 7, Spec: spec, Started: epoch, Written: 12}
}

func (s processStub) Start(ctx context.Context, spec brig.ProcessSpec) (*brig.ProcessInfo, error) {
	s.record(spec)
	if _, err := s.find(ctx, s.name); err != nil {
		return nil, err
	}
	if len(spec.Command.Argv) == 0 && spec.Command.Shell == "" {
		return nil, brig.InvalidField("command", "give a command or a shell script, and not both")
	}
	if t := spec.Terminal; t != nil && *t == (brig.Terminal{}) {
		return nil, brig.InvalidField("terminal.columns", "must not be 0").WithHint("1 to 65535")
	}
	return s.info(spec), nil
}

func (s processStub) List(ctx context.Context) ([]*brig.ProcessInfo, error) {
	_, err := s.find(ctx, s.name)
	ended := s.info(brig.ProcessSpec{Command: brig.Command{Shell: "true"}, Terminal: &brig.Terminal{Columns: 80, Rows: 24}})
	ended.PID, ended.Result = 8, s.result()
	return []*brig.ProcessInfo{s.info(brig.ProcessSpec{Command: brig.Command{Argv: []string{"sleep", "9"}}, Tag: "t"}), ended}, err
}

// call records a call. Processes 7 to 9 exist.
func (s processStub) call(ctx context.Context, c processCall) error {
	s.record(c)
	if _, err := s.find(ctx, s.name); err != nil {
		return err
	}
	if c.pid < 7 || c.pid > 9 {
		return brig.Errorf(brig.NotFound, "process with pid %d not found", c.pid).WithHint("list the sandbox's processes")
	}
	return nil
}

// Attach reports output of process 7. Process 8 is silent until its client
// disconnects, and process 9 returns Unavailable.
func (s processStub) Attach(ctx context.Context, pid int, from int64, on func(brig.ProcessEvent) error) error {
	if err := s.call(ctx, processCall{what: "attach", pid: pid, from: from}); err != nil {
		return err
	}
	switch pid {
	case 8:
		<-ctx.Done()
		s.ended <- ctx.Err()
		return ctx.Err()
	case 9:
		return brig.Errorf(brig.Unavailable, "the server stops").WithHint("attach again")
	}
	for _, e := range []brig.ProcessEvent{
		{Output: []byte("caf\xc3"), From: brig.FromStdout},
		{Output: []byte("\xa9\n"), From: brig.FromStdout, Offset: 4},
		{Output: []byte("ow"), From: brig.FromStderr, Offset: 6},
		{End: s.result()},
	} {
		if err := on(e); err != nil {
			return err
		}
	}
	return nil
}

func (s processStub) WriteInput(ctx context.Context, pid int, p []byte) error {
	return s.call(ctx, processCall{what: "input", pid: pid, data: string(p)})
}

func (s processStub) CloseInput(ctx context.Context, pid int) error {
	return s.call(ctx, processCall{what: "close", pid: pid})
}

func (s processStub) Signal(ctx context.Context, pid int, name string) error {
	if !strings.HasPrefix(name, "SIG") {
		return brig.InvalidField("signal", "no such signal")
	}
	return s.call(ctx, processCall{what: "signal", pid: pid, data: name})
}

func (s processStub) Resize(ctx context.Context, pid int, size brig.Terminal) error {
	return s.call(ctx, processCall{what: "resize", pid: pid, size: size})
}

// Dial connects to a server. On port 7 the server reads the input to its end
// and responds with the input in capitals. On port 9 the server sends all its
// output and closes.
func (s *stub) Dial(ctx context.Context, name string, port int) (net.Conn, error) {
	if _, err := s.find(ctx, name); err != nil {
		return nil, err
	}
	if port < 1 || port > 65535 {
		return nil, brig.InvalidField("port", "%d is not a port", port).WithHint("give a number from 1 to 65535")
	}
	if port != 7 && port != 9 {
		return nil, brig.Errorf(brig.ConnectionFailed, "no program listens on port %d of the sandbox", port)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		defer ln.Close()
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		if port == 9 {
			_, err = io.WriteString(c, "bye")
			s.ended <- errors.Join(errors.New("it said all"), err)
			return
		}
		b, err := io.ReadAll(c)
		_, werr := c.Write(bytes.ToUpper(b))
		s.ended <- errors.Join(errors.New("it heard all"), err, werr)
	}()
	return (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
}
