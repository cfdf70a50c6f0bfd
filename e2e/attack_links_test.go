package e2e

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/attack"
	"github.com/brig-run/brig/internal/testenv"
)

// outside creates a directory that only root may change, with files whose names do not exist
// elsewhere.
const outside = "mkdir -p /home/outside/deep && echo outside > /home/outside/mark && echo outside > /home/outside/taken.csv && echo outside > /home/outside/deep/taken && chmod -R a+rX /home/outside"

// TestAttackOpensFollowNoLink verifies that opening a directory inside gVisor, thousands of
// times, never follows a symbolic link with which a program swaps the directory. The control is
// os.Root, which follows the link inside gVisor.
//
//suite:part hostile
func TestAttackOpensFollowNoLink(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, dataDir(t))
	m := newMachine(t, p, images, "opens", nil)
	m.sh("root", outside)
	rounds := testenv.Size(3000, 20_000)
	f := m.facts("user", "opens", "/workspace/race", "/home/outside", strconv.Itoa(rounds))
	t.Logf("%v", f)
	number := func(name string) int {
		n, err := strconv.Atoi(f[name])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	escaped := false
	for _, variant := range []string{"nofollow", "nofollow.walk"} {
		if n := number(variant + ".outside"); n > 0 {
			escaped = true
			t.Errorf("%s led outside %d times", variant, n)
		}
		if number(variant+".inside") < rounds/20 || number(variant+".refused") < rounds/20 {
			t.Errorf("%s was not raced for: %d inside, %d refused", variant, number(variant+".inside"), number(variant+".refused"))
		}
	}
	leaked := number("root.outside") + number("root.path.outside")
	if leaked == 0 {
		t.Error("os.Root did not lead outside once: the race shows nothing, or gVisor has changed")
	}
	attack.RecordCase("FS-02", fmt.Sprintf("%d opens inside gVisor while a directory is exchanged for a link", 2*rounds), escaped)
	attack.RecordMutant("FS-02", "os.Root inside gVisor", "opening without O_DIRECTORY", leaked > 0)
}

