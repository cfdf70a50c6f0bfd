package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// TestPauseEndsPassiveCalls verifies that a pause ends the calls that only wait or transfer data:
// attached processes, file watches and connections to ports. These calls report that the sandbox
// was paused, and later calls resume it.
//
//suite:part core
func TestPauseEndsPassiveCalls(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	if _, err := e.Create(ctx, brig.Spec{Name: "one", Pausable: true}); err != nil {
		t.Fatal(err)
	}
	listen := "import socket\ns = socket.create_server(('127.0.0.1', 8000))\nprint('listens', flush=True)\nkept = []\nwhile True: kept.append(s.accept())"
	proc, err := e.Processes("one").Start(ctx, brig.ProcessSpec{Command: brig.Command{Argv: []string{"python3", "-c", listen}}})
	if err != nil {
		t.Fatal(err)
	}
	listens := make(chan bool, 1)
	ended := map[string]chan error{"attach": make(chan error, 1), "watch": make(chan error, 1), "connection": make(chan error, 1)}
	go func() {
		ended["attach"] <- e.Processes("one").Attach(ctx, proc.PID, 0, func(ev brig.ProcessEvent) error {
			if strings.Contains(string(ev.Output), "listens") {
				listens <- true
			}
			return nil
		})
	}()
	watches := make(chan bool, 1)
	go func() {
		ended["watch"] <- e.Files("one").Watch(ctx, brig.Path{Name: "/workspace"}, false, func(brig.FileChange) error {
			select {
			case watches <- true:
			default:
			}
			return nil
		})
	}()
	<-listens
	for seen := false; !seen; {
		shellOut(t, ctx, e, "one", "touch /workspace/file")
		select {
		case seen = <-watches:
		case <-time.After(50 * time.Millisecond): // the watch had not begun yet
		}
	}
	conn, err := e.Dial(ctx, "one", 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, err := conn.Read(make([]byte, 1))
		ended["connection"] <- err
	}()
	if _, err := e.Pause(ctx, "one", brig.PauseOptions{}); err != nil {
		t.Fatalf("pause: %v", err)
	}
	for what, c := range ended {
		select {
		case err := <-c:
			if err == nil || what != "connection" && brig.KindOf(err) != brig.Unavailable {
				t.Errorf("%s ended with %v", what, err)
			}
		case <-time.After(2 * promptTimeout):
			t.Errorf("%s has not ended", what)
		}
	}
	second, err := e.Dial(ctx, "one", 8000)
	if err != nil {
		t.Fatalf("connect after the pause: %v", err)
	}
	second.Close()
	if now, err := e.Get(ctx, "one"); err != nil || now.State != brig.Running {
		t.Errorf("after a connection it is %+v, %v", now, err)
	}
}
