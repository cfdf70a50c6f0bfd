package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/brig-run/brig"
)

// The keys that leave a terminal and what runs in it, as docker's do.
const (
	detachFirst  = 'P' - '@' // Ctrl-P
	detachSecond = 'Q' - '@' // Ctrl-Q
)

// errDetached is how a session ends that the user left.
var errDetached = errors.New("detached")

// session joins the user's terminal and that of a process.
type session struct {
	in   *os.File // the user's terminal
	out  io.Writer
	proc brig.Processes
	pid  int
}

// run carries keys and output between the terminals until the process ends,
// and returns how it did. Whatever happens, the user's terminal is what it was
// before. What the process writes is shown from an offset on.
func (s *session) run(ctx context.Context, from int64) (end *brig.Result, err error) {
	fd := int(s.in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "the terminal cannot be used").Because(err)
	}
	restore := sync.OnceFunc(func() { _ = term.Restore(fd, before) }) // there is nobody else to tell
	defer restore()
	// The signals that would end us without asking: then nothing would restore.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	guarded := func(f func()) {
		defer func() {
			if p := recover(); p != nil {
				restore() // a panic elsewhere runs no deferred call of ours
				panic(p)
			}
		}()
		f()
	}
	go guarded(func() { leave(s.keys(ctx)) })
	go guarded(func() { s.follow(ctx) })
	err = s.proc.Attach(ctx, s.pid, from, func(e brig.ProcessEvent) error {
		if e.End != nil {
			end = e.End
			return nil
		}
		_, err := s.out.Write(e.Output)
		return err
	})
	cause := context.Cause(ctx)
	if _, ours := errors.AsType[*brig.Error](cause); err != nil && (ours || errors.Is(cause, errDetached)) {
		err = cause // it ended the session, and not the other way round
	}
	return end, err
}

// keys sends what is typed to the process, until it ends, ctx does, or the
// user leaves. A process that has ended is told of by its output, and so there
// is nothing to return.
func (s *session) keys(ctx context.Context) error {
	var d detector
	buf := make([]byte, 4096)
	for {
		n, err := s.in.Read(buf)
		send, left := d.next(buf[:n])
		if len(send) > 0 {
			switch err := s.proc.Input(ctx, s.pid, send); brig.KindOf(err) {
			case "":
			case brig.NotFound, brig.FailedPrecondition:
				<-ctx.Done()
				return nil
			default:
				return err
			}
		}
		if left || err != nil { // a terminal that has gone is left, too
			return errDetached
		}
	}
}

// follow tells the process how large the user's terminal is, now and whenever
// that changes.
func (s *session) follow(ctx context.Context) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	for {
		if size, ok := sizeOf(s.in); ok {
			_ = s.proc.Resize(ctx, s.pid, size) // a wrong size is no reason to stop
		}
		select {
		case <-ctx.Done():
			return
		case <-resized:
		}
	}
}

// sizeOf returns how large a terminal is; some do not know.
func sizeOf(f *os.File) (brig.Terminal, bool) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w < 1 || h < 1 || w > 0xffff || h > 0xffff {
		return brig.Terminal{Columns: 80, Rows: 24}, false
	}
	return brig.Terminal{Columns: uint16(w), Rows: uint16(h)}, true
}

// detector finds the detach keys in what is typed. It holds the first back
// until it has seen what follows.
type detector struct{ held bool }

// next returns what is to be sent, and whether the user leaves.
func (d *detector) next(typed []byte) (send []byte, left bool) {
	for _, key := range typed {
		if d.held {
			d.held = false
			if key == detachSecond {
				return send, true
			}
			send = append(send, detachFirst)
		}
		if key == detachFirst {
			d.held = true
			continue
		}
		send = append(send, key)
	}
	return send, false
}
