package providertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/brig-run/brig"
)

// backgroundWatch is a watch that runs in the background.
type backgroundWatch struct {
	changes chan brig.FileChange
	ended   chan error
	stop    context.CancelFunc
}

// watch starts a watch and returns when it is active.
func watch(t *testing.T, fs brig.Files, dir string, recursive bool) *backgroundWatch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &backgroundWatch{make(chan brig.FileChange, 10_000), make(chan error, 1), cancel}
	t.Cleanup(cancel)
	go func() {
		w.ended <- fs.Watch(ctx, at(dir), recursive, func(c brig.FileChange) error { w.changes <- c; return nil })
	}()
	select {
	case c := <-w.changes:
		if len(c.Kinds) != 0 || c.Name != "" || c.Entry != nil {
			t.Fatalf("the first change is %+v", c)
		}
	case err := <-w.ended:
		t.Fatalf("watch %s: %v", dir, err)
	case <-time.After(waitTimeout):
		t.Fatal("the watch does not begin")
	}
	return w
}

// until collects changes, each as "kind name", up to and including the change
// last.
func (w *backgroundWatch) until(t *testing.T, last string) (out []string) {
	t.Helper()
	for expired := time.After(waitTimeout); ; {
		select {
		case c := <-w.changes:
			if len(c.Kinds) != 1 {
				t.Errorf("%+v", c)
			}
			s := fmt.Sprintf("%s %s", c.Kinds[0], c.Name)
			if e := c.Entry; e != nil && (!strings.HasSuffix(e.Path, "/"+c.Name) || e.Type == "") {
				t.Errorf("%s: %+v", s, e)
			}
			out = append(out, s)
			if s == last {
				return out
			}
		case err := <-w.ended:
			t.Fatalf("the watch ended with %v after %q", err, out)
		case <-expired:
			t.Fatalf("no %q among %q", last, out)
		}
	}
}

// wantGone checks that the watch ends with the error for a removed directory.
func (w *backgroundWatch) wantGone(t *testing.T) {
	t.Helper()
	for expired := time.After(waitTimeout); ; {
		select {
		case <-w.changes:
			continue
		case err := <-w.ended:
			if brig.KindOf(err) != brig.NotFound || brig.AsError(err).Field != "path" {
				t.Errorf("the watch ended with %v", err)
			}
		case <-expired:
			t.Error("the watch does not end with its directory")
		}
		return
	}
}

// expectChanges checks that a script causes these changes in order, possibly
// among others.
func (w *backgroundWatch) expectChanges(t *testing.T, in brig.Instance, script string, want ...string) {
	t.Helper()
	sh(t, in, script)
	got := w.until(t, want[len(want)-1])
	i := 0
	for _, g := range got {
		if g == want[i] {
			i++
		}
	}
	if i != len(want) {
		t.Errorf("%s: saw %q, want %q", script, got, want)
	}
}

func testFilesWatch(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	for _, dir := range []string{"/workspace/w", "/tmp/w"} {
		sh(t, in, "mkdir "+dir+" "+dir+"/old && ln -sfn "+dir+" /workspace/link")
		w := watch(t, fs, dir, false)
		sh(t, in, "echo unseen > "+dir+"/old/f")
		w.expectChanges(t, in, "cd "+dir+" && echo 1 > f", "create f", "write f")
		w.expectChanges(t, in, "cd "+dir+" && echo 2 >> f", "write f")
		w.expectChanges(t, in, "cd "+dir+" && chmod 600 f", "chmod f")
		w.expectChanges(t, in, "cd "+dir+" && mv f g", "rename f", "create g")
		w.expectChanges(t, in, "cd "+dir+" && rm g", "remove g")
		w.expectChanges(t, in, "cd "+dir+" && mkdir d && rmdir d", "create d", "remove d")
		w.expectChanges(t, in, "cd "+dir+" && echo > ../x && mv ../x in && ln -s in l && mkfifo p", "create in", "create l", "create p")
		w.expectChanges(t, in, "cd "+dir+" && mv in ../gone", "rename in")
		// Watches also report the agent's own changes.
		write(t, fs, dir+"/api", "x")
		if got := w.until(t, "write api"); !slices.Contains(got, "create api") {
			t.Errorf("saw %q", got)
		}
		if err := fs.Remove(t.Context(), at(dir+"/api")); err != nil {
			t.Error(err)
		}
		if got := w.until(t, "remove api"); slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "old/") }) {
			t.Errorf("saw what is below: %q", got)
		}
		through := watch(t, fs, "/workspace/link", false)
		through.expectChanges(t, in, "echo > "+dir+"/via", "create via")
		w.until(t, "create via")
		w.stop()
		select {
		case err := <-w.ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		case <-time.After(waitTimeout):
			t.Error("it does not end")
		}
		// A watch reports the removal of the directory's files, and then ends.
		sh(t, in, "rm -r "+dir)
		through.until(t, "remove via")
		through.wantGone(t)
	}
	alive(t, in)
}

