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

// serve answers requests on the socket. Only the owner of the directory can
// open it.
func (s *shim) serve(ctx context.Context) {
	for {
		c, err := s.ln.AcceptUnix()
		if err != nil {
			return // the shim is exiting
		}
		go s.handle(ctx, c)
	}
}

// handle handles the request of a connection, which carries only one.
func (s *shim) handle(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	r, fds, err := readRequest(c)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err != nil {
		_ = send(c, response{Error: "read request: " + err.Error()})
		return
	}
	switch r.Op {
	case "dial":
		s.dial(c)
	case "watch":
		if send(c, response{}) == nil {
			// The connection stays open until this process exits. Its end
			// notifies the server that the sandbox has ended.
			_, _ = io.Copy(io.Discard, c)
		}
	case "lease":
		s.lease.Renew(time.Until(r.Lease), false)
		_ = send(c, response{})
	case "own":
		s.lease.Renew(time.Until(r.Lease), true)
		failpoint.Hit("shim.owned")
		_ = send(c, response{})
	case "keep":
		s.kept.put(r.ID, r.Note, r.Carried, fds)
		failpoint.Hit("shim.kept")
		fds = nil
		_ = send(c, response{})
	case "parking":
		s.kept.park(r.ID)
		_ = send(c, response{})
	case "kept":
		s.kept.sendAll(c)
	case "freeze", "thaw":
		if err := s.freeze(r.Op == "freeze"); err != nil {
			_ = send(c, response{Error: err.Error()})
			return
		}
		_ = send(c, response{})
	case "begin":
		s.begin(ctx, r.Linger)
		_ = send(c, response{})
	case "over":
		<-s.main.Done() // if the program does not linger, this process exits and the connection closes
		_ = send(c, response{})
	case "refused":
		_ = send(c, response{Refused: s.machine.refused.read()})
	case "sentry":
		_ = send(c, response{PID: s.machine.pid()})
	case "save", "savefiles":
		if r.Save == nil || r.Save.Manifest.FilesOnly != (r.Op == "savefiles") {
			return
		}
		holders, err := s.save(r.Save)
		a := response{Holders: holders}
		if err != nil {
			a.Error = err.Error()
		}
		lost := send(c, a) != nil
		switch {
		case err != nil || len(holders) > 0 || r.Save.Check:
		case !r.Save.Stay:
			s.end <- brig.Saved
		case lost:
			_ = os.RemoveAll(r.Save.Dir) // the server has died, and no other process will find the save
		}
	case "stop":
		_ = send(c, response{})
		s.stop(ctx, r)
	default:
		_ = send(c, response{Error: fmt.Sprintf("unknown request %q", r.Op)})
	}
}

// readRequest reads a request and its descriptors.
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

// freeze pauses all tasks of the guest, or resumes them. It pauses gVisor's
// kernel, because the host's freezer may stop the sentry during a ptrace call,
// which would crash the sentry.
func (s *shim) freeze(on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frozen == on {
		return nil // gVisor nests pauses, but the shim does not
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

// dial opens a connection to the agent and passes it to the client.
func (s *shim) dial(c *net.UnixConn) {
	fd, err := s.machine.connect()
	if err != nil {
		_ = send(c, response{Error: err.Error()})
		return
	}
	defer unix.Close(fd)
	_ = send(c, response{}, fd)
}

// stop ends the sandbox. If there is a grace period, it first terminates the
// programs gracefully.
func (s *shim) stop(ctx context.Context, r request) {
	if r.Grace > 0 {
		s.mu.Lock()
		s.stopReason = r.Reason
		s.mu.Unlock()
		// Ignore failures: the remaining processes are killed below.
		_ = s.machine.guest.Terminate(ctx, r.Grace)
	}
	s.end <- r.Reason
}

// begin starts the main program, if there is one and it has not been started
// yet.
func (s *shim) begin(ctx context.Context, linger bool) {
	if s.Command != nil {
		s.main.Begin(func() { s.runMain(ctx, linger) })
	}
}

// runMain runs the sandbox's main program. The sandbox ends with the program
// unless linger is set.
func (s *shim) runMain(ctx context.Context, linger bool) {
	sio := brig.IO{Stdout: s.log, Stderr: s.log}
	res, err := s.machine.guest.Exec(ctx, "main", *s.Command, sio)
	switch {
	case err == nil:
		s.main.RecordExit(res.ExitCode, linger)
	case errors.Is(err, guest.ErrViolation):
		fmt.Fprintln(s.log, "brig: the sandbox ends:", err)
		s.end <- brig.AgentLost
		return
	case errors.Is(err, guest.ErrLost):
		// The sandbox has failed, but the shim may not have detected its end
		// yet.
		select {
		case <-s.machine.ended:
		case <-time.After(guest.LostTimeout):
			s.end <- brig.Crashed
		}
		return
	default:
		fmt.Fprintln(s.log, "brig: the main program did not run:", brig.AsError(err).Message)
		s.main.RecordExit(127, linger)
	}
	if linger {
		return
	}
	select {
	case <-s.machine.ended:
	default:
		s.end <- brig.Exited
	}
}