// TestAttackTreesFollowNoLink verifies that the agent's operations on a tree, with root's
// permissions and with the agent's own, never affect files outside the tree. Meanwhile, a program
// swaps a directory of the tree with a symbolic link to a directory that only root may change.
//
//suite:part hostile
func TestAttackTreesFollowNoLink(t *testing.T) {
	needRoot(t)
	p, images := newProvider(t, dataDir(t))
	m := newMachine(t, p, images, "trees", func(s *brig.Spec) { s.Limits.CPUs = 2 })
	m.sh("root", outside)
	m.sh("user", "mkdir /workspace/race; chmod 777 /workspace/race")
	swapper, err := m.Start(t.Context(), "swap", brig.Command{Argv: []string{probe, "swap", "/workspace/race", "/home/outside"}}, brig.Streams{})
	if err != nil {
		t.Fatal(err)
	}
	defer swapper.Close()
	if from, printed, err := swapper.Receive(); err != nil || from != brig.FromStdout || !strings.Contains(string(printed), "ready") {
		t.Fatalf("%v %q %v", from, printed, err)
	}
	fs := m.Files()
	root := func(name string) brig.Path { return brig.Path{Name: name, User: "root"} }
	before := m.sh("root", "cd /home/outside && find . | sort && stat -c '%n %U %a %Y' . mark deep deep/taken taken.csv")
	led := func(what, name string) {
		if strings.Contains(name, "taken") || strings.HasSuffix(name, "here/deep") {
			t.Errorf("%s led to %s", what, name)
		}
	}
	outcomes := map[string]int{} // outcomes of the operations, by operation and kind of error
	// note records the outcome of an operation.
	note := func(op string, err error) { outcomes[op+" "+string(brig.KindOf(err))]++ }
	for i := range testenv.Size(12, 200) {
		if t.Failed() {
			break
		}
		for range 20 {
			es, err := fs.List(t.Context(), root("/workspace/race"), 4)
			note("list", err)
			for _, e := range es {
				led("a listing", e.Path)
				if e.Name == "here" {
					outcomes["list finds a "+string(e.Type)]++
				}
			}
			note("pack", m.Pack(t.Context(), "/workspace/race", func(n brig.Node, r io.Reader) error {
				led("a workspace's commit", n.Path)
				if n.Path == "here" && n.Skipped == "" {
					outcomes["pack finds a "+string(n.Type)]++
				}
				return nil
			}))
		}
		note("changed", m.Changed(t.Context(), []string{"/workspace/race/here", "/workspace/race"}, time.Unix(0, 0), func(n brig.Node, r io.Reader) error {
			led("what has changed", n.Path)
			return nil
		}))
		files, _, err := m.Collect(t.Context(), "/workspace/race/here")
		note("collect", err)
		for _, f := range files {
			led("artifacts", f.Path)
		}
		note("put", m.Put(t.Context(), "/workspace/race", []brig.File{{Path: "here/put", Data: []byte("put")}, {Path: "here/made/put", Data: []byte("put")}}))
		note("unpack", m.Unpack(t.Context(), "/workspace/race", brig.UnpackOptions{}, func(put func(brig.Node, io.Reader) error) error {
			for _, n := range []brig.Node{{Path: "here", Type: brig.Directory, Mode: 0o777}, {Path: "here/unpacked", Type: brig.RegularFile, Mode: 0o644}} {
				if err := put(n, strings.NewReader("")); err != nil {
					return err
				}
			}
			return nil
		}))
		if i%4 == 0 { // move to another file system, which requires a copy and a removal
			m.sh("user", "mkdir -p /workspace/race/here 2>/dev/null; ln -s /home/outside /workspace/race/link 2>/dev/null; true")
			to := fmt.Sprintf("/tmp/moved%d", i)
			_, err := fs.Move(t.Context(), root("/workspace/race/here"), root(to))
			note("move", err)
			if out := m.sh("root", "cd /tmp && if [ -L "+to+" ]; then echo link; else find "+to+" 2>/dev/null; fi; true"); strings.Contains(out, "taken") {
				t.Errorf("a move led outside: %s", out)
			}
		}
		note("remove", fs.Remove(t.Context(), root("/workspace/race/here")))
		m.sh("user", "cd /workspace/race && if [ ! -d here ] && [ ! -d spare ]; then mkdir -p here; fi; [ -L link ] || [ -L here ] || ln -s /home/outside link; echo inside > here/mark 2>/dev/null; true")
	}
	if after := m.sh("root", "cd /home/outside && find . | sort && stat -c '%n %U %a %Y' . mark deep deep/taken taken.csv"); after != before {
		t.Errorf("outside was\n%s\nand is\n%s", before, after)
	}
	if outcomes["list finds a directory"] == 0 || outcomes["list finds a symlink"] == 0 {
		t.Errorf("nothing was raced for: %v", outcomes)
	}
	t.Logf("%v", outcomes)
	attack.RecordCase("FS-02", "listing, packing, collecting, putting, moving and removing while a directory is exchanged for a link", t.Failed())
	watchFollowsNoLink(t, m)
}

// watchFollowsNoLink verifies that a watch of a tree does not report changes in an outside
// directory while a directory of the tree is swapped with a symbolic link to it.
func watchFollowsNoLink(t *testing.T, m *machine) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, started := make(chan error, 1), make(chan struct{}, 1)
	seen := 0
	go func() {
		ended <- m.Files().Watch(ctx, brig.Path{Name: "/workspace/race", User: "root"}, true, func(c brig.FileChange) error {
			if len(c.Kinds) == 0 {
				started <- struct{}{}
				return nil
			}
			seen++
			if strings.Contains(c.Name, "taken") {
				t.Errorf("a watch led to %s: %v", c.Name, c.Kinds)
			}
			return nil
		})
	}()
	select {
	case <-started:
	case err := <-ended:
		t.Fatalf("watch: %v", err)
	}
	for i := range 30 {
		m.sh("root", fmt.Sprintf("echo more >> /home/outside/taken.csv; touch /home/outside/deep/taken /home/outside/taken%d; mkdir /workspace/race/d%d", i, i))
	}
	cancel()
	<-ended
	if seen == 0 {
		t.Error("the watch saw nothing")
	}
}
