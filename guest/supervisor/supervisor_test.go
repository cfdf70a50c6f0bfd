package supervisor

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig/guest/wire"
	"github.com/brig-run/brig/internal/journal"
)

// serveEmpty starts a supervisor without machines, and returns it with a
// function that connects to it.
func serveEmpty(t testing.TB) (*Supervisor, func() *net.UnixConn) {
	t.Helper()
	k := &Supervisor{dir: t.TempDir(), machines: map[string]*machine{}}
	if err := k.recoverEnded(); err != nil {
		t.Fatal(err)
	}
	l, err := listen(k.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go k.serve(c, l)
		}
	}()
	return k, func() *net.UnixConn {
		c, err := dial(k.dir)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// sendRequest sends a request and returns the first frame of the response.
func sendRequest(t testing.TB, c net.Conn, o wire.SupervisorRequest) wire.Frame {
	t.Helper()
	defer c.Close()
	o.Version = wire.SupervisorVersion
	if err := wire.WriteJSON(c, wire.TypeOrder, o); err != nil {
		t.Fatal(err)
	}
	f, err := wire.NewReader(c).Read()
	if err != nil {
		t.Fatalf("%s: %v", o.Op, err)
	}
	return f
}

// An invalid id is rejected, and files outside the supervisor's directory are
// not touched.
func TestInvalidIDsAreRejected(t *testing.T) {
	k, dial := serveEmpty(t)
	for _, id := range []string{"", ".", "..", "../../x", "/etc", "a/b", "-x", "a b", strings.Repeat("x", 64), "A", "x\x00"} {
		for _, op := range []wire.SupervisorOp{wire.SupervisorCreate, wire.SupervisorDestroy, wire.SupervisorStop, wire.SupervisorLog, wire.SupervisorAgent, wire.SupervisorAppendLog} {
			if f := sendRequest(t, dial(), wire.SupervisorRequest{Op: op, ID: id, Make: &wire.Make{}}); f.Type != wire.TypeError {
				t.Errorf("%s of %q is answered with %d", op, id, f.Type)
			}
		}
	}
	if entries, err := os.ReadDir(filepath.Join(k.dir, machinesDir)); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v", entries, err)
	}
}

