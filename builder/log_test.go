package builder

import (
	"strings"
	"testing"
	"time"
)

// A guest can print without end, and the log stays small. The failure of the build is on record.
func TestLogIsBounded(t *testing.T) {
	l := newBuildLog(time.Now)
	w := &lineWriter{log: l, level: "info", step: "1", last: &lastLines{}}
	for range 100 {
		if n, err := w.Write([]byte(strings.Repeat("x", 100_000) + "\n" + strings.Repeat("y\n", 1000))); err != nil || n != 102_001 {
			t.Fatal(n, err)
		}
	}
	l.add("error", "1", "it failed")
	size := 0
	for _, line := range l.lines() {
		size += len(line.Text)
	}
	lines := l.lines()
	if last := lines[len(lines)-1].Text; size > maxLogBytes+2*maxLine || last != "it failed" {
		t.Errorf("the log has %d bytes, and ends with %q", size, last)
	}
	if w.flush(); cap(w.rest) > 4*maxLine || len(w.last.lines) != keptLines {
		t.Errorf("the writer holds %d bytes and %d lines", cap(w.rest), len(w.last.lines))
	}
}

func TestLineWriterSplitsLines(t *testing.T) {
	l := newBuildLog(time.Now)
	w := &lineWriter{log: l, level: "info", step: "1", last: &lastLines{}}
	for _, p := range []string{"a", "b\nc\r\n\n", "d\xff"} {
		if _, err := w.Write([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	w.flush()
	var got []string
	for _, line := range l.lines() {
		got = append(got, line.Text)
	}
	if s := strings.Join(got, "|"); s != "ab|c||d\uFFFD" {
		t.Errorf("the lines are %q", s)
	}
}

// A failure quotes the end of what a command has written.
func TestLastLines(t *testing.T) {
	long := strings.Repeat("x", keptBytes-3)
	for _, c := range []struct{ lines, want string }{
		{"", ""},
		{"a|b", "a\nb"},
		{long + "|b|c", "b\nc"},
		{long + "|bc", long + "\nbc"},
		{"a|" + long + long, long + "xxx…"},
		{strings.Repeat("a|", keptLines) + "b", strings.Repeat("a\n", keptLines-1) + "b"},
	} {
		l := &lastLines{}
		if c.lines != "" {
			for line := range strings.SplitSeq(c.lines, "|") {
				l.add(line)
			}
		}
		if got := l.text(); got != c.want {
			t.Errorf("%.20q: %d bytes %.40q…, want %d", c.lines, len(got), got, len(c.want))
		}
	}
}
