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

// These keys detach from a process, as in docker.
const (
	detachFirst  = 'P' - '@' // Ctrl-P
	detachSecond = 'Q' - '@' // Ctrl-Q
)

// errDetached is the result of a session from which the user detached.
var errDetached = errors.New("detached")

// session connects the user's terminal to the terminal of a process.
type session struct {
	in   *os.File // the user's terminal
	out  io.Writer
	proc brig.Processes
	pid  int
}

// run forwards keys and output between the terminals until the process ends,
// and returns its result. It displays the output of the process from the given
// offset, and always restores the user's terminal.
func (s *session) run(ctx context.Context, from int64) (end *brig.Result, err error) {
	fd := int(s.in.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, brig.Errorf(brig.FailedPrecondition, "cannot use the terminal").Because(err)
	}
	restore := sync.OnceFunc(func() { _ = term.Restore(fd, before) }) // there is no way to report an error
	defer restore()
	// These signals would kill this process before it restores the terminal.
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP, syscall.SIGQUIT)
	defer stop()
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	guarded := func(f func()) {
		defer func() {
			if p := recover(); p != nil {
				restore() // a panic in another goroutine does not run our deferred calls
				panic(p)
			}
		}()
		f()
	}
	go guarded(func() { leave(s.sendKeys(ctx)) })
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
		err = cause // report the cause that ended the session
	}
	return end, err
}

// sendKeys sends typed bytes to the process until the process ends, ctx ends, or
// the user detaches. It returns nil if the process has ended, because Attach
// returns the result.
func (s *session) sendKeys(ctx context.Context) error {
	var d detachDetector
	buf := make([]byte, 4096)
	for {
		n, err := s.in.Read(buf)
		send, isDetached := d.scanTyped(buf[:n])
		if len(send) > 0 {
			switch err := s.proc.WriteInput(ctx, s.pid, send); brig.KindOf(err) {
			case "":
			case brig.NotFound, brig.FailedPrecondition:
				<-ctx.Done()
				return nil
			default:
				return err
			}
		}
		if isDetached || err != nil { // a closed terminal counts as detached
			return errDetached
		}
	}
}

// follow sends the size of the user's terminal to the process, now and after
// every change.
func (s *session) follow(ctx context.Context) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	for {
		if size, ok := sizeOf(s.in); ok {
			_ = s.proc.Resize(ctx, s.pid, size) // after an error the session continues with the old size
		}
		select {
		case <-ctx.Done():
			return
		case <-resized:
		}
	}
}

// sizeOf returns the size of a terminal. It returns false for a terminal
// without a size.
func sizeOf(f *os.File) (brig.Terminal, bool) {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w < 1 || h < 1 || w > 0xffff || h > 0xffff {
		return brig.Terminal{Columns: 80, Rows: 24}, false
	}
	return brig.Terminal{Columns: uint16(w), Rows: uint16(h)}, true
}

// detachDetector finds the detach keys in typed bytes. It holds back the first detach key until the
// next key arrives.
type detachDetector struct{ held bool }

// scanTyped returns the bytes to send, and whether the user detaches.
func (d *detachDetector) scanTyped(typed []byte) (send []byte, isDetached bool) {
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
