package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/brig-run/brig"
	"github.com/brig-run/brig/provider/providertest"
)

func openLocal(t *testing.T, agent, dir string, change ...func(*Provider)) *Provider {
	t.Helper()
	p, err := openProvider(t.Context(), brig.ProviderEnv{ID: Name, Dir: dir, Agent: agent, Called: func(brig.Call) {}},
		&Config{AcceptNoIsolation: true, PythonBin: "python3", NodeBin: "sh", Timeout: 30})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(p.(*Provider))
	}
	t.Cleanup(func() { p.(*Provider).Close() })
	return p.(*Provider)
}

func TestConformance(t *testing.T) { runConformance(t, nil) }

// TestConformanceWithoutPrivileges runs the suite without privileges. All
// processes then use a single account, and the other features are unchanged.
func TestConformanceWithoutPrivileges(t *testing.T) {
	const reason = "without privileges there is one account"
	const tun = "this machine's /dev/net/tun is root's"
	runConformance(t, &syscall.Credential{Uid: 65534, Gid: 65534}, "User", reason, "FilesOwners", reason, "FilesRights", reason, "TreesRace", reason, "TreesSealed", reason,
		"Uplink", tun, "UplinkReplaced", tun, "UplinkEnd", tun, "UplinkRecovered", tun, "UplinkBound", tun, "UplinkLarge", tun,
		"UplinkSettings", tun, "UplinkHostileFiles", tun)
}