// Machines of an earlier supervisor have ended, and keep their exit records.
func TestRecoversEndedMachines(t *testing.T) {
	dir := t.TempDir()
	for id, ending := range map[string]string{"crashed": "", "over": `{"Code":3,"Reason":"exited","AtMS":5}`, "odd": "{"} {
		machineDir := filepath.Join(dir, machinesDir, id)
		if err := os.MkdirAll(machineDir, 0o700); err != nil {
			t.Fatal(err)
		}
		if ending != "" {
			if err := os.WriteFile(filepath.Join(machineDir, endingFile), []byte(ending), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	k := &Supervisor{dir: dir, machines: map[string]*machine{}}
	if err := k.recoverEnded(); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]wire.Ending{"crashed": {Code: 137, Reason: "crashed"}, "odd": {Code: 137, Reason: "crashed"}, "over": {Code: 3, Reason: "exited", AtMS: 5}} {
		e := k.get(id).ended()
		if e == nil || e.Code != want.Code || e.Reason != want.Reason || want.AtMS != 0 && e.AtMS != want.AtMS {
			t.Errorf("%s ended with %+v", id, e)
		}
	}
}

// Connect rejects a directory of another user, and a directory that others can
// access.
func TestConnectRejectsForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	private, open, link := filepath.Join(dir, "own"), filepath.Join(dir, "open"), filepath.Join(dir, "link")
	for name, mode := range map[string]os.FileMode{private: 0o700, open: 0o755} {
		if err := os.Mkdir(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	if err := checkOwner(private); err != nil {
		t.Errorf("of one's own: %v", err)
	}
	for _, name := range []string{open, link, "/proc/1", filepath.Join(dir, "none")} {
		if checkOwner(name) == nil {
			t.Errorf("%s is one's own", name)
		}
	}
}

func TestSendLogMarksLinesWithTimes(t *testing.T) {
	m := newMachine(&Supervisor{dir: t.TempDir()}, "x")
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"one ", "line\n\n", "unfinished"} {
		if err := journal.Append(m.logFile(), []byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	for timed, want := range map[bool]int{false: 0, true: 3} {
		ours, theirs := net.Pipe()
		go func() { m.sendLog(theirs, timed); theirs.Close() }()
		var text strings.Builder
		for r := wire.NewReader(ours); ; {
			f, err := r.Read()
			if err != nil || f.Type != wire.TypeFileData {
				break
			}
			text.Write(f.Payload)
		}
		stamps := 0
		plain := strings.Split(text.String(), "\n")
		for i, line := range plain {
			if stamp, rest, ok := strings.Cut(line, " "); ok && timed {
				if _, err := time.Parse(time.RFC3339, stamp); err == nil {
					plain[i] = rest
					stamps++
				}
			}
		}
		if got := strings.Join(plain, "\n"); got != "one line\n\nunfinished" || stamps != want {
			t.Errorf("with times %v: %q, %d of them", timed, text.String(), stamps)
		}
	}
}

// If the log exceeds its limit, its end is kept.
func TestJournalKeepsEnd(t *testing.T) {
	m := newMachine(&Supervisor{dir: t.TempDir()}, "x")
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 70 {
		if err := journal.Append(m.logFile(), []byte(strings.Repeat("x", 1<<20-1)+"\n")); err != nil {
			t.Fatal(err)
		}
	}
	if err := journal.Append(m.logFile(), []byte("the end\n")); err != nil {
		t.Fatal(err)
	}
	for _, timed := range []bool{false, true} {
		ours, theirs := net.Pipe()
		go func() { m.sendLog(theirs, timed); theirs.Close() }()
		size, last := 0, ""
		for r := wire.NewReader(ours); ; {
			f, err := r.Read()
			if err != nil || f.Type != wire.TypeFileData {
				break
			}
			size, last = size+len(f.Payload), string(f.Payload)
		}
		if size > 64<<20 || !strings.HasSuffix(last, "the end\n") {
			t.Errorf("with times %v: of %d bytes the last are %.40q", timed, size, last[max(0, len(last)-40):])
		}
	}
}

// A relayed connection ends when its host disconnects, even if no local process closes it.
func TestRelayEndsWithHost(t *testing.T) {
	dir := t.TempDir()
	l, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, b := net.Pipe()
	host, agent := wire.NewMux(a, false), wire.NewMux(b, true)
	defer host.Close()
	defer agent.Close()
	c, err := host.Open()
	if err != nil {
		t.Fatal(err)
	}
	call, err := agent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { relay(call, dir); close(done) }()
	held, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(held); err != nil {
		t.Errorf("what has ended for one: %v", err)
	}
	if _, err := held.Write([]byte("more")); err != nil {
		t.Errorf("what goes on for the other: %v", err)
	}
	if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
		t.Errorf("what goes on for the other: %v", err)
	}
	c.Close()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it is still carried")
	}
}

// FuzzOrder checks that the supervisor responds to any request or disconnects, and continues to
// run.
func FuzzOrder(f *testing.F) {
	for _, o := range []wire.SupervisorRequest{{Op: wire.SupervisorList}, {Op: wire.SupervisorDestroy, ID: "../x"}, {Op: wire.SupervisorWatch, ID: "a"}, {Op: "odd", Version: 9}} {
		b, err := json.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	_, dial := serveEmpty(f)
	f.Fuzz(func(t *testing.T, order []byte) {
		if strings.Contains(strings.ToLower(string(order)), "quit") || strings.Contains(strings.ToLower(string(order)), "make") || len(order) > wire.MaxPayload {
			return // these orders create machines or end the supervisor
		}
		c := dial()
		defer c.Close()
		if wire.Write(c, wire.TypeOrder, order) != nil {
			return
		}
		_ = c.CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("%q: %v", order, err)
		}
	})
}
