package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
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
	case "begin":
		s.begin(ctx, r.Linger)
		_ = send(c, answer{})
	case "over":
		<-s.over // or the process ends, and the connection with it
		_ = send(c, answer{})
	case "sentry":
		_ = send(c, answer{PID: s.machine.pid()})
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
	f := s.machine.resume
	if on {
		f = s.machine.pause
	}
	err := f()
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

// begin starts the main program, once, if there is one.
func (s *shim) begin(ctx context.Context, linger bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Command == nil || s.begun {
		return
	}
	s.begun = true
	go s.main(ctx, linger)
}

// main runs the sandbox's main program. Its end is the sandbox's, unless that
// lingers.
func (s *shim) main(ctx context.Context, linger bool) {
	defer close(s.said)
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
		case <-time.After(guest.LostTime):
			s.end <- brig.Crashed
		}
		return
	default:
		fmt.Fprintln(s.log, "brig: the main program did not run:", brig.AsError(err).Message)
		s.mu.Lock()
		s.mainCode = 127
		s.mu.Unlock()
	}
	if linger {
		close(s.over)
		return
	}
	select {
	case <-s.machine.gone:
	default:
		s.end <- brig.Exited
	}
}