func runConformance(t *testing.T, as *syscall.Credential, lacks ...string) {
	agent, dir := providertest.Agent(t), t.TempDir()
	// The other account also needs access to the directories.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	if as != nil {
		// The checkout may be in a directory that only its owner may enter.
		program, err := os.ReadFile(agent)
		if agent = filepath.Join(dir, "agent"); err == nil {
			err = os.WriteFile(agent, program, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		keeper := filepath.Join(dir, "keeper")
		if err := errors.Join(os.Mkdir(keeper, 0o700), os.Chown(keeper, int(as.Uid), int(as.Gid))); err != nil {
			t.Fatal(err)
		}
	}
	reopen := func(t *testing.T) *Provider {
		return openLocal(t, agent, dir, func(p *Provider) { p.as, p.supportsUplink = as, as == nil })
	}
	p := reopen(t)
	t.Cleanup(func() {
		if err := reopen(t).remoteHost.Quit(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	missing := map[string]string{
		"Freeze": noFreezer, "UplinkFrozen": noFreezer,
		"FilesFull": "the layer of files is a folder of the machine's disk",
	}
	for i := 0; i < len(lacks); i += 2 {
		missing[lacks[i]] = lacks[i+1]
	}
	img, err := p.Image(t.Context(), brig.HostImage)
	if err != nil {
		t.Fatal(err)
	}
	providertest.Run(t, providertest.Harness{
		Provider: p, Image: img.Digest, Real: true,
		Lacks: missing, Next: func(t *testing.T) brig.Provider { return reopen(t) },
	})
}

const noFreezer = "the kernel's freezer needs a cgroup of the sandbox's own"

// TestDisabledByDefault verifies that the provider, which does not isolate
// sandboxes, is disabled until the administrator accepts this.
func TestDisabledByDefault(t *testing.T) {
	d := Driver()
	config := d.Config().(*Config)
	config.NodeBin = "sh" // a program that exists on every host
	_, err := d.Open(t.Context(), brig.ProviderEnv{Dir: t.TempDir()}, config)
	e := brig.AsError(err)
	if e == nil || e.Kind != brig.InvalidConfig || e.Field != "accept_no_isolation" || e.Hint == "" {
		t.Errorf("opened by default: %+v", e)
	}
	config.AcceptNoIsolation = true
	p, err := d.Open(t.Context(), brig.ProviderEnv{Dir: t.TempDir()}, config) // the control
	if err != nil {
		t.Fatal(err)
	}
	c := p.Capabilities()
	if c.Isolation != "none" {
		t.Errorf("it says that it isolates by %q", c.Isolation)
	}
	for _, a := range brig.Areas {
		if e := c.Enforces[a]; e.Level == brig.LevelBoundary && a != brig.AreaOutput || e.Level == "" {
			t.Errorf("it says of %s: %+v", a, e)
		}
	}
	for _, wrong := range []Config{
		{AcceptNoIsolation: true, PythonBin: "no-such-python", NodeBin: "sh", Timeout: 30},
		{AcceptNoIsolation: true, PythonBin: "python3", NodeBin: "", Timeout: 30},
		{AcceptNoIsolation: true, PythonBin: "python3", NodeBin: "sh", WorkDir: "relative", Timeout: 30},
	} {
		if _, err := d.Open(t.Context(), brig.ProviderEnv{Dir: t.TempDir()}, &wrong); brig.KindOf(err) != brig.InvalidConfig {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
}

// TestPythonBin verifies that a sandbox uses the configured Python, even if it
// is in a virtual environment.
func TestPythonBin(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "brig-venv-") // a sandbox has its own /tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(dir, "venv")
	if out, err := exec.Command("/usr/bin/python3", "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	agent, env := providertest.Agent(t), t.TempDir()
	p := openLocal(t, agent, env, func(p *Provider) { p.programs = map[string]string{"python3": filepath.Join(venv, "bin", "python3")} })
	in, err := p.Create(t.Context(), "venv", brig.Spec{Name: "venv", Limits: brig.DefaultLimitRange().Default}, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(in.Destroy(context.WithoutCancel(t.Context())), p.remoteHost.Quit(context.WithoutCancel(t.Context()))); err != nil {
			t.Error(err)
		}
	})
	var out, errs bytes.Buffer
	res, err := in.Exec(t.Context(), "x", brig.Command{Argv: []string{"python3", "-c", "import sys; print(sys.prefix)"}, Timeout: 20 * time.Second}, brig.IO{Stdout: &out, Stderr: &errs})
	if err != nil || res.ExitCode != 0 || out.String() != venv+"\n" {
		t.Errorf("its prefix is %q, want %q; %+v, %v, %s", &out, venv, res, err, &errs)
	}
}

// TestSharedWorkDir verifies that servers with the same directory do not
// affect each other's sandboxes.
func TestSharedWorkDir(t *testing.T) {
	agent, work := providertest.Agent(t), t.TempDir()
	if err := os.Chmod(work, 0o700); err != nil {
		t.Fatal(err)
	}
	server := func() *Provider {
		p, err := openProvider(t.Context(), brig.ProviderEnv{ID: Name, Dir: t.TempDir(), Agent: agent, Called: func(brig.Call) {}},
			&Config{AcceptNoIsolation: true, PythonBin: "python3", NodeBin: "sh", WorkDir: work, Timeout: 30})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.(*Provider).Close() })
		return p.(*Provider)
	}
	one, other := server(), server()
	in, err := one.Create(t.Context(), "ours", brig.Spec{Name: "ours", Limits: brig.DefaultLimitRange().Default}, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(in.Destroy(ctx), one.remoteHost.Quit(ctx), other.remoteHost.Quit(ctx)); err != nil {
			t.Error(err)
		}
	})
	if n, err := other.Sweep(t.Context(), nil); n != 0 || err != nil || in.Exit() != nil {
		t.Errorf("another server has swept %d, %v; it ended with %+v", n, err, in.Exit())
	}
}

// TestCreateCanceled verifies that a sandbox is removed completely if its
// creator gave up or died during the creation.
func TestCreateCanceled(t *testing.T) {
	agent, env := providertest.Agent(t), t.TempDir()
	p := openLocal(t, agent, env)
	t.Cleanup(func() {
		if err := p.remoteHost.Quit(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	spec := brig.Spec{Name: "abandoned", Limits: brig.DefaultLimitRange().Default}
	if err := p.Check(t.Context()); err != nil { // starts the supervisor
		t.Fatal(err)
	}
	const ms = time.Millisecond
	given := 0
	for i, after := range []time.Duration{2 * ms, 5 * ms, 10 * ms, 20 * ms, 40 * ms, 5 * ms, 10 * ms, 20 * ms} {
		maker, ctx, cancel := p, t.Context(), context.CancelFunc(func() {})
		id := brig.ID(fmt.Sprintf("abandoned-%d", i))
		if i < 5 {
			ctx, cancel = context.WithTimeout(ctx, after)
		} else {
			maker = openLocal(t, agent, env)
			if err := maker.Check(ctx); err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(after, func() { maker.Close() })
		}
		_, err := maker.Create(ctx, id, spec, time.Now().Add(time.Minute))
		cancel()
		if err == nil { // the creation completed before the cancellation
			_ = p.remoteHost.Destroy(t.Context(), id)
			continue
		}
		given++
	}
	if given == 0 {
		t.Fatal("no maker gave up")
	}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		states, err := p.remoteHost.States(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(begin) > 2*time.Second && len(states) == 0 {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("after %d makers gave up there are still %+v", given, states)
		}
	}
}
