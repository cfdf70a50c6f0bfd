package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/guest"
	"github.com/brig-run/brig/internal/failpoint"
)

// serve answers whoever may open the socket: those who own the folder.
func (s *shim) serve(ctx context.Context) {
	for {
		c, err := s.ln.AcceptUnix()
		if err != nil {
			return // the process is ending
		}
		go s.answer(ctx, c)
	}
}

// answer carries out the one request of a connection.
func (s *shim) answer(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	r, fds, err := readRequest(c)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err != nil {
		_ = send(c, answer{Error: "read request: " + err.Error()})
		return
	}
	switch r.Op {
	case "dial":
		s.dial(c)
	case "watch":
		if send(c, answer{}) == nil {
			// Open until this process ends: that is the whole message.
			_, _ = io.Copy(io.Discard, c)
		}
	case "lease":
		s.renew(r.Lease)
		_ = send(c, answer{})
	case "own":
		s.mu.Lock()
		s.Ephemeral = false
		s.mu.Unlock()
		s.renew(r.Lease)
		failpoint.Hit("shim.owned")
		_ = send(c, answer{})
	case "keep":
		s.kept.put(r.ID, r.Note, fds)
		failpoint.Hit("shim.kept")
		fds = nil
		_ = send(c, answer{})
	case "kept":
		s.kept.sendAll(c)
	case "freeze", "thaw":
		if err := s.freeze(r.Op == "freeze"); err != nil {
			_ = send(c, answer{Error: err.Error()})
			return
		}
		_ = send(c, answer{})
	case "sentry":
		_ = send(c, answer{PID: s.machine.c.SandboxPid()})
	case "stop":
		_ = send(c, answer{})
		s.stop(ctx, r)
	default:
		_ = send(c, answer{Error: fmt.Sprintf("unknown request %q", r.Op)})
	}
}

// readRequest reads a request, and the descriptors that came with it.
func readRequest(c *net.UnixConn) (r request, fds []int, err error) {
	buf, oob := make([]byte, 0, oneRead), make([]byte, unix.CmsgSpace(4*keptDescriptors))
	for !bytes.HasSuffix(buf, []byte("\n")) {
		if len(buf) > maxRequest {
			return r, fds, errors.New("it is too long")
		}
		buf = slices.Grow(buf, oneRead)
		n, oobn, _, _, err := c.ReadMsgUnix(buf[len(buf):cap(buf)], oob)
		if err != nil {
			return r, fds, err
		}
		if n == 0 {
			return r, fds, io.ErrUnexpectedEOF
		}
		buf = buf[:len(buf)+n]
		fds = append(fds, descriptors(oob[:oobn])...)
	}
	return r, fds, json.Unmarshal(buf, &r)
}

// freeze stops every task of the guest, or lets them go on. gVisor's kernel
// does it: the host's freezer may catch the sentry in the middle of a ptrace
// call, which it does not survive.
func (s *shim) freeze(on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == on {
		return nil // gVisor counts, we do not
	}
	f := s.machine.c.Sandbox.Resume
	if on {
		f = s.machine.c.Sandbox.Pause
	}
	err := f(s.ID)
	if err == nil {
		s.frozen = on
	}
	return err
}

// renew moves the end of the lease.
func (s *shim) renew(lease time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease.Reset(time.Until(lease))
}

// dial makes a connection between the agent and whoever asks.
func (s *shim) dial(c *net.UnixConn) {
	fd, err := s.machine.connect()
	if err != nil {
		_ = send(c, answer{Error: err.Error()})
		return
	}
	defer unix.Close(fd)
	_ = send(c, answer{}, fd)
}

// stop ends the sandbox, gently first if there is grace.
func (s *shim) stop(ctx context.Context, r request) {
	if r.Grace > 0 {
		s.mu.Lock()
		s.asked = r.Reason
		s.mu.Unlock()
		// Whether it went well does not matter: what is left is killed.
		_ = s.machine.guest.Terminate(ctx, r.Grace)
	}
	s.end <- r.Reason
}

// main runs the sandbox's main program; its end is the sandbox's.
func (s *shim) main(ctx context.Context) {
	sio := brig.IO{Stdout: s.log, Stderr: s.log}
	res, err := s.machine.guest.Exec(ctx, "main", *s.Command, sio)
	switch {
	case err == nil:
		s.mu.Lock()
		s.mainCode = res.ExitCode
		s.mu.Unlock()
	case errors.Is(err, guest.ErrLost):
		// The machine has failed, or is about to be known to.
		select {
		case <-s.machine.gone:
		case <-time.After(lostTime):
			s.end <- brig.Crashed
		}
		return
	default:
		fmt.Fprintln(s.log, "brig: the main program did not run:", brig.AsError(err).Message)
		s.mu.Lock()
		s.mainCode = 127
		s.mu.Unlock()
	}
	select {
	case <-s.machine.gone:
	default:
		s.end <- brig.Exited
	}
}

// logWriter appends to the sandbox's log and begins a new file when it is
// full; one old file is kept.
type logWriter struct {
	l    layout
	f    *os.File
	size int64
	marks
}

// maxLog is how large a log file gets, in bytes. Two are kept.
const maxLog = 8 * brig.MiB

func openLog(l layout) (*logWriter, error) {
	f, err := os.OpenFile(l.path(logFile), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	w := &logWriter{l: l, f: f, marks: openMarks(f.Name())}
	if st, err := f.Stat(); err == nil {
		w.size = st.Size()
	}
	return w, nil
}

// Write implements io.Writer. Several writers may append to one log, each
// write whole.
func (w *logWriter) Write(p []byte) (int, error) {
	if w.size > maxLog {
		_ = os.Rename(w.l.path(logFile)+timesSuffix, w.l.path(oldLogFile)+timesSuffix) // there may be none
		if err := os.Rename(w.l.path(logFile), w.l.path(oldLogFile)); err == nil {
			if next, err := openLog(w.l); err == nil {
				_ = w.Close() // what was in it is written
				*w = *next
			}
		}
	}
	n, err := w.f.Write(p)
	w.size += int64(n)
	// The end of what was appended is where we are now, whoever else appends.
	if end, err := w.f.Seek(0, io.SeekCurrent); err == nil && n > 0 {
		w.wrote(end - int64(n))
	}
	return n, err
}

// Close implements io.Closer.
func (w *logWriter) Close() error {
	w.marks.close()
	return w.f.Close()
}
