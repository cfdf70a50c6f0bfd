package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/brig-run/brig"
)

// TestFollow checks that each line of a growing log is printed once, in order,
// and that an incomplete line is printed once it is complete.
func TestFollow(t *testing.T) {
	const a, b = "2026-11-25T08:00:00.000Z ", "2026-11-25T08:00:00.001Z "
	var out bytes.Buffer
	log := ""
	f := &follower{out: &out, read: func(_ context.Context, o brig.LogOptions) (io.ReadCloser, error) {
		if !o.Times {
			t.Error("without times, lines cannot be told apart")
		}
		return io.NopCloser(strings.NewReader(log)), nil
	}}
	for _, step := range []struct {
		log      string
		complete bool
		want     string
	}{
		{"", false, ""},
		{a + "same\n" + a + "same\n", false, "same\nsame\n"},
		{a + "same\n" + a + "same\n" + a + "same\n" + b + "hal", false, "same\nsame\nsame\n"},
		{a + "same\n" + a + "same\n" + a + "same\n" + b + "half\n", false, "same\nsame\nsame\nhalf\n"},
		{a + "same\n" + b + "half\n" + b + "end", true, "same\nsame\nsame\nhalf\nend"}, // the beginning of the log was dropped
	} {
		log = step.log
		if err := f.print(t.Context(), 0, step.complete); err != nil {
			t.Fatal(err)
		}
		if out.String() != step.want {
			t.Errorf("after %q: %q, want %q", step.log, out.String(), step.want)
		}
	}
}
