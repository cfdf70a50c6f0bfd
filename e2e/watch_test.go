package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// backgroundWatch is a watch of a directory that runs in the background.
type backgroundWatch struct {
	changes chan string // each as "kind name"
	ended   chan error
}

// watchDir starts a watch over REST and returns when it has begun.
func watchDir(t *testing.T, ctx context.Context, svc brig.Service, name, dir string, recursive bool) *backgroundWatch {
	t.Helper()
	w, started := &backgroundWatch{make(chan string, 10_000), make(chan error, 1)}, make(chan bool, 1)
	go func() {
		w.ended <- svc.Files(name).Watch(ctx, brig.Path{Name: dir}, recursive, func(c brig.FileChange) error {
			if len(c.Kinds) == 0 {
				started <- true
			}
			for _, k := range c.Kinds {
				w.changes <- string(k) + " " + c.Name
			}
			return nil
		})
	}()
	select {
	case <-started:
	case err := <-w.ended:
		t.Fatalf("watch %s: %v", dir, err)
	case <-time.After(2 * promptTimeout):
		t.Fatalf("the watch of %s does not begin", dir)
	}
	return w
}

// until waits for the change want.
func (w *backgroundWatch) until(t *testing.T, want string) {
	t.Helper()
	var seen []string
	for late := time.After(2 * promptTimeout); ; {
		select {
		case c := <-w.changes:
			if seen = append(seen, c); c == want {
				return
			}
		case err := <-w.ended:
			t.Fatalf("the watch ended with %v after %q", err, seen)
		case <-late:
			t.Fatalf("no %q among %q", want, seen)
		}
	}
}

// TestWatchEndsWithItsDirectory verifies in gVisor that a watch ends with an error when its path
// no longer leads to the watched directory, whatever the cause. The control changes other
// directories, and renames a parent that is not part of the watch's path and restores its name:
// that watch still reports changes.
//
//suite:part core waits
func TestWatchEndsWithItsDirectory(t *testing.T) {
	needRoot(t)
	svc := startServer(t, dataDir(t)).client()
	ctx := t.Context()
	if _, err := svc.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	control := watchDir(t, ctx, svc, "one", "/workspace", true)
	const moved, replaced = "was removed or moved", "took the place"
	for i, c := range []struct{ path, script, want string }{ // an empty want accepts either error, because the script takes two steps
		{"p/w", "rm -r p/w", moved},
		{"p/w", "rm -r p/w; mkdir p/w; echo > p/w/f", ""},
		{"p/w", "mv p/w p/v; echo > p/v/f", moved},
		{"p/w", "mv p/w p/v; mkdir p/w; echo > p/w/f", ""},
		{"p/w", "mv p/w p/v; ln -s $PWD/other p/w", ""},
		{"p/w", "rm -r p/w; echo > p/w", ""},
		{"p/w", "rm -r p", moved},
		{"p/w", "mv p q; echo > q/w/f", moved},
		{"p/w", "mv p q; mkdir -p p/w; echo > p/w/f", ""},
		{"link", "ln -s $PWD/other new && mv -T new link", replaced},
		{"link", "rm link", moved},
	} {
		for _, recursive := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%t", i, recursive), func(t *testing.T) {
				dir := fmt.Sprintf("/tmp/%d-%t", i, recursive)
				shellOut(t, ctx, svc, "one", "mkdir -p "+dir+"/p/w/sub "+dir+"/other && ln -s "+dir+"/p/w "+dir+"/link")
				w := watchDir(t, ctx, svc, "one", dir+"/"+c.path, recursive)
				shellOut(t, ctx, svc, "one", "echo > "+dir+"/p/w/first")
				w.until(t, "create first")
				shellOut(t, ctx, svc, "one", "cd "+dir+" && "+c.script)
				select {
				case err := <-w.ended:
					if brig.KindOf(err) != brig.NotFound || brig.AsError(err).Field != "path" || !strings.Contains(err.Error(), c.want) ||
						!strings.Contains(err.Error(), moved) && !strings.Contains(err.Error(), replaced) {
						t.Errorf("%s: the watch ended with %v", c.script, err)
					}
				case <-time.After(2 * promptTimeout):
					t.Errorf("%s: the watch is silent", c.script)
				}
			})
		}
	}
	shellOut(t, ctx, svc, "one", "mkdir -p /tmp/a/b && mv /tmp/a /tmp/c && mv /tmp/c /tmp/a && echo > /workspace/last")
	control.until(t, "create last")
}

