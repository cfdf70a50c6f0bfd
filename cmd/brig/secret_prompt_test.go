package main

import (
	"bytes"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// display records the output of a terminal.
type display struct {
	mu     sync.Mutex // guards the field below
	output []byte
}

func (s *display) monitor(master *os.File) {
	for buf := make([]byte, 1024); ; {
		n, err := master.Read(buf)
		s.mu.Lock()
		s.output = append(s.output, buf[:n]...)
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *display) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Contains(s.output, []byte(text))
}

// eventually waits for an effect of another goroutine or the kernel.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestSecretPromptHidesValue checks that a typed secret is not echoed. As a control, the same
// terminal echoes other input.
func TestSecretPromptHidesValue(t *testing.T) {
	master, tty := openPTY(t)
	var s display
	go s.monitor(master)
	write := func(line string) {
		if _, err := master.WriteString(line + "\n"); err != nil {
			t.Error(err)
		}
	}
	go func() {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			if err != nil || mode.Lflag&unix.ECHO == 0 {
				break
			}
		}
		write("swordfish-hidden")
	}()
	c := &cli{stdin: tty, stderr: tty}
	got, err := secretCommands{c}.readValue("", "")
	if err != nil || string(got) != "swordfish-hidden" {
		t.Fatalf("%q, %v", got, err)
	}
	write("swordfish-control")
	eventually(t, "the control is shown", func() bool { return s.has("swordfish-control") })
	if !s.has("Value (hidden)") || s.has("swordfish-hidden") {
		t.Errorf("the terminal shows %q", s.output)
	}
}
