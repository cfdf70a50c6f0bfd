package remote_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/remote"
)

// TestRemoteDataIsBounded checks that data from a remote service has the same size limits
// as data from a local sandbox, and that file names cannot escape their directory.
func TestRemoteDataIsBounded(t *testing.T) {
	big := bytes.Repeat([]byte("x"), 9*brig.MiB)
	o := &brig.Outcome{Value: append(append(json.RawMessage(`"`), big...), '"')}
	o.Stdout = brig.Output{Head: big, Tail: big, Total: 3}
	o.Stderr = brig.Output{Head: []byte("fits"), Total: 400}
	for range 30 {
		o.Artifacts = append(o.Artifacts, brig.File{Path: "a.csv", Data: []byte("x")})
	}
	for _, bad := range []string{"../a.csv", "/etc/a.csv", "a/../../b.csv", "a.exe", "a\x00.csv", `..\a.csv`, "", strings.Repeat("a", 2000) + ".csv", "./a.csv", "..", "../.csv"} {
		if brig.IsArtifactName(bad) {
			t.Errorf("%q may come out", brig.Clip(bad, 60))
		}
	}
	for _, good := range []string{"deep/plot.PNG", "..plot.csv", "a/..b/c.csv"} {
		if !brig.IsArtifactName(good) {
			t.Errorf("%s may not come out", good)
		}
	}
	for range 500 {
		o.Skipped = append(o.Skipped, strings.Repeat("s", 5000))
	}
	remote.LimitOutcome(o, brig.Program{Limits: brig.Limits{Output: 1000}})
	if len(o.Stdout.Head)+len(o.Stdout.Tail) != 1000 || o.Stdout.Total != 18*brig.MiB {
		t.Errorf("stdout has %d and %d of %d bytes", len(o.Stdout.Head), len(o.Stdout.Tail), o.Stdout.Total)
	}
	if string(o.Stderr.Head) != "fits" || o.Stderr.Total != 400 {
		t.Errorf("stderr is %+v", o.Stderr)
	}
	if o.Value != nil || o.Error == nil || o.Error.Name != "ValueTooLarge" || o.ExitCode == 0 {
		t.Errorf("a large value: %d bytes, %+v", len(o.Value), o.Error)
	}
	if len(o.Artifacts) != brig.MaxArtifacts || len(o.Skipped) != 100 || len(o.Skipped[0]) > 300 {
		t.Errorf("%d artifacts, %d skipped, the first of %d bytes", len(o.Artifacts), len(o.Skipped), len(o.Skipped[0]))
	}
	o = &brig.Outcome{Error: &brig.ProgramError{Name: string(big), Message: string(big), Traceback: string(big), Hint: string(big)}}
	remote.LimitOutcome(o, brig.Program{})
	if n := len(o.Error.Name) + len(o.Error.Message) + len(o.Error.Traceback) + len(o.Error.Hint); n > 30000 {
		t.Errorf("an error of %d bytes", n)
	}
}