// TestWatchFollowsSubdirectories verifies in gVisor that a recursive watch reports the changes in
// subdirectories that are recreated, moved, replaced by a symbolic link, or made readable.
//
//suite:part core
func TestWatchFollowsSubdirectories(t *testing.T) {
	needRoot(t)
	svc := startServer(t, dataDir(t)).client()
	ctx := t.Context()
	if _, err := svc.Create(ctx, brig.Spec{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	shellOut(t, ctx, svc, "one", "mkdir -p w/sub/deep w/shut out/in && chmod 000 w/shut")
	w := watchDir(t, ctx, svc, "one", "/workspace/w", true)
	for _, c := range []struct{ script, want string }{
		{"rm -r w/sub && mkdir -p w/sub/deep && echo > w/sub/deep/f", "create sub/deep/f"},
		{"echo more >> w/sub/deep/f", "write sub/deep/f"},
		{"chmod 755 w/shut && echo > w/shut/f", "create shut/f"},
		{"mv out w/moved && echo > w/moved/in/f", "create moved/in/f"},
		{"mv w/moved w/again && echo > w/again/in/g", "create again/in/g"},
		{"mv w/again out && echo > out/in/h && echo > w/mark", "create mark"},
		{"rm -r w/sub && ln -s /workspace/out w/sub", "create sub"},
		{"rm w/sub && mkdir w/sub && echo > w/sub/f", "create sub/f"},
	} {
		shellOut(t, ctx, svc, "one", c.script)
		w.until(t, c.want)
	}
}

// TestE2BWatchEnds verifies that E2B's watches of a recreated directory end with an error in
// E2B's format: both the stream and, after the previous events, the polls of a watcher. The
// control is a directory that still exists.
//
//suite:part clients
func TestE2BWatchEnds(t *testing.T) {
	s := startE2B(t)
	var box struct {
		ID    string `json:"sandboxID"`
		Token string `json:"envdAccessToken"`
	}
	s.call(t, http.MethodPost, "/v2/sandboxes", map[string]any{"templateID": "base", "secure": true}, &box)
	svc := s.client()
	call := func(method string, in any, out any) (status int, body string) {
		t.Helper()
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/filesystem.Filesystem/"+method, strings.NewReader(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Content-Type": "application/json", "Connect-Protocol-Version": "1", "E2b-Sandbox-Id": box.ID, "E2b-Sandbox-Port": "49983", "X-Access-Token": box.Token} {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		body = string(all)
		if resp.StatusCode == http.StatusOK && out != nil {
			if err := json.Unmarshal([]byte(body), out); err != nil {
				t.Fatal(err)
			}
		}
		return resp.StatusCode, body
	}
	shellOut(t, t.Context(), svc, box.ID, "mkdir -p /tmp/w /tmp/kept && chmod 777 /tmp/w /tmp/kept")
	id := map[string]string{}
	for _, dir := range []string{"/tmp/w", "/tmp/kept"} {
		var made struct {
			ID string `json:"watcherId"`
		}
		if status, body := call("CreateWatcher", map[string]any{"path": dir}, &made); status != http.StatusOK {
			t.Fatalf("create a watcher of %s: %d %s", dir, status, body)
		}
		id[dir] = made.ID
	}
	started, last := make(chan bool, 1), make(chan string, 1)
	go func() {
		err := s.stream(t, http.DefaultClient, box.ID, box.Token, "/filesystem.Filesystem/WatchDir", map[string]any{"path": "/tmp/w"}, func(m []byte, end bool) bool {
			if strings.Contains(string(m), "start") {
				started <- true
			}
			if end {
				last <- string(m)
			}
			return !end
		})
		if err != nil {
			last <- err.Error()
		}
	}()
	select {
	case <-started:
	case m := <-last:
		t.Fatalf("the stream ended with %s", m)
	}
	shellOut(t, t.Context(), svc, box.ID, "echo > /tmp/w/f && rm -r /tmp/w && mkdir /tmp/w && echo > /tmp/w/g && echo > /tmp/kept/f")
	select {
	case m := <-last:
		if !strings.Contains(m, `"code":"not_found"`) || !strings.Contains(m, "watched directory") {
			t.Errorf("the stream ended with %s", m)
		}
	case <-time.After(2 * promptTimeout):
		t.Error("the stream is silent")
	}
	events := ""
	for deadline := time.Now().Add(2 * promptTimeout); ; {
		status, body := call("GetWatcherEvents", map[string]any{"watcherId": id["/tmp/w"]}, nil)
		if status == http.StatusOK && time.Now().Before(deadline) {
			events += body
			continue
		}
		if status != http.StatusNotFound || !strings.Contains(body, `"code":"not_found"`) || !strings.Contains(body, "watched directory") {
			t.Errorf("the last poll: %d %s", status, body)
		}
		break
	}
	if !strings.Contains(events, `"name":"f"`) {
		t.Errorf("the events before the end were %s", events)
	}
	if status, body := call("GetWatcherEvents", map[string]any{"watcherId": id["/tmp/kept"]}, nil); status != http.StatusOK || !strings.Contains(body, `"name":"f"`) {
		t.Errorf("control: %d %s", status, body)
	}
}

// TestFollowedLogContainsAllOutput verifies that a followed log contains the output of the main program and of
// commands, even incomplete lines, as soon as it is written. It keeps the sandbox alive for many
// times its lease, and ends with the sandbox. The control is a sandbox whose log is read without
// following it.
//
//suite:part core
func TestFollowedLogContainsAllOutput(t *testing.T) {
	s := stopServer(t, startServer(t, dataDir(t), "--pool", "0"))
	c, ctx := s.client(), t.Context()
	for _, name := range []string{"followed", "read"} {
		spec := brig.Spec{Name: name, TTL: 2 * time.Second, Command: &brig.Command{Argv: []string{"sh", "-c", "printf 'no end'; sleep 100000"}}}
		if _, err := c.Create(ctx, spec); err != nil {
			t.Fatal(err)
		}
	}
	r, err := c.Logs(ctx, "followed", brig.LogOptions{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	output := make(chan string, 1000)
	go func() {
		defer close(output)
		for b := make([]byte, 100); ; {
			n, err := r.Read(b)
			if n > 0 {
				output <- string(b[:n])
			}
			if err != nil {
				if err != io.EOF {
					t.Errorf("the log ends with %v", err)
				}
				return
			}
		}
	}()
	got := ""
	until := func(want string) {
		t.Helper()
		for late := time.After(promptTimeout); got != want; {
			select {
			case more, ok := <-output:
				if got += more; !ok {
					t.Fatalf("the log has ended after %q, want %q", got, want)
				}
			case <-late:
				t.Fatalf("the log has %q, want %q", got, want)
			}
		}
	}
	until("no end")
	for deadline := time.Now().Add(promptTimeout); ; {
		read, err := c.Logs(ctx, "read", brig.LogOptions{})
		if err != nil {
			t.Fatal(err)
		}
		read.Close()
		if box, err := c.Get(ctx, "read"); err != nil || time.Now().After(deadline) {
			t.Fatalf("control: %+v, %v", box, err)
		} else if box.State == brig.Ended {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if _, err := c.Exec(ctx, "followed", brig.Command{Argv: []string{"echo", "more"}}, brig.IO{}); err != nil {
		t.Fatal(err)
	}
	until("no endmore\n")
	if _, err := c.Stop(ctx, "followed", 0); err != nil {
		t.Fatal(err)
	}
	for more := range output {
		t.Errorf("at the end: %q", more)
	}
	if status, body := s.do("GET", "/v1/sandboxes/followed/logs/stream?follow=true&tail=1", ""); status != 200 || !strings.Contains(body, `{"event":"log","data":"no endmore\n"}`) || !strings.HasSuffix(body, `{"event":"result"}`+"\n") {
		t.Errorf("of an ended sandbox: %d %s", status, body)
	}
}