func testFilesWatchRecursive(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	sh(t, in, "mkdir -p w/old/er")
	w := watch(t, fs, "/workspace/w", true)
	w.expectChanges(t, in, "echo 1 > w/old/er/f", "create old/er/f", "write old/er/f")
	// Files created immediately in a new directory are reported once.
	w.expectChanges(t, in, "mkdir -p w/new/a/b && echo 1 > w/new/a/b/f && mkdir w/new/c", "create new", "create new/a", "create new/a/b", "create new/a/b/f")
	time.Sleep(200 * time.Millisecond)
	w.expectChanges(t, in, "echo 2 >> w/new/a/b/f && echo > w/new/c/g && echo > w/mark1", "write new/a/b/f", "create new/c/g", "create mark1")
	// A moved directory is watched under its new name only.
	w.expectChanges(t, in, "mv w/new w/moved", "rename new", "create moved", "create moved/a", "create moved/a/b/f")
	w.expectChanges(t, in, "echo 3 >> w/moved/a/b/f && rm w/moved/c/g && echo > w/mark2", "write moved/a/b/f", "remove moved/c/g", "create mark2")
	sh(t, in, "mv w/moved out && echo unseen >> out/a/b/f")
	w.expectChanges(t, in, "echo > w/mark3", "rename moved", "create mark3")
	sh(t, in, "ln -s /workspace/out w/link && echo > out/unseen")
	if got := w.until(t, "create link"); len(got) > 2 {
		t.Errorf("saw %q", got)
	}
	w.expectChanges(t, in, "rm -r w/old && echo > w/mark4", "remove old/er/f", "remove old/er", "remove old", "create mark4")
	// Each of many names is reported once.
	sh(t, in, "for i in $(seq 1 30); do mkdir -p w/m/$i && : > w/m/$i/f; done; echo > w/last")
	seen := map[string]int{}
	for len(seen) < 62 {
		select {
		case c := <-w.changes:
			if slices.Contains(c.Kinds, brig.Created) {
				seen[c.Name]++
			}
		case <-time.After(waitTimeout):
			t.Fatalf("only %v were seen", seen)
		}
	}
	for name, n := range seen {
		if n != 1 {
			t.Errorf("%s was created %d times", name, n)
		}
	}
}

func testFilesWatchBad(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	write(t, fs, "/workspace/f", "")
	never := func(c brig.FileChange) error { return fmt.Errorf("told of %+v", c) }
	refused(t, "of nothing", fs.Watch(t.Context(), at("/workspace/none"), false, never), brig.NotFound)
	refused(t, "of a file", fs.Watch(t.Context(), at("/workspace/f"), true, never), brig.InvalidArgument)
	errStop := errors.New("enough")
	if err := fs.Watch(t.Context(), at("/workspace"), false, func(brig.FileChange) error { return errStop }); !errors.Is(err, errStop) {
		t.Errorf("%v", err)
	}
	// Watches release their resources when they end: the test opens far more
	// watches than may be open at the same time.
	for range 300 {
		_ = fs.Watch(t.Context(), at("/workspace"), true, func(brig.FileChange) error { return errStop })
	}
	ended := make(chan error, 1)
	on := make(chan bool, 1)
	go func() {
		ended <- fs.Watch(t.Context(), at("/workspace"), false, func(brig.FileChange) error { on <- true; return nil })
	}()
	<-on
	if err := in.Stop(t.Context(), 0, brig.Killed); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the machine has ended, and the watch without an error")
		}
	case <-time.After(waitTimeout):
		t.Error("the machine has ended, and the watch goes on")
	}
}

// testFilesWatchFlood checks that the sandbox limits the number of stored
// changes if the host does not read them.
func testFilesWatchFlood(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	ended, on, held := make(chan error, 1), make(chan bool, 1), make(chan bool)
	first := true
	go func() {
		ended <- fs.Watch(t.Context(), at("/workspace"), false, func(brig.FileChange) error {
			if first {
				first = false
				on <- true
				<-held
			}
			return nil
		})
	}()
	<-on
	// Use renames, because they cause changes without using inodes.
	sh(t, in, `python3 -c "
import os
open('a', 'w')
for i in range(15000): os.rename('a', 'b'); os.rename('b', 'a')"`)
	close(held)
	select {
	case err := <-ended:
		if brig.KindOf(err) != brig.FailedPrecondition || !strings.Contains(err.Error(), "too many changes") {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(2 * waitTimeout):
		t.Error("the watch goes on")
	}
	alive(t, in)
}

// testFilesWatchOwner checks that a watch reports a file created for the user
// only when the user owns it.
func testFilesWatchOwner(t *testing.T, h Harness) {
	_, in := create(t, h, nil)
	fs := in.Files()
	if _, err := fs.MakeDir(t.Context(), at("/workspace/w")); err != nil {
		t.Fatal(err)
	}
	w := watch(t, fs, "/workspace/w", true)
	const n = 100
	var writer sync.WaitGroup
	defer writer.Wait()
	writer.Go(func() {
		for i := range n {
			if _, err := fs.Write(t.Context(), at(fmt.Sprintf("/workspace/w/d%d/f", i)), brig.FileWrite{}, strings.NewReader("x")); err != nil {
				t.Error(err)
				return
			}
		}
	})
	owners, expired := map[string]int{}, time.After(4*waitTimeout)
	for made := 0; made < 2*n; {
		select {
		case c := <-w.changes:
			if slices.Contains(c.Kinds, "create") {
				made++
			}
			if c.Entry != nil {
				owners[c.Entry.Owner]++
			}
		case err := <-w.ended:
			t.Fatalf("the watch ended: %v", err)
		case <-expired:
			t.Fatalf("%d of %d were told of", made, 2*n)
		}
	}
	if len(owners) != 1 || owners["user"] == 0 {
		t.Errorf("the owners were %v", owners)
	}
}
