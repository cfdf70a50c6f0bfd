package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/testenv"
)

// TestWorkspaceScale verifies that a workspace transfers 10,000 files and one large file, of 1
// GiB at full size, to the next sandbox. It logs the duration, but does not limit it.
//
//suite:part workspaces full
func TestWorkspaceScale(t *testing.T) {
	e, b, _ := withWorkspaces(t)
	large := int64(testenv.Size(64*brig.MiB, brig.GiB))
	if _, err := e.CreateWorkspace(b.ctx, "data"); err != nil {
		t.Fatal(err)
	}
	limits := brig.Limits{Disk: 4 * brig.GiB, Memory: 2 * brig.GiB, CPUs: 2}
	took := func(what string, f func()) {
		begin := time.Now()
		f()
		t.Logf("%s: %v", what, time.Since(begin).Round(time.Millisecond))
	}
	commit := func(box string, files int, size int64) {
		c, err := e.CommitWorkspace(b.ctx, box)
		if err != nil || c.Version.Files != files || c.Version.Size != size {
			t.Fatalf("%+v, %v", c, err)
		}
	}
	b.create(brig.Spec{Name: "many", Limits: limits, Workspace: brig.WorkspaceUse{Name: "data"}})
	b.sh("many", `python3 -c "
import os
for d in range(100):
    os.mkdir(f'd{d}')
    for i in range(100): open(f'd{d}/f{i}', 'w').write(f'{d} {i} ' + 'x' * 1000)
"`)
	const sum = `find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum`
	want := b.sh("many", sum)
	size := int64(0)
	for d := range 100 {
		for i := range 100 {
			size += int64(len(fmt.Sprintf("%d %d ", d, i)) + 1000)
		}
	}
	took("commit 10,000 files", func() { commit("many", 10_000, size) })
	took("commit them again", func() { commit("many", 10_000, size) })
	took("create a sandbox with 10,000 files", func() {
		b.create(brig.Spec{Name: "next", Limits: limits, Workspace: brig.WorkspaceUse{Name: "data"}})
	})
	if got := b.sh("next", sum); got != want {
		t.Errorf("10,000 files are %s, want %s", got, want)
	}
	b.sh("next", fmt.Sprintf("head -c %d /dev/urandom > large", large))
	want = b.sh("next", "sha256sum large")
	took("commit "+brig.FormatBytes(large), func() { commit("next", 10_001, size+large) })
	took("create a sandbox with "+brig.FormatBytes(large), func() {
		b.create(brig.Spec{Name: "last", Limits: limits, Workspace: brig.WorkspaceUse{Name: "data"}})
	})
	if got := b.sh("last", "sha256sum large"); got != want {
		t.Errorf("the large file is %s, want %s", got, want)
	}
}
