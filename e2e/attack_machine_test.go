package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/image"
	"github.com/brig-run/brig/provider/gvisor"
)

// probeFile is the probe as a file of a sandbox.
func probeFile(t testing.TB) brig.File {
	t.Helper()
	b, err := os.ReadFile(bin(t, "test/probe"))
	if err != nil {
		t.Fatal(err)
	}
	return brig.File{Path: "probe", Data: b, Mode: 0o755}
}

const probe = "/workspace/probe"

// machine is one sandbox on the provider itself, without an engine, with the
// probe in it.
type machine struct {
	brig.Instance
	t   testing.TB
	p   *gvisor.Provider
	dir string // of the sandbox's files on the host
	n   int
}

// newMachine starts a machine of the host image in a data folder.
func newMachine(t testing.TB, p *gvisor.Provider, images *image.Store, id brig.ID, change func(*brig.Spec)) *machine {
	t.Helper()
	img, err := images.Resolve(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	spec := brig.Spec{Name: string(id), Image: img.Digest, Limits: brig.DefaultBounds().Default}
	if change != nil {
		change(&spec)
	}
	in, err := p.Create(t.Context(), id, spec, time.Now().Add(2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{Instance: in, t: t, p: p, dir: filepath.Join(p.DataDir, "sandboxes", string(id))}
	t.Cleanup(func() {
		if err := in.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("destroy %s: %v", id, err)
		}
	})
	if err := in.Put(t.Context(), "/workspace", []brig.File{probeFile(t)}); err != nil {
		t.Fatal(err)
	}
	return m
}

// try runs a command to its end.
func (m *machine) try(cmd brig.Command) (*brig.Result, string, error) {
	m.t.Helper()
	m.n++
	if cmd.Timeout == 0 {
		cmd.Timeout = 20 * time.Second
	}
	var out bytes.Buffer
	id := "exec-" + time.Now().Format("150405.000000000")
	res, err := m.Exec(m.t.Context(), id, cmd, brig.IO{Stdout: &out, Stderr: &out})
	return res, out.String(), err
}

// sh runs a script that must end well, and returns what it wrote.
func (m *machine) sh(user, script string) string {
	m.t.Helper()
	res, out, err := m.try(brig.Command{Shell: script, User: user})
	if err != nil || res.ExitCode != 0 {
		m.t.Fatalf("%s: %v, %+v: %s", script, err, res, out)
	}
	return out
}

// facts runs the probe and returns what it found.
func (m *machine) facts(user string, args ...string) map[string]string {
	m.t.Helper()
	res, out, err := m.try(brig.Command{Argv: append([]string{probe}, args...), User: user})
	if err != nil {
		m.t.Fatalf("probe: %v, %+v: %s", err, res, out)
	}
	return parseFacts(m.t, out)
}

func parseFacts(t testing.TB, out string) map[string]string {
	t.Helper()
	f := map[string]string{}
	if err := json.Unmarshal([]byte(out), &f); err != nil {
		t.Fatalf("probe: %v: %s", err, out)
	}
	return f
}

// pids lists the host's processes that belong to the machine: its shim and
// all that it started.
func (m *machine) pids() []int { return sandboxProcesses(m.dir) }

// noneLeft fails unless nothing on the host belongs to the machine.
func (m *machine) noneLeft() {
	m.t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		left := m.traces()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			m.t.Errorf("left behind: %v", left)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// traces are what the host still has of a machine.
func (m *machine) traces() []string {
	var left []string
	for _, pid := range m.pids() {
		left = append(left, "process "+strings.Join(cmdline(pid), " "))
	}
	if _, err := os.Stat(m.dir); err == nil {
		left = append(left, "folder "+m.dir)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/brig/*/" + filepath.Base(m.dir))
	more, _ := filepath.Glob("/sys/fs/cgroup/brig/*/" + filepath.Base(m.dir))
	left = append(left, append(groups, more...)...)
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, m.dir) {
			left = append(left, "mount "+line)
		}
	}
	return left
}
