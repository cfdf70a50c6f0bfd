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

// probeFile returns the probe as a file of a sandbox.
func probeFile(t testing.TB) brig.File {
	t.Helper()
	b, err := os.ReadFile(bin(t, "test/probe"))
	if err != nil {
		t.Fatal(err)
	}
	return brig.File{Path: "probe", Data: b, Mode: 0o755}
}

const probe = "/workspace/probe"

// machine is a sandbox that contains the probe and was created directly by the provider, without
// an engine.
type machine struct {
	brig.Instance
	t   testing.TB
	p   *gvisor.Provider
	dir string // the sandbox's directory on the host
	n   int
}

// newMachine creates a sandbox of the host image in a data folder.
func newMachine(t testing.TB, p *gvisor.Provider, images *image.Store, id brig.ID, change func(*brig.Spec)) *machine {
	t.Helper()
	img, err := images.Resolve(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	spec := brig.Spec{Name: string(id), Image: img.Digest, Limits: brig.DefaultLimitRange().Default}
	if change != nil {
		change(&spec)
	}
	lease := time.Now().Add(30 * time.Minute)
	in, err := p.Create(t.Context(), id, spec, lease)
	if err != nil {
		t.Fatal(err)
	}
	if restoresMachines() {
		in = restored(t, p, in, spec, lease)
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

// try runs a command to its end. The default timeout is so long that only hanging commands exceed
// it, even on a loaded host.
func (m *machine) try(cmd brig.Command) (*brig.Result, string, error) {
	m.t.Helper()
	m.n++
	if cmd.Timeout == 0 {
		cmd.Timeout = 5 * time.Minute
	}
	var out bytes.Buffer
	id := "exec-" + time.Now().Format("150405.000000000")
	res, err := m.Exec(m.t.Context(), id, cmd, brig.IO{Stdout: &out, Stderr: &out})
	return res, out.String(), err
}

// sh runs a script that must succeed, and returns its output.
func (m *machine) sh(user, script string) string {
	m.t.Helper()
	res, out, err := m.try(brig.Command{Shell: script, User: user})
	if err != nil || res.ExitCode != 0 {
		m.t.Fatalf("%s: %v, %+v: %s", script, err, res, out)
	}
	return out
}

// facts runs the probe and returns its findings.
func (m *machine) facts(user string, args ...string) map[string]string {
	m.t.Helper()
	res, out, err := m.try(brig.Command{Argv: append([]string{probe}, args...), User: user})
	if err != nil || res.TimedOut || res.ExitCode != 0 {
		m.t.Fatalf("probe %v: %v, %+v: %s", args, err, res, out)
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

// pids lists the processes on the host that belong to the machine: its shim and the shim's
// descendants.
func (m *machine) pids() []int { return sandboxProcesses(m.dir) }

// checkNoTraces fails the test unless all resources of the machine are removed from the host in
// time.
func (m *machine) checkNoTraces() {
	m.t.Helper()
	deadline := time.Now().Add(promptTimeout)
	for {
		remaining := m.traces()
		if len(remaining) == 0 {
			return
		}
		if time.Now().After(deadline) {
			m.t.Errorf("left behind: %v", remaining)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// traces lists the resources of the machine that still exist on the host.
func (m *machine) traces() []string {
	var remaining []string
	for _, pid := range m.pids() {
		remaining = append(remaining, "process "+strings.Join(cmdline(pid), " "))
	}
	if _, err := os.Stat(m.dir); err == nil {
		remaining = append(remaining, "folder "+m.dir)
	}
	// Sandboxes of other data folders may have the same names, so search only below the parent
	// cgroup.
	parent := groupOf(m.t, filepath.Dir(filepath.Dir(m.dir)))
	for _, root := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
		for _, between := range []string{"/*/", "/"} {
			groups, _ := filepath.Glob(root + parent + between + filepath.Base(m.dir))
			remaining = append(remaining, groups...)
		}
	}
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, m.dir) {
			remaining = append(remaining, "mount "+line)
		}
	}
	return remaining
}
