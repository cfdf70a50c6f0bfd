package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/internal/cgroup"
)

// boundaryAreas returns the areas that are enforced as boundaries if brig runs as root and
// cgroups are available.
func boundaryAreas() []brig.Area {
	return []brig.Area{
		brig.AreaIsolation, brig.AreaMemory, brig.AreaCPUs, brig.AreaProcesses, brig.AreaOpenFiles, brig.AreaDisk,
		brig.AreaOutput, brig.AreaTime, brig.AreaEgress, brig.AreaSecrets,
	}
}

// checkBoundaries fails the test unless all areas except the given ones are
// boundaries, with evidence for areas whose enforcement is observable.
func checkBoundaries(t *testing.T, s *brig.Sandbox, but ...brig.Area) {
	t.Helper()
	for _, a := range boundaryAreas() {
		e := s.Enforcement[a]
		if slices.Contains(but, a) {
			continue
		}
		if e.Level != brig.LevelBoundary || e.At.IsZero() {
			t.Errorf("%s is %+v", a, e)
		}
		seen := !slices.Contains([]brig.Area{brig.AreaOutput, brig.AreaTime, brig.AreaSecrets}, a)
		if seen && len(e.Evidence) == 0 {
			t.Errorf("%s: nobody has seen anything of it: %+v", a, e)
		}
	}
}

