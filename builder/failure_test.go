package builder_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/builder"
)

// The failure of a command has its reason, also if the command has written it to its standard output, and the
// remedy if the disk is full. It is no failure of the server, so the operator's log does not have it.
func TestFailureHasReason(t *testing.T) {
	var log bytes.Buffer
	f := newFixture(t, nil, func(o *builder.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	f.service.output = map[string]string{
		"apt-get": "Unpacking\ndpkg: error: no such package\n", "cp": "cp: No space left on device", "npm": "ENOSPC: no space left on device, write\n",
	}
	f.service.run = func(context.Context, *brig.Sandbox, string) (int, error) { return 100, nil }
	ctx := as(t, "acme")
	const full = "have 1GiB of disk space; request more free space"
	for command, want := range map[string]string{
		"apt-get": "exit status 100: Unpacking\ndpkg: error: no such package", "cp": full, "npm": full, "silent": "exit status 100",
	} {
		x := f.wait(t, ctx, f.start(t, ctx, "web", run(command)))
		if x.Failure == nil || !strings.Contains(x.Failure.Message, want) || strings.Contains(x.Failure.Message, full) != (want == full) {
			t.Errorf("%s: %+v, want %q", command, x.Failure, want)
		}
	}
	if f.Close(); log.Len() > 0 {
		t.Errorf("the operator's log: %s", log.String())
	}
}

// A request for free disk space adds to the default, up to the maximum.
func TestFreeDisk(t *testing.T) {
	f := newFixture(t, nil, nil)
	ctx := as(t, "acme")
	bounds := brig.DefaultLimitRange()
	for free, want := range map[int64]int64{
		0: bounds.Default.Disk, 5 * brig.GiB: bounds.Default.Disk + 5*brig.GiB, 1 << 50: bounds.Max.Disk, 1 << 62: bounds.Max.Disk,
	} {
		_, x, err := f.Request(ctx, builder.Request{Name: "web", FreeDisk: free})
		if err != nil || x.Limits.Disk != want {
			t.Errorf("%d bytes of free space: %+v, %v, want %d", free, x, err, want)
		}
	}
}

// The log says that another image stands in for that of a template, because steps may fail for that reason.
func TestLogHasNotes(t *testing.T) {
	f := newFixture(t, nil, func(o *builder.Options) { o.Configured = []brig.Template{{Name: "base"}} })
	ctx := as(t, "acme")
	x := f.wait(t, ctx, f.start(t, ctx, "web", builder.Plan{Image: "e2bdev/base"}))
	var notes []string
	for _, l := range x.Log {
		if l.Level == "warn" && l.Step == "base" {
			notes = append(notes, l.Text)
		}
	}
	if want := "image: host, which stands in for base"; len(notes) != 1 || notes[0] != want {
		t.Errorf("the notes in the log are %q, want %q", notes, want)
	}
}
