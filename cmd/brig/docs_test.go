package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDocsCommandOpensBrowserOnDesktop checks the address that brig docs prints, and that the
// command opens a browser only on a desktop.
func TestDocsCommandOpensBrowserOnDesktop(t *testing.T) {
	tools := t.TempDir()
	opened := filepath.Join(tools, "opened")
	if err := os.WriteFile(filepath.Join(tools, "xdg-open"), []byte("#!/bin/sh\nprintf %s \"$1\" > "+opened+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	t.Setenv("WAYLAND_DISPLAY", "")
	t.Setenv("BRIG_URL", "")
	for _, c := range []struct {
		args             []string
		display          string
		terminal         bool
		out, errs, opens string
	}{
		{args: []string{"--url", "https://brig.example/"}, out: "https://brig.example/docs/\n"},
		{args: []string{"--url", "https://ann:pw@brig.example/under?x#y"}, out: "https://brig.example/under/docs/\n"},
		{args: []string{"--data-dir", t.TempDir()}, out: docsSource + "\n", errs: "brig serve"},
		{args: []string{"--url", "file:///etc/passwd"}, errs: "--url"},
		{args: []string{"--url", "-version"}, errs: "--url"},
		{args: []string{"--url", "http://h", "--json"}, out: "{\n  \"url\": \"http://h/docs/\"\n}\n"},
		{args: []string{"--url", "http://h"}, display: ":0", out: "http://h/docs/\n"},
		{args: []string{"--url", "http://h"}, terminal: true, out: "http://h/docs/\n"},
		{args: []string{"--url", "http://h", "--print"}, display: ":0", terminal: true, out: "http://h/docs/\n"},
		{args: []string{"--url", "http://h"}, display: ":0", terminal: true, out: "http://h/docs/\n", opens: "http://h/docs/"},
	} {
		t.Setenv("DISPLAY", c.display)
		var out, errs bytes.Buffer
		cli := &cli{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, terminal: c.terminal}
		root := cli.root()
		root.SetArgs(append([]string{"docs"}, c.args...))
		if cmd, err := root.ExecuteContextC(t.Context()); err != nil {
			cli.report(cmd, err, false)
		}
		b, _ := os.ReadFile(opened) // the file does not exist if no browser was opened
		if out.String() != c.out || !strings.Contains(errs.String(), c.errs) || string(b) != c.opens {
			t.Errorf("brig docs %v: %q, %q, opened %q", c.args, out.String(), errs.String(), b)
		}
	}
}