// TestAttest verifies that the attestation, as observed from the host and from inside the
// sandbox, agrees with the capabilities, both with and without a network.
//
//suite:part core
func TestAttest(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	caps, err := e.Capabilities(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range boundaryAreas() {
		if caps.Enforces[a].Level != brig.LevelBoundary || !caps.Enforces[a].At.IsZero() {
			t.Errorf("of %s it says %+v", a, caps.Enforces[a])
		}
	}
	for name, rules := range map[string]brig.Egress{
		"apart":     {},
		"connected": {Rules: []brig.EgressRule{{Host: "api.example.test", Ports: []int{443}}}},
	} {
		if _, err := e.Create(ctx, brig.Spec{Name: name, Egress: rules, Limits: brig.Limits{CPUs: 0.5, Processes: 50, OpenFiles: 100, Disk: 64 * brig.MiB}}); err != nil {
			t.Fatal(err)
		}
		s, err := e.Attest(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		checkBoundaries(t, s)
		printed := strings.Join(s.Enforcement[brig.AreaEgress].Evidence, "\n")
		for _, want := range []string{"without an interface", "no answer from 192.0.2.1:443", "no answer from example.com", "as root"} {
			if !strings.Contains(printed, want) {
				t.Errorf("%s: of egress it does not say %q: %s", name, want, printed)
			}
		}
	}
}

// TestRequire verifies that a sandbox is created if all requirements are met,
// including a sandbox with a main program.
//
//suite:part core
func TestRequire(t *testing.T) {
	needRoot(t)
	e, ctx := newEngine(t)
	need := brig.Requirement{}
	for _, a := range boundaryAreas() {
		need[a] = brig.LevelBoundary
	}
	s, err := e.Create(ctx, brig.Spec{Name: "held", Require: need, Command: &brig.Command{Argv: []string{"sleep", "60"}}})
	if err != nil {
		t.Fatal(err)
	}
	checkBoundaries(t, s)
	if _, err := e.Run(ctx, brig.Program{Command: []string{"true"}, Require: need}, brig.IO{}); err != nil {
		t.Error(err)
	}
}

// TestAttestReportsDisabledProtections is the control of TestAttest: the attestation reports a
// disabled protection, and the engine rejects a sandbox that requires it.
//
//suite:part core
func TestAttestReportsDisabledProtections(t *testing.T) {
	needRoot(t)
	for protection, area := range map[string]brig.Area{
		"capabilities":      brig.AreaIsolation,
		"no-new-privileges": brig.AreaIsolation,
		"read-only":         brig.AreaIsolation,
		"network":           brig.AreaEgress,
	} {
		t.Run(protection, func(t *testing.T) {
			e, ctx := newEngine(t, protection)
			if _, err := e.Create(ctx, brig.Spec{Name: "box"}); err != nil {
				t.Fatal(err)
			}
			s, err := e.Attest(ctx, "box")
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Enforcement[area]; got.Level.Meets(brig.LevelBoundary) || len(got.Gaps) == 0 {
				t.Errorf("%s is off, and %s is %+v", protection, area, got)
			}
			checkBoundaries(t, s, area, brig.AreaSecrets)
			_, err = e.Create(ctx, brig.Spec{Name: "picky", Require: brig.Requirement{area: brig.LevelBoundary}})
			if brig.KindOf(err) != brig.FailedPrecondition || brig.AsError(err).Field != "require."+string(area) {
				t.Errorf("it is required, and there is %v", err)
			}
		})
	}
}

// TestAttestReadsLimits verifies that the attestation reads limits back from
// the kernel: it reports a limit that was removed.
//
//suite:part core
func TestAttestReadsLimits(t *testing.T) {
	needRoot(t)
	for what, c := range map[string]struct {
		area          brig.Area
		v1, v2        string // cgroup files
		loose, loose2 string
		want          brig.Level
	}{
		"memory":     {brig.AreaMemory, "memory/memory.memsw.limit_in_bytes memory/memory.limit_in_bytes", "memory.max", "-1", "max", brig.LevelNone},
		"processors": {brig.AreaCPUs, "cpu/cpu.cfs_quota_us", "cpu.max", "-1", "max", brig.LevelNone},
		"threads":    {brig.AreaProcesses, "pids/pids.max", "pids.max", "max", "max", brig.LevelGaps},
	} {
		t.Run(what, func(t *testing.T) {
			e, ctx := newEngine(t)
			s, err := e.Create(ctx, brig.Spec{Name: "box"})
			if err != nil {
				t.Fatal(err)
			}
			root, files, loose := "/sys/fs/cgroup", c.v1, c.loose
			if cgroup.Mode() == "v2" {
				files, loose = c.v2, c.loose2
			}
			written := 0
			for f := range strings.FieldsSeq(files) {
				dir, name := filepath.Split(f)
				found, _ := filepath.Glob(filepath.Join(root, dir, "brig", "*", "*", string(s.ID), name))
				for _, file := range found {
					if err := os.WriteFile(file, []byte(loose), 0); err != nil {
						t.Fatal(err)
					}
					written++
				}
			}
			if written == 0 {
				t.Fatalf("no %s of the sandbox's cgroup", files)
			}
			if s, err = e.Attest(ctx, "box"); err != nil {
				t.Fatal(err)
			}
			if got := s.Enforcement[c.area]; got.Level != c.want {
				t.Errorf("%s is %+v, want %s", c.area, got, c.want)
			}
			checkBoundaries(t, s, c.area)
		})
	}
}

// TestAttestAfterRestart verifies that a server can inspect a sandbox that it recovered.
//
//suite:part core
func TestAttestAfterRestart(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	s := startServer(t, dir)
	if code, body := s.do("POST", "/v1/sandboxes", `{"name":"box"}`); code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	s.kill()
	s = startServer(t, dir)
	code, body := s.do("POST", "/v1/sandboxes/box/attest", "")
	var box struct {
		Enforcement map[string]struct{ Level string }
	}
	if err := json.Unmarshal([]byte(body), &box); code != 200 || err != nil || box.Enforcement["memory"].Level != "boundary" || box.Enforcement["egress"].Level != "boundary" {
		t.Errorf("%d %s", code, body)
	}
	if code, body := s.do("DELETE", "/v1/sandboxes/box", ""); code != 204 {
		t.Errorf("%d %s", code, body)
	}
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

// TestRootlessEnforcement verifies enforcement without root, where memory is only measured and
// CPU limits are whole numbers. The capabilities and the attestation report the gaps, and the
// engine rejects requirements that are not met.
//
//suite:part install with=rootless
func TestRootlessEnforcement(t *testing.T) {
	p := newUnprivilegedUser(t)
	parse := func(out string) map[string]struct {
		Level string
		Gaps  []string
	} {
		t.Helper()
		var doc struct {
			Enforces, Enforcement map[string]struct {
				Level string
				Gaps  []string
			}
		}
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if doc.Enforces != nil {
			return doc.Enforces
		}
		return doc.Enforcement
	}
	ask := func(args ...string) string {
		t.Helper()
		out, errs, code := p.brig(append([]string{"--json"}, args...)...)
		if code != 0 {
			t.Fatalf("%v: %d: %s", args, code, errs)
		}
		return out
	}
	caps := parse(ask("capabilities"))
	ask("sandbox", "create", "box")
	attested := parse(ask("sandbox", "attest", "box"))
	for _, a := range append(boundaryAreas(), brig.AreaWorkspace) {
		want := "boundary"
		switch a {
		case brig.AreaMemory, brig.AreaCPUs:
			want = "gaps"
		case brig.AreaWorkspace, brig.AreaSecrets: // enforced by the server
			continue
		}
		if caps[string(a)].Level != want || attested[string(a)].Level != want {
			t.Errorf("%s is %+v, and attested %+v, want %s", a, caps[string(a)], attested[string(a)], want)
		}
	}
	if gaps := strings.Join(attested["memory"].Gaps, ""); !strings.Contains(gaps, "ten times a second") {
		t.Errorf("of memory it says %q", gaps)
	}
	_, errs, code := p.brig("run", "--require", "memory=boundary", "--", "true")
	if code == 0 || !strings.Contains(errs, "memory is gaps") || !strings.Contains(errs, "as root") {
		t.Errorf("%d: %s", code, errs)
	}
	if out, errs, code := p.brig("run", "--require", "memory=gaps", "--require", "egress=boundary", "--", "echo", "ran"); code != 0 || out != "ran\n" {
		t.Errorf("%d: %s%s", code, out, errs)
	}
	ask("sandbox", "rm", "box")
	p.checkNothingLeft()
}
